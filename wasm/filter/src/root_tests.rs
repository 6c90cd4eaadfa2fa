//! Tests of the shell with a fake proxy, driven in the way Envoy drives it.
#![allow(clippy::unwrap_used)]

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::metrics::v1::{ResourceMetrics, metric::Data, number_data_point};
use spillway_filter_core::request::property::Property;

use super::*;
use crate::fake::Fake;
use proxy_wasm::types::MapType;

const INBOUND: &str = r#"{"direction": "inbound", "edge": false, "cluster": "east", "service": "cart"}"#;
const OUTBOUND: &str = r#"{"direction": "outbound", "cluster": "west", "service": "front"}"#;
const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

fn configured(configuration: &str) -> (Root<Fake>, Fake) {
    let fake = Fake::new(configuration);
    let mut root = Root::new(fake.clone());
    assert!(root.configure(), "{:?}", fake.0.logged.borrow());
    (root, fake)
}

fn arrive(root: &Root<Fake>, fake: &Fake, context: u32) -> Stream<Fake> {
    let lines = [(":method", "GET"), (":path", "/users/1"), ("traceparent", TRACE)];
    fake.0.set_headers(MapType::HttpRequestHeaders, &lines);
    fake.0.set_property(Property::RouteName.path(), b"cart GET /users/{id}");
    let stream = root.stream(context);
    stream.request_headers(true);
    stream
}

fn answered(fake: &Fake, stream: &Stream<Fake>) {
    fake.0.set_headers(MapType::HttpResponseHeaders, &[(":status", "200")]);
    stream.response_headers(true);
}

/// A complete request has its headers rewritten, is counted in and out, and its span is sent once.
#[test]
fn a_request_leaves_one_span() {
    let (mut root, fake) = configured(INBOUND);
    let stream = arrive(&root, &fake, 2);
    assert_eq!(fake.0.stat("spillway_inbound_in_flight"), Some(1));
    assert_eq!(fake.0.stat("spillway_inbound_class_in_flight.class.cart GET /users/{id}"), Some(1));
    fake.0.advance_ms(30);
    answered(&fake, &stream);
    stream.log();
    stream.close();
    assert_eq!(fake.0.stat("spillway_inbound_in_flight"), Some(0));
    fake.0.advance_ms(1_000);
    root.tick();
    let spans = fake.0.spans();
    assert_eq!(spans.len(), 1);
    assert_eq!(spans[0].name, "GET /users/{id}");
    assert_eq!(spans[0].end_time_unix_nano - spans[0].start_time_unix_nano, 30_000_000);
    let edits = fake.0.edits.borrow();
    let names: Vec<&str> = edits.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["traceparent", "x-spillway-service-time-us", "x-spillway-cluster"]);
    root.answered(fake.0.span_calls()[0], 0, 0);
    root.tick();
    assert_eq!(fake.0.stat("spillway_spans_sent"), Some(1));
}

/// If the proxy returns no headers and no properties, the request still gets a span and nothing
/// fails.
#[test]
fn nothing_is_needed_of_the_proxy() {
    let (root, fake) = configured(OUTBOUND);
    let stream = root.stream(2);
    stream.request_headers(false);
    stream.response_headers(false);
    stream.log();
    fake.0.advance_ms(1_000);
    root.tick();
    assert_eq!(fake.0.spans().len(), 1);
}

/// Callbacks that are missing, repeated or unexpected for a stream change nothing.
#[test]
fn callbacks_out_of_order_are_survived() {
    let (mut root, fake) = configured(INBOUND);
    let stream = root.stream(2);
    answered(&fake, &stream);
    stream.log();
    stream.close();
    let stream = arrive(&root, &fake, 4);
    stream.request_headers(true);
    stream.log();
    stream.log();
    stream.close();
    root.answered(99, 0, 10);
    root.answered(99, 14, 0);
    assert_eq!(fake.0.stat("spillway_inbound_in_flight"), Some(0));
    assert_eq!(fake.0.done.get(), 0);
}

/// A request whose context is deleted without a log entry no longer counts as load.
#[test]
fn an_abandoned_request_is_counted_out() {
    let (root, fake) = configured(INBOUND);
    let stream = arrive(&root, &fake, 2);
    stream.close();
    assert_eq!(fake.0.stat("spillway_inbound_in_flight"), Some(0));
}

