//! The output is a function of the log. It depends neither on where reading began nor on when
//! results were requested.

mod log;

use log::{Done, Message, TICK, end_of, limits, put, read_all, worker};
use proptest::prelude::*;
use spillway_spans::partition::Partition;
use spillway_spans::span::Span;

/// Reads up to message `killed`, after which everything is stored. Another worker then continues
/// from the committed offset.
fn killed_and_resumed(log: &[Message], killed: usize, lazy: usize) -> (Done, Done) {
    let (mut first, mut before) = (worker(log[0].offset, true), Done::default());
    for (i, message) in log[..killed].iter().enumerate() {
        put(&mut first, message);
        if i.is_multiple_of(lazy) {
            before.drain(&mut first, 3);
        }
    }
    before.drain(&mut first, 3);
    let (from, log_start) = before.commit_offset.map_or((log[0].offset, true), |offset| (offset, false));
    let (mut second, mut after) = (worker(from, log_start), Done::default());
    for (i, message) in log.iter().filter(|message| message.offset >= from).enumerate() {
        put(&mut second, message);
        if i.is_multiple_of(lazy) {
            after.drain(&mut second, 5);
        }
    }
    second.advance(end_of(log));
    after.drain(&mut second, 5);
    (before, after)
}

/// Whether the second worker produced every batch of a tick after the first worker's last one.
fn is_gapless(before: &Done, after: &Done, all: &Done) -> bool {
    let Some((_, last)) = before.ticks else { return true };
    let missing = all.batches.keys().any(|(_, sequence, _)| {
        let tick = (sequence >> 10) as i64;
        tick > last && !after.batches.keys().any(|(_, known, _)| known == sequence)
    });
    !missing
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases / 4, ..ProptestConfig::default() })]

    #[test]
    fn a_worker_killed_anywhere_is_followed_by_one_that_repeats_the_same_batches_and_misses_none(
        log in log::log(40..260), at in 0.0..1.0, lazy in 1_usize..9,
    ) {
        let all = read_all(&log);
        let killed = (log.len() as f64 * at) as usize;
        let (before, after) = killed_and_resumed(&log, killed, lazy);
        for (key, rows) in before.batches.iter().chain(&after.batches) {
            prop_assert_eq!(Some(rows), all.batches.get(key), "{:?}, killed before message {}", key, killed);
        }
        let mut union = before.batches.clone();
        union.extend(after.batches.clone());
        prop_assert_eq!(&union, &all.batches);
        prop_assert!(is_gapless(&before, &after, &all));
        if let (Some((_, last)), Some(from)) = (before.ticks, before.commit_offset) {
            let start = log.iter().find(|message| message.offset == from).map(|message| message.timestamp_ms);
            prop_assert!(start.is_some_and(|start| start + limits().life_ms + limits().hold_ms + limits().remember_ms <= (last + 1) * TICK));
        }
    }

    #[test]
    fn asking_often_or_seldom_and_an_idle_clock_that_keeps_its_promise_change_nothing(
        log in log::log(20..120), lazy in 1_usize..9, max_rows in 1_usize..20, idle in prop::collection::vec(0.0..1.0, 120),
    ) {
        let (mut worker, mut done) = (worker(100, true), Done::default());
        let mut newest = i64::MIN;
        for (i, message) in log.iter().enumerate() {
            if newest > i64::MIN {
                // Not later than the log time of the next message.
                let room = (message.timestamp_ms - newest).max(0);
                worker.advance(newest + (room as f64 * idle[i]) as i64);
            }
            newest = newest.max(message.timestamp_ms);
            put(&mut worker, message);
            if i.is_multiple_of(lazy) {
                done.drain(&mut worker, max_rows);
            }
        }
        worker.advance(end_of(&log));
        done.drain(&mut worker, max_rows);
        prop_assert_eq!(done.batches, read_all(&log).batches);
        prop_assert_eq!(worker.open_spans(), 0);
        prop_assert_eq!(worker.known_traces(), 0);
    }

    #[test]
    fn within_a_tick_neither_order_nor_packing_into_messages_matters(
        ticks in prop::collection::vec((prop::collection::vec(log::seed(), 0..12), 1_i64..5), 1..40),
        order in any::<u64>(),
    ) {
        let mut random = order | 1;
        let mut next = move |below: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) as usize % below.max(1)
        };
        let (mut plain, mut mixed, mut tick) = (Vec::new(), Vec::new(), 1_000);
        for (spans, gap) in &ticks {
            tick += gap;
            plain.push(Message { offset: plain.len() as i64, timestamp_ms: tick * TICK, spans: spans.clone() });
            let mut rest = spans.clone();
            for i in (1..rest.len()).rev() {
                rest.swap(i, next(i + 1));
            }
            // Both logs contain the tick's first moment, because the log begins there.
            let mut at = tick * TICK;
            loop {
                let cut = next(rest.len() + 1);
                let left = rest.split_off(cut);
                mixed.push(Message { offset: mixed.len() as i64, timestamp_ms: at, spans: rest });
                if left.is_empty() {
                    break;
                }
                rest = left;
                at = (at + next(4) as i64).min(tick * TICK + TICK - 1);
            }
        }
        prop_assert_eq!(read_all(&plain).batches, read_all(&mixed).batches);
    }
}

