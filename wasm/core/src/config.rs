//! The filter's plugin configuration: one JSON object. All errors are reported together.

use serde_json::{Map, Value};
use spillway_contracts::{VALUE_DIRECTION_INBOUND, VALUE_DIRECTION_OUTBOUND};

use crate::Direction;
use crate::export::outbox::Bounds;
use crate::request::caller::Pattern;
use crate::request::message::is_ascii_message;

/// Longest DNS name, in characters.
const NAME_MAX: usize = 253;
/// Smallest non-zero sampling ratio. Readers do not believe a span that claims to stand for more
/// than 2^20 requests, and count it once.
const LEAST_RATIO: f64 = 1e-6;

const KEYS: [&str; 13] = [
    "direction",
    "cluster",
    "service",
    "edge",
    "peer_identity",
    "collector_cluster",
    "flush_interval_ms",
    "max_batch_spans",
    "max_batch_bytes",
    "max_queue_spans",
    "max_queue_bytes",
    "sample_ratio",
    "long_lived_after_ms",
];

/// The filter's configuration, read once at start.
///
/// `tools/box_tables.py` makes the table of REFERENCE.md: the fields' documentation is the meaning,
/// `parse` has keys, defaults and limits.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The side of the application on which this listener is, `inbound` or `outbound`.
    pub direction: Direction,
    /// Cluster of this proxy, as in the topology: letters, digits, `.`, `_`, `-`; it starts with a
    /// letter or digit.
    pub cluster: String,
    /// Service of this proxy, a name like that of the cluster.
    pub service: String,
    /// Inbound only: `true` where users call this service, so that the filter believes nothing that
    /// a request says about itself, else `false`.
    pub edge: bool,
    /// Inbound only: pattern of the URIs in callers' certificates, e.g.
    /// `spiffe://spillway.local/cluster/{cluster}/service/{service}`. Without it, headers name the
    /// callers.
    pub peer_identity: Option<Pattern>,
    /// Name of the collector's Envoy cluster (OTLP over gRPC).
    pub collector_cluster: String,
    /// Longest time that a span waits for its batch to fill.
    pub flush_interval_ms: u64,
    /// Limits of a batch and of each worker's queue. A full queue drops its oldest batch.
    pub bounds: Bounds,
    /// Ratio of the traces started here that are kept.
    pub sample_ratio: f64,
    /// A request that lasts longer is a stream, not a call. It is counted, but contributes no latency
    /// and no load.
    pub long_lived_after_ms: u64,
}

impl Config {
    /// Parses the JSON object. The error names every wrong key with its value and the allowed
    /// values.
    pub fn parse(json: &[u8]) -> Result<Self, String> {
        let value: Value = serde_json::from_slice(json).map_err(|error| format!("not JSON: {error}"))?;
        let Value::Object(map) = value else {
            return Err(format!("must be a JSON object with the keys {}", KEYS.join(", ")));
        };
        let mut keys = Keys { map, errors: Vec::new() };
        keys.refuse_unknown();
        let config = Self {
            direction: keys.direction(),
            cluster: keys.name("cluster", None),
            service: keys.name("service", None),
            edge: keys.edge(),
            peer_identity: keys.peer_identity(),
            collector_cluster: keys.collector_cluster(),
            flush_interval_ms: keys.number("flush_interval_ms", 1_000, 10..=60_000),
            bounds: Bounds {
                batch_spans: keys.number("max_batch_spans", 512, 1..=65_536) as usize,
                batch_bytes: keys.number("max_batch_bytes", 1 << 19, 1 << 14..=1 << 22) as usize,
                queue_spans: keys.number("max_queue_spans", 8_192, 1..=1 << 20) as usize,
                queue_bytes: keys.number("max_queue_bytes", 1 << 23, 1 << 14..=1 << 30) as usize,
            },
            sample_ratio: keys.ratio("sample_ratio", 1.0),
            long_lived_after_ms: keys.number("long_lived_after_ms", 60_000, 1_000..=86_400_000),
        };
        keys.refuse_small_queue(config.bounds);
        if keys.errors.is_empty() { Ok(config) } else { Err(keys.errors.join("; ")) }
    }
}

struct Keys {
    map: Map<String, Value>,
    errors: Vec<String>,
}

impl Keys {
    fn refuse_unknown(&mut self) {
        for key in self.map.keys().filter(|key| !KEYS.contains(&key.as_str())) {
            self.errors.push(format!("{key}: unknown key; keys: {}", KEYS.join(", ")));
        }
    }

