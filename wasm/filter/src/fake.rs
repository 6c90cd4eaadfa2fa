//! A fake proxy for the tests of the shell. It records what it was asked to do, and fails on
//! demand.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use proxy_wasm::types::{Bytes, LogLevel, MapType, MetricType};

use crate::host::{Call, Host};

const WALL_NS: u64 = 1_700_000_000_000_000_000;

/// State of the fake proxy. A test sets its answers and reads what it recorded.
#[derive(Default)]
pub struct Proxy {
    pub configuration: RefCell<String>,
    pub now_ns: Cell<u64>,
    pub request: RefCell<Vec<(String, Bytes)>>,
    pub response: RefCell<Vec<(String, Bytes)>>,
    pub properties: RefCell<HashMap<String, Bytes>>,
    pub edits: RefCell<Vec<(String, Option<String>)>>,
    pub logged: RefCell<Vec<String>>,
    pub done: Cell<u32>,
    /// Service and message of each accepted call. The index of a call plus 1 is its token.
    pub calls: RefCell<Vec<(String, Bytes)>>,
    pub answer: RefCell<Bytes>,
    pub refuses_calls: Cell<bool>,
    pub refuses_stats: Cell<bool>,
    shared: RefCell<HashMap<String, (Bytes, u32)>>,
    stats: RefCell<Vec<(String, u64)>>,
}

impl Proxy {
    pub fn stat(&self, name: &str) -> Option<u64> {
        self.stats.borrow().iter().find(|(known, _)| known == name).map(|(_, value)| *value)
    }

    pub fn set_headers(&self, map: MapType, lines: &[(&str, &str)]) {
        let lines = lines.iter().map(|(name, value)| (name.to_string(), value.as_bytes().to_vec()));
        *self.map(map).borrow_mut() = lines.collect();
    }

    pub fn set_property(&self, path: &[&str], value: &[u8]) {
        self.properties.borrow_mut().insert(path.join("."), value.to_vec());
    }

    pub fn advance_ms(&self, milliseconds: u64) {
        self.now_ns.set(self.now_ns.get() + milliseconds * 1_000_000);
    }

    /// Spans of all accepted calls to the trace service.
    pub fn spans(&self) -> Vec<Span> {
        let calls = self.calls.borrow();
        let traces = calls.iter().filter(|(service, _)| service.ends_with("TraceService"));
        let requests = traces.map(|(_, message)| ExportTraceServiceRequest::decode(message.as_slice()));
        let groups = requests.flat_map(|request| request.unwrap().resource_spans);
        groups.flat_map(|group| group.scope_spans).flat_map(|scope| scope.spans).collect()
    }

    /// All exports of totals, oldest first.
    pub fn totals(&self) -> Vec<ExportMetricsServiceRequest> {
        let calls = self.calls.borrow();
        let totals = calls.iter().filter(|(service, _)| service.ends_with("MetricsService"));
        totals.map(|(_, message)| ExportMetricsServiceRequest::decode(message.as_slice()).unwrap()).collect()
    }

    /// Tokens of the calls to the trace service, oldest first.
    pub fn span_calls(&self) -> Vec<u32> {
        let calls = self.calls.borrow();
        let tokens = calls.iter().zip(1..).filter(|((service, _), _)| service.ends_with("TraceService"));
        tokens.map(|(_, token)| token).collect()
    }

    fn map(&self, map: MapType) -> &RefCell<Vec<(String, Bytes)>> {
        if map == MapType::HttpResponseHeaders { &self.response } else { &self.request }
    }
}

/// A handle of the fake proxy, as contexts hold it.
#[derive(Clone, Default)]
pub struct Fake(pub Rc<Proxy>);

impl Fake {
    /// Creates a proxy with the given configuration (JSON).
    pub fn new(configuration: &str) -> Self {
        let fake = Self::default();
        *fake.0.configuration.borrow_mut() = configuration.to_string();
        fake.0.set_property(&["xds", "node", "id"], b"one/cart/cart-1");
        fake
    }
}

impl Host for Fake {
    fn wall_ns(&self) -> u64 {
        WALL_NS + self.0.now_ns.get()
    }

    fn mono_ns(&self) -> u64 {
        self.0.now_ns.get()
    }

    fn random(&self, bytes: &mut [u8]) -> bool {
        bytes.fill(7);
        true
    }

    fn log(&self, _: LogLevel, message: &str) {
        self.0.logged.borrow_mut().push(message.to_string());
    }

    fn configuration(&self) -> Bytes {
        self.0.configuration.borrow().clone().into_bytes()
    }

    fn tick_every(&self, _: u64) {}

    fn done(&self) {
        self.0.done.set(self.0.done.get() + 1);
    }

    fn headers(&self, map: MapType) -> Vec<(String, Bytes)> {
        self.0.map(map).borrow().clone()
    }

    fn edit(&self, _: MapType, name: &str, value: Option<&str>) {
        self.0.edits.borrow_mut().push((name.to_string(), value.map(str::to_string)));
    }

    fn property(&self, path: &[&str]) -> Option<Bytes> {
        self.0.properties.borrow().get(&path.join(".")).cloned()
    }

    fn shared(&self, key: &str) -> Option<(Bytes, u32)> {
        Some(self.0.shared.borrow().get(key).cloned().unwrap_or_default())
    }

    fn share(&self, key: &str, value: &[u8], version: u32) -> bool {
        let mut shared = self.0.shared.borrow_mut();
        let (held, held_version) = shared.entry(key.to_string()).or_default();
        let current = *held_version == version;
        if current {
            (*held, *held_version) = (value.to_vec(), version + 1);
        }
        current
    }

    fn define_metric(&self, _: MetricType, name: &str) -> Option<u32> {
        if self.0.refuses_stats.get() {
            return None;
        }
        let mut stats = self.0.stats.borrow_mut();
        let at = stats.iter().position(|(known, _)| known == name).unwrap_or_else(|| {
            stats.push((name.to_string(), 0));
            stats.len() - 1
        });
        u32::try_from(at).ok()
    }

    fn increment_metric(&self, id: u32, offset: i64) {
        if let Some((_, value)) = self.0.stats.borrow_mut().get_mut(id as usize) {
            *value = value.checked_add_signed(offset).unwrap();
        }
    }

    fn metric(&self, id: u32) -> Option<u64> {
        self.0.stats.borrow().get(id as usize).map(|(_, value)| *value)
    }

    fn grpc_call(&self, call: Call<'_>) -> Option<u32> {
        if self.0.refuses_calls.get() {
            return None;
        }
        let mut calls = self.0.calls.borrow_mut();
        calls.push((call.service.to_string(), call.message.to_vec()));
        u32::try_from(calls.len()).ok()
    }

    fn grpc_answer(&self, size: usize) -> Bytes {
        self.0.answer.borrow().get(..size).unwrap_or_default().to_vec()
    }
}
