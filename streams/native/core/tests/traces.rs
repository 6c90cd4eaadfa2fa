//! Tests of single traces: callers, exclusive times, edges and classes.

mod log;

use log::worker;
use spillway_spans::classes::rules::{Rule, RuleKind};
use spillway_spans::memory::names::Names;
use spillway_spans::output::closed::Closed;
use spillway_spans::partition::Partition;
use spillway_spans::span::{Kind::Client, Kind::Internal, Kind::Server, Span};
use std::collections::BTreeMap;

/// A span. Ids are texts of up to eight letters, and times are microseconds from a fixed start.
fn span(
    names: &mut Names,
    id: &str,
    parent: &str,
    kind: spillway_spans::span::Kind,
    start: i64,
    end: i64,
    service: &str,
) -> Span {
    let number = |text: &str| text.bytes().fold(0, |sum, byte| sum << 8 | u64::from(byte));
    let template = names.intern(&format!("/{service}"));
    let (service, cluster, get) = (names.intern(service), names.intern("c1"), names.intern("GET"));
    Span {
        trace_id: 1,
        span_id: number(id),
        parent_id: number(parent),
        kind,
        status: 200,
        started_us: 1_700_000_000_000_000 + start,
        duration_us: end - start,
        cluster,
        service,
        method: get,
        template,
        adjusted_count: 1.0,
        ..Span::default()
    }
}

fn closed(fill: impl FnOnce(&mut Names) -> Vec<Span>) -> (Closed, Partition) {
    closed_by(worker(0, true), fill)
}

fn closed_by(mut worker: Partition, fill: impl FnOnce(&mut Names) -> Vec<Span>) -> (Closed, Partition) {
    worker.message(0, 1_000_000, false, |names, out, _| out.extend(fill(names)));
    worker.advance(1_010_000);
    let closed = worker.close(usize::MAX).expect("ticks have ended");
    (closed, worker)
}

/// The requested columns of each row, by span id.
fn table(batch: &spillway_spans::output::columns::Batch, columns: &[&str]) -> BTreeMap<String, Vec<String>> {
    let mut found = BTreeMap::new();
    for row in log::rows(batch) {
        let id = u64::from_str_radix(&row["span_id"], 16).expect("hex").to_be_bytes();
        let id: String = id.iter().filter(|byte| **byte != 0).map(|byte| char::from(*byte)).collect();
        found.insert(id, columns.iter().map(|name| row[name].clone()).collect());
    }
    found
}

fn of(rows: &[(&str, &[&str])]) -> BTreeMap<String, Vec<String>> {
    rows.iter().map(|(id, values)| ((*id).into(), values.iter().map(|v| (*v).into()).collect())).collect()
}

#[test]
fn overlapping_children_count_once_and_are_clipped_to_the_parent() {
    let (closed, mut worker) = closed(|n| {
        vec![
            span(n, "s", "", Server, 0, 100, "a"),
            span(n, "1", "s", Client, 10, 40, "a"),
            span(n, "2", "s", Client, 30, 60, "a"),
            span(n, "3", "s", Client, 90, 500, "a"),
            span(n, "4", "s", Client, -50, -10, "a"),
        ]
    });
    assert_eq!(table(&closed.calls, &["exclusive_us", "trace_spans"]), of(&[("s", &["40", "5"])]));
    let counters = log::counters(&mut worker);
    assert_eq!((counters["async_child"], counters["clock_skew"]), (1, 1));
}

#[test]
fn internal_spans_and_a_proxys_doubles_are_folded_into_one_call_and_one_edge() {
    let (closed, _) = closed(|n| {
        vec![
            span(n, "p", "", Server, 0, 100, "a"),
            span(n, "s", "p", Server, 1, 99, "a"),
            span(n, "i", "s", Internal, 5, 95, "a"),
            span(n, "c", "i", Client, 10, 60, "a"),
            span(n, "q", "c", Client, 12, 58, "a"),
            span(n, "t", "q", Server, 20, 50, "b"),
        ]
    });
    assert_eq!(
        table(&closed.calls, &["exclusive_us", "source_service"]),
        of(&[("p", &["54", ""]), ("t", &["30", "a"])])
    );
    let wanted = ["source_class", "class", "network_us"];
    assert_eq!(table(&closed.edges, &wanted), of(&[("q", &["a GET /a", "b GET /b", "16"])]));
}

