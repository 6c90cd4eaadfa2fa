//! Tests of whole traces of any shape: exclusive times add up, and unrelated strings change
//! nothing.

mod log;

use std::collections::BTreeMap;

use log::Message;
use proptest::prelude::*;
use spillway_spans::limits::Limits;
use spillway_spans::memory::names::{Names, Sym};
use spillway_spans::partition::Partition;
use spillway_spans::span::{Kind, Span};

/// A generated call: its caller, the gap before it begins, and its own time after its last call.
#[derive(Clone, Copy, Debug)]
struct Made {
    parent: usize,
    gap: i64,
    tail: i64,
    /// Time between client and server span at either end, in microseconds. None: there is no client
    /// span.
    network: Option<i64>,
    /// Whether an internal span of the caller encloses the call.
    is_wrapped: bool,
}

fn made() -> impl Strategy<Value = Made> {
    (any::<u16>(), 0..20_i64, 0..20_i64, prop::option::of(0..5_i64), any::<bool>()).prop_map(
        |(parent, gap, tail, network, is_wrapped)| Made {
            parent: parent.into(),
            gap,
            tail,
            network,
            is_wrapped,
        },
    )
}

#[derive(Debug, Default)]
struct Tree {
    /// Each vector has one entry per call. `start` counts from the root's start. `calls` holds the
    /// intervals (call, start, end) of the calls that a call made, relative to its own start.
    depth: Vec<usize>,
    start: Vec<i64>,
    duration: Vec<i64>,
    calls: Vec<Vec<(usize, i64, i64)>>,
}

/// Places the calls: one after the other, or each `gap` after its caller began.
fn tree(all: &[Made], is_sequential: bool) -> Tree {
    let parent = |i: usize| all[i].parent % i.max(1);
    let mut tree = Tree {
        depth: vec![0; all.len()],
        start: vec![0; all.len()],
        duration: vec![0; all.len()],
        calls: vec![Vec::new(); all.len()],
    };
    for i in (0..all.len()).rev() {
        tree.calls[i].reverse(); // until here, `to` is a duration
        let mut at = 0;
        let mut end = 0;
        for (child, from, to) in &mut tree.calls[i] {
            let length = *to;
            *from = all[*child].gap + if is_sequential { at } else { 0 };
            *to = *from + length;
            (at, end) = (*to, end.max(*to));
        }
        tree.duration[i] = end + all[i].tail;
        if i > 0 {
            let length = tree.duration[i] + 2 * all[i].network.unwrap_or(0);
            tree.calls[parent(i)].push((i, 0, length));
        }
    }
    for i in 0..all.len() {
        for (child, from, _) in tree.calls[i].clone() {
            tree.start[child] = tree.start[i] + from + all[child].network.unwrap_or(0);
            tree.depth[child] = tree.depth[i] + 1;
        }
    }
    tree
}

/// The spans of the tree. The id of a call's server span is the number of the call + 1.
fn spans(all: &[Made], tree: &Tree, names: &mut Names) -> Vec<Span> {
    let mut out = Vec::new();
    let mut put =
        |names: &mut Names, id: usize, parent: usize, kind: Kind, depth: usize, times: (i64, i64)| {
            let (service, made) =
                (names.intern(&format!("service-{}", depth % 3)), log::span(&log::ONE, names));
            let started_us = 1_700_000_000_000_000 + times.0;
            let (span_id, parent_id) = (id as u64, parent as u64);
            let span = Span { span_id, parent_id, kind, service, started_us, duration_us: times.1, ..made };
            out.push(Span { network_us: None, adjusted_count: 1.0, ..span });
        };
    for (i, made) in all.iter().enumerate() {
        let (depth, duration, mut parent) = (tree.depth[i], tree.duration[i], made.parent % i.max(1) + 1);
        let around = made.network.unwrap_or(0);
        let call = (tree.start[i] - around, duration + 2 * around);
        if i == 0 {
            parent = 0;
        } else if made.is_wrapped {
            put(names, 1_000 + i, parent, Kind::Internal, depth - 1, call);
            parent = 1_000 + i;
        }
        if i > 0 && made.network.is_some() {
            put(names, 2_000 + i, parent, Kind::Client, depth - 1, call);
            parent = 2_000 + i;
        }
        put(names, i + 1, parent, Kind::Server, depth, (tree.start[i], duration));
    }
    out
}

