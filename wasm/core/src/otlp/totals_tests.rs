use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value::Value};
use opentelemetry_proto::tonic::metrics::v1::{Metric, Sum, metric::Data, number_data_point};
use prost::Message;

use super::*;
use crate::config::Config;
use crate::otlp::envelope::Envelope;

const PERIOD: Period = Period { began_ns: 1_700_000_000_000_000_000, now_ns: 1_700_000_060_000_000_000 };

fn export() -> ExportMetricsServiceRequest {
    let config =
        Config::parse(br#"{"direction": "inbound", "edge": false, "cluster": "west", "service": "cart"}"#)
            .unwrap();
    let class = Some("cart GET /users/{id}");
    let requests = [
        Requests { class: None, entry: true, count: 0 },
        Requests { class: None, entry: false, count: 3 },
        Requests { class, entry: true, count: 1_000 },
        Requests { class, entry: false, count: 200 },
    ];
    let spans = Spans { finished: 1_203, sent: 1_100, dropped: 100 };
    let metrics = metrics(PERIOD, requests.into_iter(), Some(spans));
    let bytes = Envelope::new(&config, "west/cart/cart-1", VALUE_TOTALS_SCOPE).wrap(&metrics);
    ExportMetricsServiceRequest::decode(bytes.as_slice()).unwrap()
}

fn values(pairs: &[KeyValue]) -> Vec<(String, Value)> {
    pairs.iter().map(|pair| (pair.key.clone(), pair.value.clone().unwrap().value.unwrap())).collect()
}

fn sum(metric: &Metric) -> &Sum {
    match metric.data.as_ref().unwrap() {
        Data::Sum(sum) => sum,
        other => panic!("{other:?}"),
    }
}

/// The published types decode names, units, cumulative monotonic sums, period and attributes. Zeros
/// are written as zeros.
#[test]
fn totals_are_cumulative_sums() {
    let request = export();
    let [group] = request.resource_metrics.as_slice() else { panic!() };
    let resource = values(&group.resource.as_ref().unwrap().attributes);
    let text = |key: &str, value: &str| (key.to_string(), Value::StringValue(value.to_string()));
    assert_eq!(
        resource,
        [
            text("service.name", "cart"),
            text("spillway.cluster", "west"),
            text("service.instance.id", "west/cart/cart-1")
        ]
    );
    let [scope] = group.scope_metrics.as_slice() else { panic!() };
    assert_eq!(scope.scope.as_ref().unwrap().name, "spillway.filter");
    let [requests, spans] = scope.metrics.as_slice() else { panic!() };
    assert_eq!((requests.name.as_str(), requests.unit.as_str()), ("spillway.requests", "{request}"));
    assert_eq!((spans.name.as_str(), spans.unit.as_str()), ("spillway.spans", "{span}"));
    for metric in [requests, spans] {
        assert_eq!((sum(metric).aggregation_temporality, sum(metric).is_monotonic), (2, true));
        for point in &sum(metric).data_points {
            assert_eq!((point.start_time_unix_nano, point.time_unix_nano), (PERIOD.began_ns, PERIOD.now_ns));
        }
    }
    let counts = |metric: &Metric| -> Vec<_> {
        sum(metric)
            .data_points
            .iter()
            .map(|point| (values(&point.attributes), point.value.unwrap()))
            .collect()
    };
    let entry = |entry| ("spillway.entry".to_string(), Value::BoolValue(entry));
    let class = || text("spillway.class", "cart GET /users/{id}");
    let count = number_data_point::Value::AsInt;
    assert_eq!(
        counts(requests),
        [
            (vec![entry(true)], count(0)),
            (vec![entry(false)], count(3)),
            (vec![class(), entry(true)], count(1_000)),
            (vec![class(), entry(false)], count(200)),
        ]
    );
    let outcome = |name| vec![text("spillway.outcome", name)];
    assert_eq!(
        counts(spans),
        [
            (outcome("finished"), count(1_203)),
            (outcome("sent"), count(1_100)),
            (outcome("dropped"), count(100))
        ]
    );
}

/// The golden file matches the current output, apart from the filter's version. The tests of the
/// totals decoder use this file. `SPILLWAY_WRITE_GOLDEN=1 cargo test` writes it anew.
#[test]
fn golden_totals_are_fresh() {
    let mut request = export();
    for scope in request.resource_metrics.iter_mut().flat_map(|group| &mut group.scope_metrics) {
        scope.scope.as_mut().unwrap().version.clear();
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../contracts/golden/filter_totals.binpb");
    if std::env::var_os("SPILLWAY_WRITE_GOLDEN").is_some() {
        std::fs::write(path, request.encode_to_vec()).unwrap();
    }
    assert_eq!(std::fs::read(path).unwrap(), request.encode_to_vec(), "stale: {path}");
}