#[test]
fn calls_of_two_requests_of_one_class_name_the_call_that_made_them() {
    let (closed, _) = closed(|n| {
        vec![
            span(n, "r", "", Server, 0, 100, "a"),
            span(n, "1", "r", Client, 10, 60, "a"),
            span(n, "2", "r", Client, 10, 60, "a"),
            span(n, "b", "1", Server, 12, 58, "b"),
            span(n, "B", "2", Server, 12, 58, "b"),
            span(n, "3", "b", Client, 20, 50, "b"),
            span(n, "s", "3", Server, 20, 50, "c"),
            span(n, "4", "B", Client, 20, 50, "b"),
            span(n, "t", "4", Server, 20, 50, "c"),
            span(n, "5", "B", Client, 20, 50, "b"),
            span(n, "u", "5", Server, 20, 50, "c"),
            span(n, "6", "lost", Client, 20, 50, "b"),
            span(n, "v", "6", Server, 20, 50, "c"),
        ]
    });
    let found = table(&closed.edges, &["source_call"]);
    assert_eq!(found["1"], found["2"]);
    assert_ne!(found["3"], found["4"]);
    assert_eq!(found["4"], found["5"]);
    assert!(!found["1"].contains(&"0".to_owned()) && !found["4"].contains(&"0".to_owned()));
    assert_eq!(found["6"], ["0"]);
}

#[test]
fn a_shared_span_id_pairs_client_and_server_even_where_a_service_calls_itself() {
    let (closed, _) = closed(|n| {
        vec![
            span(n, "r", "", Server, 0, 100, "a"),
            span(n, "x", "r", Client, 10, 40, "a"),
            span(n, "x", "r", Server, 15, 35, "a"),
            span(n, "y", "x", Client, 20, 30, "a"),
        ]
    });
    assert_eq!(table(&closed.calls, &["exclusive_us"]), of(&[("r", &["70"]), ("x", &["10"])]));
    assert_eq!(table(&closed.edges, &["network_us", "destination_service"])["x"], ["10", "a"]);
}

#[test]
fn a_call_without_client_span_takes_time_and_is_an_edge_and_other_clocks_are_centred() {
    let (closed, mut worker) =
        closed(|n| vec![span(n, "s", "", Server, 0, 100, "a"), span(n, "t", "s", Server, 7_000, 7_060, "b")]);
    assert_eq!(table(&closed.calls, &["exclusive_us"]), of(&[("s", &["40"]), ("t", &["60"])]));
    let wanted = ["source_service", "class", "network_us"];
    assert_eq!(table(&closed.edges, &wanted), of(&[("t", &["a", "b GET /b", "-1"])]));
    let counters = log::counters(&mut worker);
    assert_eq!((counters["edge_without_client_span"], counters["clock_skew"]), (1, 1));
}

#[test]
fn a_retried_call_has_no_network_time_but_what_was_measured_and_covers_all_attempts() {
    let (closed, _) = closed(|n| {
        let resent = |span: Span, network_us| Span { resends: 1, network_us, ..span };
        vec![
            span(n, "s", "", Server, 0, 100, "a"),
            resent(span(n, "1", "s", Client, 0, 30, "a"), None),
            span(n, "t", "1", Server, 20, 28, "b"),
            span(n, "2", "s", Client, 40, 70, "a"),
            span(n, "u", "2", Server, 41, 45, "b"),
            span(n, "v", "2", Server, 60, 68, "b"),
            resent(span(n, "3", "s", Client, 80, 90, "a"), Some(5)),
            span(n, "w", "3", Server, 82, 88, "b"),
        ]
    });
    assert_eq!(table(&closed.edges, &["network_us"]), of(&[("1", &["-1"]), ("2", &["-1"]), ("3", &["5"])]));
    assert_eq!(table(&closed.calls, &["exclusive_us"])["s"], ["30"]);
}

#[test]
fn parents_in_a_circle_and_missing_ones_end_no_search_and_are_told() {
    let (closed, mut worker) = closed(|n| {
        vec![
            span(n, "x", "y", Internal, 0, 1, "a"),
            span(n, "y", "x", Internal, 0, 1, "a"),
            span(n, "c", "x", Client, 0, 1, "a"),
            span(n, "o", "o", Server, 0, 1, "a"),
            span(n, "v", "gone", Server, 0, 9, "b"),
        ]
    });
    assert_eq!(table(&closed.calls, &["source_service"]), of(&[("o", &[""]), ("v", &[""])]));
    let counters = log::counters(&mut worker);
    assert_eq!(
        (counters["entry_with_unknown_parent"], counters["client_span_without_destination_class"]),
        (2, 1)
    );
}

fn rule(template: &str, becomes: &str, kind: RuleKind, from: i64) -> Rule {
    let (template, becomes) = (template.into(), becomes.into());
    Rule { effective_from_ms: from, service: "a".into(), method: String::new(), template, becomes, kind }
}

fn classes_with(rules: Vec<Rule>, templates: &[&str]) -> Vec<String> {
    let mut engine = worker(0, true);
    engine.set_rules(rules);
    let (closed, _) = closed_by(engine, |n| {
        let ids = ["1", "2", "3", "4", "5", "6", "7"];
        let all = ids.iter().zip(templates);
        all.map(|(id, t)| Span { template: n.intern(t), ..span(n, id, "", Server, 0, 1, "a") }).collect()
    });
    table(&closed.calls, &["class"]).into_values().map(|mut row| row.remove(0)).collect()
}