/// Returns the exclusive times by span id, and the sum of the edges' network times.
fn worked_out(all: &[Made], tree: &Tree) -> (BTreeMap<usize, i64>, i64) {
    let mut worker = Partition::new(Limits::default(), 0, true, 3).expect("limits are allowed");
    worker.message(0, 1_000_000, false, |names, out, _| out.extend(spans(all, tree, names)));
    worker.advance(1_020_000);
    let closed = worker.close(usize::MAX).expect("ticks have ended");
    let number = |row: &log::Row, name: &str| row[name].parse::<i64>().expect("a number");
    let id = |row: &log::Row| usize::from_str_radix(&row["span_id"], 16).expect("hex");
    let calls = log::rows(&closed.calls);
    let network = log::rows(&closed.edges).iter().map(|row| number(row, "network_us").max(0)).sum();
    (calls.iter().map(|row| (id(row), number(row, "exclusive_us"))).collect(), network)
}

proptest! {
    /// When calls follow each other, a root's duration is the sum of all exclusive and network
    /// times.
    #[test]
    fn the_parts_of_a_sequential_tree_are_the_whole(all in prop::collection::vec(made(), 1..60)) {
        let tree = tree(&all, true);
        let (exclusive_us, network) = worked_out(&all, &tree);
        prop_assert_eq!(exclusive_us.len(), all.len());
        prop_assert_eq!(exclusive_us.values().sum::<i64>() + network, tree.duration[0]);
    }

    /// When calls overlap, each call's exclusive time is the number of microseconds in which none
    /// of its calls runs. The sum of all, plus network time, is no shorter than the root. The sum
    /// is also no longer than all durations together.
    #[test]
    fn of_calls_at_the_same_time_each_microsecond_counts_once(all in prop::collection::vec(made(), 1..60)) {
        let tree = tree(&all, false);
        let (exclusive_us, network) = worked_out(&all, &tree);
        for (i, calls) in tree.calls.iter().enumerate() {
            let busy = (0..tree.duration[i]).filter(|at| !calls.iter().any(|(_, from, to)| from <= at && at < to));
            prop_assert_eq!(exclusive_us[&(i + 1)], busy.count() as i64, "call {}", i);
        }
        let sum = exclusive_us.values().sum::<i64>();
        prop_assert!(sum + network >= tree.duration[0] && sum <= tree.duration.iter().sum());
    }
}

/// Megabytes of strings that no span holds arrive while traces are open. The names are compacted
/// again and again, and the rows stay the same as without these strings.
#[test]
fn a_flood_of_names_changes_no_row() {
    let seeds = |number: u8| {
        let seed = |id: u8, parent: u8, kind: u8| log::Seed {
            trace: number % 9,
            id,
            parent,
            kind,
            service: id % 3,
            template: number % 6,
            started: number.into(),
            duration: 10 * u16::from(number) + u16::from(id),
        };
        vec![seed(number, 0, 1), seed(number + 100, number, 2), seed(number + 1, number + 100, 1)]
    };
    let message = |number: u8| Message {
        offset: 2 * i64::from(number),
        timestamp_ms: 1_000_000 + 7 * i64::from(number),
        spans: seeds(number),
    };
    let plain: Vec<_> = (1..100).map(message).collect();
    let (mut worker, mut done, mut generation) = (log::worker(2, true), log::Done::default(), 0);
    for message in &plain {
        log::put(&mut worker, message);
        worker.message(message.offset + 1, message.timestamp_ms, false, |names, _, _| {
            (0..100).for_each(|i| {
                assert_ne!(names.intern(&format!("{} {i} {:050000}", message.offset, 0)), Sym::NONE)
            });
            generation = names.generation();
        });
        if message.offset % 3 == 0 {
            done.drain(&mut worker, 5);
        }
    }
    worker.advance(log::end_of(&plain));
    done.drain(&mut worker, 5);
    assert!(generation > 50, "compacted {generation} times");
    assert_eq!(done.batches, log::read_all(&plain).batches);
}
