//! Exclusive time of a call: its duration minus the union of the calls that it made (SLATE 4.2).
//!
//! A client span is made on the host of the server span that it belongs to. Both share a clock, so
//! a part of it outside the server span is real. That part is clipped, and a client span that
//! outlives its parent is asynchronous. A direct call (no client span) is timed by another host. If
//! it extends beyond its parent but would fit, the clocks differ. It is then assumed to lie in the
//! middle, with as much network time before it as after it (as Jaeger's adjuster does).

use crate::span::{Kind, Span};
use crate::trace::ids::NONE;
use crate::trace::link::Place;

/// Exclusive times of the spans of one trace, and counters of odd intervals.
#[derive(Debug, Default)]
pub(crate) struct Exclusive {
    /// (call, start, end), relative to the call and clipped to it.
    children: Vec<(u32, i64, i64)>,
    /// Exclusive time of each span, in microseconds. Only the values of server spans are
    /// meaningful.
    pub exclusive_us: Vec<i64>,
    pub outlived: u64,
    pub skewed: u64,
}

impl Exclusive {
    /// Computes `exclusive_us` of a trace.
    pub fn measure(&mut self, spans: &[Span], places: &[Place]) {
        self.exclusive_us.clear();
        self.exclusive_us.extend(spans.iter().map(|span| span.duration_us));
        self.children.clear();
        for (span, place) in spans.iter().zip(places) {
            let is_call = place.kind == Kind::Client || place.kind == Kind::Server && place.is_direct;
            if is_call && place.owner != NONE {
                let (start, end) = self.interval(span, &spans[place.owner as usize], place.is_direct);
                if end > start {
                    self.children.push((place.owner, start, end));
                }
            }
        }
        self.children.sort_unstable();
        for calls in self.children.chunk_by(|a, b| a.0 == b.0) {
            self.exclusive_us[calls[0].0 as usize] -= union(calls);
        }
    }

    fn interval(&mut self, child: &Span, parent: &Span, is_remote: bool) -> (i64, i64) {
        let start = child.started_us - parent.started_us;
        let end = start + child.duration_us;
        let room = parent.duration_us - child.duration_us;
        if is_remote && room >= 0 && (start < 0 || end > parent.duration_us) {
            self.skewed += 1;
            return (room / 2, room / 2 + child.duration_us);
        }
        if end > parent.duration_us {
            self.outlived += 1;
        } else if start < 0 {
            self.skewed += 1;
        }
        (start.clamp(0, parent.duration_us), end.clamp(0, parent.duration_us))
    }
}

/// Length of the union of intervals that are sorted by their starts.
fn union(calls: &[(u32, i64, i64)]) -> i64 {
    let (mut total, mut reached) = (0, i64::MIN);
    for (_, start, end) in calls {
        total += (end - start.max(&reached)).max(0);
        reached = reached.max(*end);
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_union_is_what_counting_every_microsecond_gives(
            mut calls in prop::collection::vec((0_i64..200, 0_i64..200).prop_map(|(a, b)| (0_u32, a.min(b), a.max(b))), 1..40)
        ) {
            calls.sort_unstable();
            let counted = (0..200).filter(|at| calls.iter().any(|(_, start, end)| start <= at && at < end)).count();
            prop_assert_eq!(union(&calls), counted as i64);
        }
    }
}