#[test]
fn rules_decide_by_precision_and_only_once_they_are_in_force() {
    use RuleKind::{Bounded, Learned, Merged, Pinned, Retired};
    let rules = vec![
        rule("", "/other", Bounded, 0),
        rule("/x/*", "/x/{id}", Learned, 0),
        rule("/x/special", "/special", Learned, 0),
        rule("/x/y/*", "/late", Pinned, 2_000_000),
        rule("/gone", "/wrong", Merged, 0),
        rule("/gone", "", Retired, 10),
        rule("/kept", "/kept", Pinned, 0),
    ];
    let found = classes_with(rules, &["/x/1a", "/x/special", "/x/y/z", "/gone", "/kept"]);
    assert_eq!(found, ["a GET /x/{id}", "a GET /special", "a GET /other", "a GET /other", "a GET /kept"]);
}

/// A template that has its own rule keeps it when a pattern that also matches merges with another.
/// A rule of an operator decides first.
#[test]
fn a_rule_for_one_template_is_before_a_pattern_of_any_kind() {
    use RuleKind::{Learned, Merged, Pinned};
    let rules = vec![
        rule("/*/*", "/{id}/{id2}", Merged, 0),
        rule("/users/*", "/users/{id}", Learned, 0),
        rule("/users/me", "/users/me", Learned, 0),
        rule("/pins/*", "/pinned", Pinned, 0),
        rule("/pins/one", "/one", Learned, 0),
    ];
    let found = classes_with(rules, &["/users/me", "/users/x", "/accounts/x", "/pins/one"]);
    assert_eq!(found, ["a GET /users/me", "a GET /users/{id}", "a GET /{id}/{id2}", "a GET /pinned"]);
}

/// A rule whose result is not a valid class changes nothing, and its requests are still counted.
#[test]
fn a_rule_that_gives_no_template_changes_nothing() {
    let rules = vec![rule("/x", "no template", RuleKind::Pinned, 0)];
    assert_eq!(classes_with(rules, &["/x"]), ["a GET /x"]);
}

#[test]
fn of_templates_that_no_rule_names_the_most_frequent_of_a_tick_stay() {
    let rules = vec![rule("/ruled", "/ruled", RuleKind::Learned, 0)];
    let found = classes_with(rules, &["/c", "/b", "/b", "/d", "/a", "/ruled", "/ruled"]);
    let other = "a GET /other";
    assert_eq!(found, [other, "a GET /b", "a GET /b", other, "a GET /a", "a GET /ruled", "a GET /ruled"]);
}

#[test]
fn arrivals_are_summed_by_the_second_of_their_end_for_the_partition_of_their_service() {
    let mut worker = worker(0, true);
    worker.message(0, 1_000_000, true, |n, out, _| {
        let weighted = |span: Span| Span { adjusted_count: 3.0, arrival_rate: 2.0, in_flight: 4, ..span };
        out.push(weighted(span(n, "1", "", Server, 900_000, 1_100_000, "a")));
        out.push(Span { in_flight: 1, ..span(n, "2", "", Server, 1_000_000, 1_200_000, "a") });
        out.push(span(n, "3", "2", Client, 0, 1, "a"));
    });
    let batch = worker.arrivals();
    let [row] = &log::rows(&batch)[..] else { panic!("one row: {batch:?}") };
    for (name, value) in [
        ("at", "1700000001"),
        ("newest_us", "1700000001200000"),
        ("cluster", "c1"),
        ("service", "a"),
        ("class", "a GET /a"),
        ("entry", "1"),
        ("calls", "4.0"),
        ("failed", "0.0"),
        ("ok", "4.0"),
        ("duration_ok_ms", "800.0"),
        ("stamped", "4.0"),
        ("in_flight", "13.0"),
        ("rate", "6.0"),
        ("class_stamped", "0.0"),
    ] {
        assert_eq!(row[name], value, "{name}");
    }
    assert_eq!(worker.arrivals().rows, 0);
}

/// A stamp counts the request itself as in flight. A rate of 0 in a stamp was measured, and counts
/// in means. An unstamped span beside stamped ones is another span of the same request.
#[test]
fn a_rate_of_nothing_is_a_rate() {
    let mut worker = worker(0, true);
    worker.message(0, 1_000_000, true, |names, out, _| {
        let mut plain = span(names, "a", "", Server, 0, 10, "a");
        for rate in [0.0, 4.0] {
            (plain.in_flight, plain.arrival_rate) = (2, rate);
            (plain.class_in_flight, plain.class_arrival_rate) = (1, rate);
            out.push(plain.clone());
        }
    });
    let rows = log::rows(&worker.arrivals());
    assert_eq!(rows.len(), 1);
    for (sum, value) in [("calls", 2), ("stamped", 2), ("in_flight", 4), ("rate", 4), ("class_stamped", 2)] {
        assert_eq!(rows[0][sum], format!("{value}.0"), "{sum}");
    }
}
