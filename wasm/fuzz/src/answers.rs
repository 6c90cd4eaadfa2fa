//! Fuzz targets of values that the collector, peers and the proxy's route metadata supply.

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use prost::Message;
use spillway_filter_core::otlp::envelope::rejected_spans;
use spillway_filter_core::request::headers;
use spillway_filter_core::request::property;

/// Any bytes are parsed without failure. For every message that the published type decodes, the
/// number of rejected spans agrees.
pub fn otlp_answer(data: &[u8]) {
    rejected_spans(data);
    let Ok(response) = ExportTraceServiceResponse::decode(data) else { return };
    let rejected = response.partial_success.as_ref().map_or(0, |partial| partial.rejected_spans);
    assert_eq!(rejected_spans(&response.encode_to_vec()), rejected.max(0) as u64);
}

/// A ruleset version is a whole number, encoded as a double or as text.
pub fn ruleset_version(data: &[u8]) {
    let Some(version) = property::ruleset_version(data) else { return };
    let as_double = <[u8; 8]>::try_from(data).map(f64::from_le_bytes);
    let as_text = std::str::from_utf8(data).ok().and_then(|text| text.parse::<u64>().ok());
    assert!(as_double.is_ok_and(|number| number == version as f64) || as_text == Some(version));
}

/// A text of digits is a number, and nothing else is.
pub fn decimal(data: &[u8]) {
    let expected = std::str::from_utf8(data)
        .ok()
        .filter(|text| !text.starts_with('+'))
        .and_then(|text| text.parse().ok());
    assert_eq!(headers::decimal(data), expected);
}