/// During warm-up, a worker does not count what its predecessor has counted. It only counts the
/// messages read for warm-up.
#[test]
fn what_is_odd_is_counted_by_the_worker_that_answers_for_it() {
    let horizon = limits().life_ms + limits().hold_ms + limits().remember_ms;
    let mut second = worker(100, false);
    for (offset, at) in [(100, 0), (101, TICK), (102, horizon - TICK), (103, horizon), (104, horizon + TICK)]
    {
        put(&mut second, &Message { offset, timestamp_ms: 1_000_000 + at, spans: vec![log::ONE; 2] });
    }
    second.advance(1_000_000 + horizon + 40 * TICK);
    let counters = log::counters(&mut second);
    assert_eq!((counters["message_for_warm_up"], counters["duplicate_span"]), (3, 4));
}

/// A flood of traces within one tick leaves no more in memory than the limit of a tick. Every span
/// of the flood has exactly one row, even if it arrived twice.
#[test]
fn what_a_flood_leaves_behind_is_bounded() {
    let (mut worker, mut done) = (worker(0, true), Done::default());
    worker.message(0, 1_000_000, false, |names, spans, _| {
        let made = log::span(&log::ONE, names);
        spans.extend((0..2_000).map(|i| Span { trace_id: 1 + i / 2, ..made.clone() }));
    });
    worker.advance(1_000_000 + TICK);
    let (known, quota) = (worker.known_traces(), 2 * limits().max_tick_spans);
    assert!((quota / 2..quota).contains(&known), "{known}");
    worker.advance(1_000_000 + 40 * TICK);
    done.drain(&mut worker, usize::MAX);
    let counters = log::counters(&mut worker);
    assert_eq!(
        (done.rows("calls").len(), counters["duplicate_span"], worker.open_spans()),
        (1_000, 1_000, 0)
    );
    assert_eq!(counters["span_not_remembered"], 2_000 - 2 * known as u64 - 2 * quota as u64);
}

/// A flood that a collector sends again, in part, in full or together with new spans, has its rows
/// only once.
#[test]
fn a_flood_that_is_sent_again_counts_once() {
    let flood = |worker: &mut Partition, offset: i64, tick: i64, ids: std::ops::Range<u128>| {
        worker.message(offset, 1_000_000 + tick * TICK, false, |names, spans, _| {
            let made = log::span(&log::ONE, names);
            spans.extend(ids.map(|id| Span { trace_id: id, ..made.clone() }));
        });
    };
    let remember = limits().remember_ms / TICK;
    let (mut worker, mut done) = (worker(0, true), log::Done::default());
    flood(&mut worker, 0, 0, 1..51);
    flood(&mut worker, 1, 1, 1..51);
    flood(&mut worker, 2, remember, 21..31);
    flood(&mut worker, 3, 2 * remember, 1..56);
    flood(&mut worker, 4, 10 * remember, 1..51);
    worker.advance(1_000_000 + 20 * remember * TICK);
    done.drain(&mut worker, usize::MAX);
    let counters = log::counters(&mut worker);
    // Spans that were silent for longer than the memory are new: the 40 and the 5 that were not
    // there before, then all.
    assert_eq!(counters["duplicate_span"], 50 + 10 + 10);
    assert_eq!(done.rows("calls").len(), 50 + 45 + 50);
    assert_eq!(counters.get("span_not_remembered"), None);
}
