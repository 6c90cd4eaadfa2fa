//! Helpers that both measurements share.

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};

pub fn text(key: &str, value: impl Into<String>) -> KeyValue {
    pair(key, Value::StringValue(value.into()))
}

pub fn int(key: &str, value: u64) -> KeyValue {
    pair(key, Value::IntValue(value as i64))
}

pub fn pair(key: &str, value: Value) -> KeyValue {
    KeyValue { key: key.into(), value: Some(AnyValue { value: Some(value) }) }
}

/// CPU time of this thread in nanoseconds. Only Linux reports it. Elsewhere the wall clock is used
/// instead.
pub fn now_ns() -> f64 {
    let statistics = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let on_cpu = statistics.and_then(|text| text.split(' ').next()?.parse().ok());
    let since_epoch = || std::time::UNIX_EPOCH.elapsed().map_or(0.0, |time| time.as_nanos() as f64);
    on_cpu.unwrap_or_else(since_epoch)
}
