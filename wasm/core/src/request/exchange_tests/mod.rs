//! Exchanges with a fake proxy: helpers of the tests.

mod contents;
mod outcomes;
mod times;
mod without_a_span;

use std::collections::HashMap;

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;

use super::*;
use crate::context::ids::Ids;
use crate::context::sampling::Sampler;

const MS: u64 = 1_000_000;
const HEADER_BYTES: u64 = 300;

/// Properties with the values that the proxy would return.
#[derive(Default)]
struct Fake(HashMap<Property, Vec<u8>>);

impl Fake {
    fn with(mut self, property: Property, value: &[u8]) -> Self {
        self.0.insert(property, value.to_vec());
        self
    }

    fn number(self, property: Property, value: u64) -> Self {
        self.with(property, &value.to_le_bytes())
    }
}

impl Properties for Fake {
    fn get(&mut self, property: Property) -> Option<&[u8]> {
        self.0.get(&property).map(Vec::as_slice)
    }

    fn request_header_bytes(&mut self) -> Option<u64> {
        Some(HEADER_BYTES)
    }
}

fn config(direction: &str) -> Config {
    let edge = if direction == "inbound" { r#""edge": false,"# } else { "" };
    let json = format!(r#"{{"direction": "{direction}", {edge} "cluster": "one", "service": "front"}}"#);
    Config::parse(json.as_bytes()).unwrap()
}

fn pairs<'a>(headers: &'a [(&'a str, &'a str)]) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
    headers.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()))
}

fn arrive(config: &Config, extra: &[(&str, &str)]) -> Exchange {
    arrive_as(config, extra, true)
}

fn arrive_with_body(config: &Config, extra: &[(&str, &str)]) -> Exchange {
    arrive_as(config, extra, false)
}

fn arrive_as(config: &Config, extra: &[(&str, &str)], end_of_stream: bool) -> Exchange {
    let mut all = vec![(":method", "GET"), (":path", "/users/7?q=1"), (":authority", "cart")];
    all.retain(|(name, _)| !extra.iter().any(|(other, _)| other == name));
    all.extend_from_slice(extra);
    let headers = RequestHeaders::read(pairs(&all));
    let sampler = Sampler::new(1.0);
    let trace = TraceContext::read(&headers.trace, &sampler, &mut Ids::from_weak_seed(9));
    let now = Moment { wall_ns: 5_000 * MS, mono_ns: 100 * MS };
    let arriving = Arriving {
        now,
        headers: &headers,
        caller: Caller::of(config, &headers, None),
        end_of_stream,
        class: crate::metering::class::of_route("cart GET /users/{id}"),
        loads: None,
        buffer: Vec::new(),
    };
    Exchange::arrive(config, &trace, arriving)
}

fn respond(exchange: &mut Exchange, config: &Config, at_ms: u64, headers: &[(&str, &str)]) {
    exchange.respond(config, at_ms * MS, &ResponseHeaders::read(pairs(headers)), false);
}

/// A finished span, with its attributes as text.
struct Finished {
    span: Span,
    attributes: HashMap<String, String>,
}

fn finish(exchange: Exchange, config: &Config, at_ms: u64, mut fake: Fake) -> Option<Finished> {
    let span = Span::decode(exchange.finish(config, at_ms * MS, &mut fake)?.as_slice()).unwrap();
    let text = |value: Value| match value {
        Value::StringValue(text) => text,
        Value::IntValue(number) => number.to_string(),
        other => format!("{other:?}"),
    };
    let attributes =
        span.attributes.iter().map(|p| (p.key.clone(), text(p.value.clone().unwrap().value.unwrap())));
    let recorded = attributes.collect::<HashMap<_, _>>();
    assert_eq!(recorded.len(), span.attributes.len(), "a repeated attribute: {:?}", span.attributes);
    Some(Finished { attributes: recorded, span })
}

impl Finished {
    fn get(&self, key: &str) -> Option<&str> {
        self.attributes.get(key).map(String::as_str)
    }

    fn failed(&self) -> bool {
        self.span.status.as_ref().is_some_and(|status| status.code == 2)
    }
}

fn routed() -> Fake {
    Fake::default()
        .with(Property::ClusterName, b"cart|two")
        .with(Property::RulesetVersion, &3f64.to_le_bytes())
        .with(Property::Protocol, b"HTTP/1.1")
        .number(Property::AttemptCount, 1)
        .number(Property::ResponseSize, 77)
}

fn edits(
    tell: impl FnOnce(&mut dyn FnMut(&'static str, Option<&str>)),
) -> HashMap<&'static str, Option<String>> {
    let mut all = HashMap::new();
    tell(&mut |name, value| {
        all.insert(name, value.map(str::to_string));
    });
    all
}