/// A context does nothing if its root was never configured, or if Envoy calls it from within a
/// callback.
#[test]
fn contexts_without_a_worker_continue() {
    let fake = Fake::new("{}");
    let mut root = Root::new(fake.clone());
    assert!(!root.configure());
    assert!(fake.0.logged.borrow()[0].contains("cluster: missing"));
    root.tick();
    arrive(&root, &fake, 2).log();
    assert!(root.close());

    let (root, fake) = configured(INBOUND);
    let worker = root.worker.clone().unwrap();
    let _held = worker.borrow_mut();
    arrive(&root, &fake, 2).log();
    assert_eq!(fake.0.stat("spillway_inbound_arrivals"), Some(0));
}

/// A batch that the proxy refuses is tried once more, then counted as dropped.
#[test]
fn refused_exports_are_counted() {
    let (root, fake) = configured(INBOUND);
    fake.0.refuses_calls.set(true);
    arrive(&root, &fake, 2).log();
    for _ in 0..3 {
        fake.0.advance_ms(1_000);
        root.tick();
    }
    assert_eq!(fake.0.stat("spillway_spans_dropped_export_failed"), Some(1));
    assert_eq!(fake.0.stat("spillway_callout_failures"), Some(2));
}

/// A failed call is repeated. Spans that the collector rejects are not counted as sent.
#[test]
fn answers_are_accounted_for() {
    let (mut root, fake) = configured(INBOUND);
    arrive(&root, &fake, 2).log();
    arrive(&root, &fake, 4).log();
    fake.0.advance_ms(1_000);
    root.tick();
    root.answered(fake.0.span_calls()[0], 14, 0);
    fake.0.advance_ms(1_000);
    root.tick();
    // ExportTraceServiceResponse {partial_success {rejected_spans = 1}}
    *fake.0.answer.borrow_mut() = vec![0x0a, 0x02, 0x08, 0x01];
    root.answered(fake.0.span_calls()[1], 0, 4);
    root.tick();
    assert_eq!(fake.0.stat("spillway_spans_sent"), Some(1));
    assert_eq!(fake.0.stat("spillway_spans_dropped_rejected"), Some(1));
    assert_eq!(fake.0.stat("spillway_callout_failures"), Some(1));
}

/// A closing root context stays until its spans are answered, and is released exactly once.
#[test]
fn a_closing_root_waits_for_answers() {
    let (mut root, fake) = configured(INBOUND);
    arrive(&root, &fake, 2).log();
    assert!(!root.close());
    assert!(fake.0.logged.borrow()[0].contains("closing, 1 spans are not yet accepted"));
    root.tick();
    root.answered(1, 0, 0);
    root.answered(1, 0, 0);
    assert_eq!((fake.0.done.get(), fake.0.stat("spillway_spans_sent")), (1, Some(1)));

    let (mut root, fake) = configured(INBOUND);
    fake.0.refuses_calls.set(true);
    arrive(&root, &fake, 2).log();
    assert!(root.close());
    assert_eq!(fake.0.stat("spillway_spans_dropped"), Some(1));
}

/// A request that outlives the limit of a call no longer counts as load, and leaves no span.
#[test]
fn a_long_lived_stream_leaves_the_gauges() {
    let (root, fake) = configured(INBOUND);
    let stream = arrive(&root, &fake, 2);
    fake.0.advance_ms(61_000);
    root.tick();
    assert_eq!(fake.0.stat("spillway_inbound_in_flight"), Some(0));
    stream.log();
    fake.0.advance_ms(1_000);
    root.tick();
    assert_eq!(fake.0.stat("spillway_inbound_long_lived"), Some(1));
    assert!(fake.0.spans().is_empty());
}

/// Requests in the last totals: class, whether no service of the mesh made them, and count, sorted
/// by class.
fn requests(fake: &Fake) -> Vec<(String, bool, i64)> {
    let last = fake.0.totals().pop().unwrap();
    let Some(Data::Sum(sum)) = last.resource_metrics[0].scope_metrics[0].metrics[0].data.clone() else {
        panic!()
    };
    let mut out: Vec<_> = sum
        .data_points
        .iter()
        .map(|point| {
            let of = |key: &str| {
                let found = point.attributes.iter().find(|pair| pair.key == key)?;
                found.value.clone()?.value
            };
            let class = match of("spillway.class") {
                Some(Value::StringValue(class)) => class,
                _ => String::new(),
            };
            let Some(number_data_point::Value::AsInt(count)) = point.value else { panic!() };
            (class, of("spillway.entry") == Some(Value::BoolValue(true)), count)
        })
        .collect();
    out.sort();
    out
}

