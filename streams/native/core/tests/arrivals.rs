//! Tests of which server spans count as arrivals. Two server spans of one request count once.

mod log;

use std::collections::BTreeMap;

use log::worker;
use spillway_spans::memory::names::{Names, Sym};
use spillway_spans::partition::Partition;
use spillway_spans::span::{Kind, Span};

/// A server span of a service. `in_flight` 0 means that no proxy of ours stamped it.
fn server(names: &mut Names, id: u64, parent: u64, service: &str, in_flight: u32) -> Span {
    let (service, made) = (names.intern(service), log::span(&log::ONE, names));
    Span { span_id: id, parent_id: parent, service, in_flight, adjusted_count: 1.0, ..made }
}

fn take(worker: &mut Partition, offset: i64, at_ms: i64, fill: impl FnOnce(&mut Names) -> Vec<Span>) {
    worker.message(offset, at_ms, true, |names, out, _| out.extend(fill(names)));
}

/// Returns the number of calls by service.
fn calls(worker: &mut Partition) -> BTreeMap<String, f64> {
    let mut found = BTreeMap::new();
    for row in log::rows(&worker.arrivals()) {
        *found.entry(row["service"].clone()).or_default() += row["calls"].parse::<f64>().expect("a number");
    }
    found
}

fn of(services: &[(&str, f64)]) -> BTreeMap<String, f64> {
    services.iter().map(|(service, calls)| ((*service).to_owned(), *calls)).collect()
}

/// After a stamped span, an application's own server spans do not count for 10 s of log time. This
/// holds for any message and any order, and other services are not affected.
#[test]
fn spans_without_a_stamp_do_not_count_beside_those_that_have_one() {
    let mut worker = worker(0, true);
    take(&mut worker, 0, 1_000_000, |n| {
        vec![server(n, 2, 1, "a", 0), server(n, 1, 0, "a", 3), server(n, 3, 0, "b", 0)]
    });
    take(&mut worker, 1, 1_010_000, |n| vec![server(n, 4, 9, "a", 0), server(n, 5, 9, "b", 0)]);
    assert_eq!(calls(&mut worker), of(&[("a", 1.0), ("b", 2.0)]));
    assert_eq!(log::counters(&mut worker).get("arrival_beside_stamped"), Some(&2));

    take(&mut worker, 2, 1_010_001, |n| vec![server(n, 6, 0, "a", 0)]);
    assert_eq!(calls(&mut worker), of(&[("a", 1.0)])); // the proxy is gone
}

/// A foreign tracer's server span does not count if its parent in the same message is a server span
/// of the same service. It counts if the parent belongs to another service. It also counts if a
/// client span shares its id (B3), because then it was called.
#[test]
fn a_foreign_proxys_double_counts_once() {
    let mut worker = worker(0, true);
    take(&mut worker, 0, 1_000_000, |n| {
        let client = Span { kind: Kind::Client, ..server(n, 8, 1, "a", 0) };
        vec![
            server(n, 2, 1, "a", 0),
            server(n, 1, 0, "a", 0),
            server(n, 3, 2, "b", 0),
            client,
            server(n, 8, 1, "a", 0),
            server(n, 9, 9, "a", 0),
            Span { trace_id: 77, ..server(n, 5, 1, "a", 0) },
        ]
    });
    assert_eq!(calls(&mut worker), of(&[("a", 4.0), ("b", 1.0)]));
    assert_eq!(log::counters(&mut worker).get("arrival_within_another"), Some(&1));
}

/// The stamped services are still known after a flood of names has caused the table of names to be
/// compacted.
#[test]
fn who_is_stamped_outlives_compacted_names() {
    let mut worker = worker(0, true);
    take(&mut worker, 0, 1_000_000, |n| vec![server(n, 1, 0, "a", 3)]);
    let mut generation = 0;
    for offset in 1..60 {
        take(&mut worker, offset, 1_000_000 + offset, |n| {
            let _: Vec<Sym> = (0..1_000).map(|i| n.intern(&format!("{offset} {i:0200}"))).collect();
            generation = n.generation();
            Vec::new()
        });
    }
    assert!(generation > 0);
    take(&mut worker, 60, 1_001_000, |n| vec![server(n, 2, 1, "a", 0)]);
    assert_eq!(calls(&mut worker), of(&[("a", 1.0)]));
}

/// A stamped span that names no caller is an entry, even if it carries a trace from outside. A span
/// of another tracer is an entry only if it has no parent, because any service may have called it.
#[test]
fn outside_callers_may_send_their_trace() {
    let mut worker = worker(0, true);
    take(&mut worker, 0, 1_000_000, |n| {
        let caller = n.intern("c");
        vec![
            server(n, 1, 99, "traced", 1),
            Span { source_service: caller, ..server(n, 2, 99, "called", 1) },
            server(n, 3, 99, "foreign", 0),
            server(n, 4, 0, "root", 0),
        ]
    });
    let mut entries: Vec<_> = log::rows(&worker.arrivals())
        .iter()
        .filter(|row| row["entry"] == "1")
        .map(|row| row["service"].clone())
        .collect();
    entries.sort();
    assert_eq!(entries, ["root", "traced"]);
}

/// As for rows, the most frequent classes of a service are kept. Frequency counts spans, whether
/// they failed or not.
#[test]
fn the_most_frequent_classes_stay() {
    let mut worker = worker(0, true);
    take(&mut worker, 0, 1_000_000, |n| {
        let mut all = Vec::new();
        for (text, spans) in [("/a", 1), ("/b", 1), ("/y", 50), ("/z", 50)] {
            let span = Span { template: n.intern(text), ..server(n, 1, 0, "a", 0) };
            all.extend((1..=spans).map(|id| Span { span_id: id, failed: id % 2 == 0, ..span.clone() }));
        }
        all
    });
    let found: BTreeMap<_, _> = log::rows(&worker.arrivals())
        .into_iter()
        .map(|row| (row["class"].clone(), row["calls"].clone()))
        .collect();
    let of = |rows: &[(&str, &str)]| -> BTreeMap<String, String> {
        rows.iter().map(|(class, calls)| ((*class).into(), (*calls).into())).collect()
    };
    assert_eq!(found, of(&[("a GET /other", "2.0"), ("a GET /y", "50.0"), ("a GET /z", "50.0")]));
}
