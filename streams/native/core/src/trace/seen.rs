//! Detects repeated spans, which are identified by (trace id, span id, kind, service).
//!
//! A repeat is a span of which a copy, itself a repeat or not, arrived within the last `remember`
//! of log time. The result depends only on the time between two copies. A worker that starts in the
//! middle of the log therefore soon gives the same results as one that has read all of it.

use std::cmp::Ordering;

use crate::memory::names::Names;
use crate::memory::texts::{Texts, fold};
use crate::span::Span;

/// A span of the tick that is being filled.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Arrival {
    pub trace_id: u128,
    /// Identity of the span in its trace.
    pub key: u64,
    /// Position of the span in the tick.
    pub at: u32,
    pub is_repeat: bool,
}

/// Returns the identity of a span in its trace.
pub(crate) fn key(span: &Span, names: &Names, texts: &mut Texts) -> u64 {
    let service = texts.hash(names, span.service);
    let kind = (span.kind as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    fold(span.span_id ^ 0xA076_1D64_78BD_642F, service ^ kind)
}

/// Orders a tick's spans by trace and key, whatever order they arrived in. `out` and `counts` are
/// passed only to reuse their memory.
pub(crate) fn group(arrivals: &mut Vec<Arrival>, out: &mut Vec<Arrival>, counts: &mut Vec<u32>) {
    let bits = usize::BITS - arrivals.len().leading_zeros();
    let shift = 64 - bits.clamp(1, 16);
    let bucket = |arrival: &Arrival| (mixed(arrival.trace_id) >> shift) as usize;
    counts.clear();
    counts.resize((1 << (64 - shift)) + 1, 0);
    for arrival in arrivals.iter() {
        counts[bucket(arrival) + 1] += 1;
    }
    for i in 1..counts.len() {
        counts[i] += counts[i - 1];
    }
    out.clear();
    out.resize(arrivals.len(), Arrival::default());
    for arrival in arrivals.iter() {
        let place = &mut counts[bucket(arrival)];
        out[*place as usize] = *arrival;
        *place += 1;
    }
    let mut start = 0;
    for end in counts.iter().take(counts.len() - 1) {
        out[start..*end as usize].sort_unstable_by_key(|arrival| (arrival.trace_id, arrival.key));
        start = *end as usize;
    }
    std::mem::swap(arrivals, out);
}

/// Hashes a trace id to 64 well-mixed bits.
pub(crate) fn mixed(trace_id: u128) -> u64 {
    (trace_id as u64 ^ ((trace_id >> 64) as u64).rotate_left(32)).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// Marks the arrivals of one trace as repeats if their key is among `keys`. Both are sorted by key.
pub(crate) fn mark_known(arrivals: &mut [Arrival], keys: &[u64]) {
    if keys.len() < arrivals.len() {
        for key in keys {
            let from = arrivals.partition_point(|arrival| arrival.key < *key);
            for arrival in arrivals[from..].iter_mut().take_while(|arrival| arrival.key == *key) {
                arrival.is_repeat = true;
            }
        }
    } else {
        for arrival in arrivals.iter_mut() {
            arrival.is_repeat |= keys.binary_search(&arrival.key).is_ok();
        }
    }
}

/// Marks all but one of the arrivals of one trace with equal keys as repeats. Copies in one tick
/// may differ, so the choice must not depend on which arrived first.
pub(crate) fn mark_copies(arrivals: &mut [Arrival], spans: &[Span], names: &Names) {
    for copies in arrivals.chunk_by_mut(|a, b| a.key == b.key) {
        if copies.len() > 1 {
            let span = |arrival: &Arrival| &spans[arrival.at as usize];
            let (Some(first), false) = (
                copies.iter().min_by(|a, b| by_content(span(a), span(b), names)).copied(),
                copies[0].is_repeat,
            ) else {
                continue;
            };
            copies.iter_mut().for_each(|arrival| arrival.is_repeat = arrival.at != first.at);
        }
    }
}

fn by_content(a: &Span, b: &Span, names: &Names) -> Ordering {
    let numbers = |s: &Span| {
        let sizes = (s.request_bytes, s.response_bytes, s.network_us, s.resends, s.ruleset_version);
        let load = (s.in_flight, s.class_in_flight, s.arrival_rate.to_bits(), s.class_arrival_rate.to_bits());
        let what = (s.started_us, s.duration_us, s.parent_id, s.status, s.failed, s.adjusted_count.to_bits());
        (what, sizes, load)
    };
    numbers(a).cmp(&numbers(b)).then_with(|| {
        let (a, b) = (a.syms(), b.syms());
        a.map(|sym| names.text(sym)).cmp(&b.map(|sym| names.text(sym)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrival(trace_id: u128, key: u64, at: u32) -> Arrival {
        Arrival { trace_id, key, at, is_repeat: false }
    }

    #[test]
    fn spans_of_one_trace_come_to_lie_together_in_one_order() {
        let mut forward: Vec<_> =
            (0..1000).map(|i| arrival(u128::from(i % 37) << 60, u64::from(i), i)).collect();
        let mut backward: Vec<_> = forward.iter().rev().copied().collect();
        group(&mut forward, &mut Vec::new(), &mut Vec::new());
        group(&mut backward, &mut Vec::new(), &mut Vec::new());
        let keys =
            |all: &[Arrival]| all.iter().map(|arrival| (arrival.trace_id, arrival.key)).collect::<Vec<_>>();
        assert_eq!(keys(&forward), keys(&backward));
        assert_eq!(forward.chunk_by(|a, b| a.trace_id == b.trace_id).count(), 37);
    }

    #[test]
    fn what_was_seen_is_marked_whichever_side_is_longer() {
        for keys in [vec![2], (2..40).step_by(2).collect::<Vec<u64>>()] {
            let mut arrivals = [arrival(1, 1, 0), arrival(1, 2, 1), arrival(1, 2, 2), arrival(1, 3, 3)];
            mark_known(&mut arrivals, &keys);
            assert_eq!(arrivals.map(|arrival| arrival.is_repeat), [false, true, true, false]);
        }
    }
}