/// Totals are sent once a second even if nothing happened. They count a request by its class and
/// its caller.
#[test]
fn totals_are_sent_every_second() {
    let (root, fake) = configured(INBOUND);
    fake.0.advance_ms(1_000);
    root.tick();
    assert_eq!(requests(&fake), [(String::new(), false, 0), (String::new(), true, 0)]);
    root.tick();
    assert_eq!(fake.0.totals().len(), 1);
    let resource = fake.0.totals()[0].resource_metrics[0].resource.clone().unwrap();
    assert_eq!(resource.attributes[2].key, "service.instance.id");

    arrive(&root, &fake, 2).log();
    let lines = [(":method", "GET"), ("x-spillway-source-service", "front")];
    fake.0.set_headers(MapType::HttpRequestHeaders, &lines);
    root.stream(4).request_headers(true);
    fake.0.advance_ms(1_000);
    let mut root = root;
    root.answered(1, 0, 0);
    root.tick();
    let class = "cart GET /users/{id}".to_string();
    let classless = [(String::new(), false, 0), (String::new(), true, 0)];
    assert_eq!(
        requests(&fake),
        [classless.to_vec(), vec![(class.clone(), false, 1), (class, true, 1)]].concat()
    );
}

/// One of several workers sends the totals, which include classes that only other workers have met.
#[test]
fn one_worker_sends_for_all() {
    let (worker, fake) = configured(INBOUND);
    let mut other_worker = Root::new(fake.clone());
    assert!(other_worker.configure());
    arrive(&worker, &fake, 2).log();
    fake.0.advance_ms(1_000);
    other_worker.tick();
    worker.tick();
    assert_eq!(fake.0.totals().len(), 1);
    assert_eq!(requests(&fake).iter().map(|(_, _, count)| count).sum::<i64>(), 1);
}

/// When the load doubles, totals are sent at once. With them come those of the moment of the change.
#[test]
fn totals_are_sent_early_when_the_load_has_changed() {
    let (mut root, fake) = configured(INBOUND);
    let mut context = 2;
    let mut tick = |root: &mut Root<Fake>, requests: usize| {
        for _ in 0..requests {
            let stream = arrive(root, &fake, context);
            stream.log();
            stream.close();
            context += 2;
        }
        fake.0.advance_ms(100);
        root.tick();
        (1..context).for_each(|token| root.answered(token, 0, 0));
    };
    (0..50).for_each(|_| tick(&mut root, 6));
    let steady = fake.0.totals().len();
    assert!((5..=6).contains(&steady), "{steady} exports in 5 s");
    (0..5).for_each(|_| tick(&mut root, 13));
    let sent = fake.0.totals();
    let early: Vec<_> =
        sent.iter().skip(steady).filter(|export| export.resource_metrics.len() == 2).collect();
    let [first, ..] = early.as_slice() else { panic!("{} exports, none of two moments", sent.len()) };
    let counts: Vec<i64> = first.resource_metrics.iter().map(total).collect();
    assert!(counts.first() == Some(&300) && counts.get(1) > Some(&300), "{counts:?}");
}

/// All requests that a proxy's totals count.
fn total(totals: &ResourceMetrics) -> i64 {
    let Some(Data::Sum(sum)) = totals.scope_metrics[0].metrics[0].data.clone() else { panic!() };
    let counts = sum.data_points.iter().map(|point| match point.value {
        Some(number_data_point::Value::AsInt(count)) => count,
        _ => panic!(),
    });
    counts.sum()
}

/// Totals that fail are counted, and at most one call is in flight.
#[test]
fn failed_totals_are_counted() {
    let (mut root, fake) = configured(INBOUND);
    fake.0.refuses_calls.set(true);
    fake.0.advance_ms(1_000);
    root.tick();
    fake.0.refuses_calls.set(false);
    for _ in 0..3 {
        fake.0.advance_ms(1_000);
        root.tick();
    }
    assert_eq!(fake.0.totals().len(), 1);
    root.answered(1, 4, 0);
    fake.0.advance_ms(1_000);
    root.tick();
    assert_eq!((fake.0.totals().len(), fake.0.stat("spillway_totals_failures")), (2, Some(2)));
}

/// A proxy without a node id is rejected, because its totals could not be distinguished from
/// another's.
#[test]
fn a_proxy_without_a_node_id_is_refused() {
    let fake = Fake::new(INBOUND);
    fake.0.set_property(&["xds", "node", "id"], b"");
    assert!(!Root::new(fake.clone()).configure());
    assert!(fake.0.logged.borrow()[0].contains("node.id: missing"));
}

/// A proxy that defines no stats is rejected at start, and the log states the reason.
#[test]
fn a_proxy_without_stats_is_refused() {
    let fake = Fake::new(INBOUND);
    fake.0.refuses_stats.set(true);
    assert!(!Root::new(fake.clone()).configure());
    assert!(fake.0.logged.borrow()[0].contains("the proxy defines no stats"));
}