    fn refuse_small_queue(&mut self, bounds: Bounds) {
        for (kind, queue, batch) in [
            ("spans", bounds.queue_spans, bounds.batch_spans),
            ("bytes", bounds.queue_bytes, bounds.batch_bytes),
        ] {
            if queue < batch {
                self.errors.push(format!(
                    "max_queue_{kind}: {queue}; must be at least max_batch_{kind}, which is {batch}"
                ));
            }
        }
    }

    fn direction(&mut self) -> Direction {
        match self.map.get("direction").map(|value| (value, value.as_str())) {
            Some((_, Some(VALUE_DIRECTION_INBOUND))) => return Direction::Inbound,
            Some((_, Some(VALUE_DIRECTION_OUTBOUND))) => return Direction::Outbound,
            Some((value, _)) => self.errors.push(format!(
                "direction: {value}; must be {VALUE_DIRECTION_INBOUND:?} or {VALUE_DIRECTION_OUTBOUND:?}"
            )),
            None => self.errors.push(format!(
                "direction: missing; must be {VALUE_DIRECTION_INBOUND:?} or {VALUE_DIRECTION_OUTBOUND:?}"
            )),
        }
        Direction::Inbound
    }

    /// Reads `edge`, which has no default because either value could be wrong.
    ///
    /// With `true`, a service inside the mesh would cut every trace. With `false`, a service that
    /// users call would believe anybody.
    fn edge(&mut self) -> bool {
        match (self.map.get("edge"), self.inbound()) {
            (Some(Value::Bool(edge)), true) => return *edge,
            (None, false) => {}
            (_, false) => self.errors.push("edge: must be absent unless direction is \"inbound\"".to_string()),
            (Some(value), true) => self.errors.push(format!("edge: {value}; must be true or false")),
            (None, true) => self.errors.push(
                "edge: missing; must be true if users call this service, false if only proxies of the mesh call it"
                    .to_string(),
            ),
        }
        false
    }

    fn peer_identity(&mut self) -> Option<Pattern> {
        let value = self.map.get("peer_identity")?;
        let pattern = value.as_str().and_then(Pattern::parse).filter(|_| self.inbound());
        if pattern.is_none() {
            self.errors.push(format!(
                "peer_identity: {value}; must be absent unless direction is \"inbound\", and a pattern such as \
                 \"spiffe://spillway.local/cluster/{{cluster}}/service/{{service}}\""
            ));
        }
        pattern
    }

    fn inbound(&self) -> bool {
        self.map.get("direction").and_then(Value::as_str) == Some(VALUE_DIRECTION_INBOUND)
    }

    fn name(&mut self, key: &str, default: Option<&str>) -> String {
        match (self.map.get(key), default) {
            (None, Some(default)) => return default.to_string(),
            (None, None) => self.errors.push(format!("{key}: missing; it has no default")),
            (Some(Value::String(name)), _) if is_name(name) => return name.clone(),
            (Some(value), _) => self.errors.push(format!(
                "{key}: {value}; must be letters, digits, '.', '_' and '-', and begin with a letter or digit"
            )),
        }
        String::new()
    }

    /// Reads `collector_cluster` and rejects names that Envoy would misread.
    ///
    /// Envoy first parses the name as a `GrpcService` message, and uses it as a cluster name only
    /// if that fails. Most names are not valid messages. A name that is one would be a service
    /// without a target, to which no call is possible.
    fn collector_cluster(&mut self) -> String {
        let name = self.name("collector_cluster", Some("spillway-collector"));
        if !name.is_empty() && is_ascii_message(name.as_bytes()) {
            self.errors.push(format!(
                "collector_cluster: {name:?}; must be another name, such as \"spillway-collector\": Envoy reads this one \
                 as an encoded message"
            ));
        }
        name
    }

    fn number(&mut self, key: &str, default: u64, allowed: std::ops::RangeInclusive<u64>) -> u64 {
        match self.map.get(key) {
            None => return default,
            Some(value) => match value.as_u64() {
                Some(number) if allowed.contains(&number) => return number,
                _ => self.errors.push(format!(
                    "{key}: {value}; must be a whole number from {} to {}",
                    allowed.start(),
                    allowed.end()
                )),
            },
        }
        default
    }

    fn ratio(&mut self, key: &str, default: f64) -> f64 {
        match self.map.get(key) {
            None => return default,
            Some(value) => match value.as_f64() {
                Some(ratio) if ratio == 0.0 || (LEAST_RATIO..=1.0).contains(&ratio) => return ratio,
                _ => self
                    .errors
                    .push(format!("{key}: {value}; must be 0 or a number from {LEAST_RATIO:e} to 1")),
            },
        }
        default
    }
}

/// Whether the text is a valid name of a cluster or service. Also applied to names in headers.
pub fn is_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    name.len() <= NAME_MAX
        && bytes.next().is_some_and(|first| first.is_ascii_alphanumeric())
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
