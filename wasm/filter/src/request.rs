//! One request, from its headers to its end.

use proxy_wasm::types::{Bytes, MapType};
use spillway_filter_core::context::trace::TraceContext;
use spillway_filter_core::metering::class;
use spillway_filter_core::request::caller::Caller;
use spillway_filter_core::request::exchange::{Arriving, Exchange, source_edits};
use spillway_filter_core::request::headers::{RequestHeaders, ResponseHeaders};
use spillway_filter_core::request::property::Property;

use crate::host::{Asked, Host};
use crate::load::Share;
use crate::plugin::Plugin;

/// A request in progress.
pub struct Request {
    exchange: Exchange,
    /// The request's share of the gauges. None once the request no longer counts as load.
    share: Option<Share>,
}

/// Pool of span buffers that requests reuse.
#[derive(Default)]
pub struct Spare(Vec<Vec<u8>>);

/// Largest number of pooled buffers. Further concurrent requests allocate their own.
const SPARE_BUFFERS: usize = 64;
const SPAN_BYTES: usize = 1_024;

impl Spare {
    fn take(&mut self) -> Vec<u8> {
        self.0.pop().unwrap_or_else(|| Vec::with_capacity(SPAN_BYTES))
    }

    fn put_back(&mut self, mut buffer: Vec<u8>) {
        if self.0.len() < SPARE_BUFFERS {
            buffer.clear();
            self.0.push(buffer);
        }
    }
}

impl Request {
    /// Starts a request.
    ///
    /// The route is read before headers are edited. Editing them makes Envoy choose the route
    /// again, and it then does so only once.
    pub fn arrive<H: Host>(plugin: &mut Plugin<H>, spare: &mut Spare, end_of_stream: bool) -> Self {
        let now = plugin.now();
        let route = plugin.host.property(Property::RouteName.path()).unwrap_or_default();
        let class = class::of_route(std::str::from_utf8(&route).unwrap_or_default());
        let (share, loads) = plugin.load.enter(class.map(|class| class.id), now.mono_ns);
        let lines = plugin.host.headers(MapType::HttpRequestHeaders);
        let headers = RequestHeaders::read(pairs(&lines));
        let uri =
            plugin.config.peer_identity.as_ref().and_then(|_| plugin.host.property(Property::PeerUri.path()));
        let uri = uri.as_deref().and_then(|uri| std::str::from_utf8(uri).ok());
        let caller = Caller::of(&plugin.config, &headers, uri);
        let trace = TraceContext::of(caller.anonymous, &headers.trace, &plugin.sampler, &mut plugin.ids);
        plugin.stats.malformed_traces.add(u64::from(trace.malformed));
        plugin.stats.ignored_sources.add(u64::from(caller.contradicted));
        let buffer = if trace.sampled { spare.take() } else { Vec::new() };
        let arriving = Arriving { now, headers: &headers, caller, end_of_stream, class, loads, buffer };
        let exchange = Exchange::arrive(&plugin.config, &trace, arriving);
        plugin.load.count(share, exchange.entry());
        let edit = |name, value: Option<&str>| plugin.host.edit(MapType::HttpRequestHeaders, name, value);
        trace.edits(edit);
        source_edits(&plugin.config, &headers, caller, edit);
        let mut request = Self { exchange, share: Some(share) };
        if request.exchange.long_lived() {
            request.is_no_load(plugin, spare);
        }
        request
    }

    /// Handles the response's headers. `end_of_stream` is true when no body follows.
    pub fn respond<H: Host>(&mut self, plugin: &mut Plugin<H>, spare: &mut Spare, end_of_stream: bool) {
        let lines = plugin.host.headers(MapType::HttpResponseHeaders);
        let headers = ResponseHeaders::read(pairs(&lines));
        self.exchange.respond(&plugin.config, plugin.host.mono_ns(), &headers, end_of_stream);
        self.exchange.response_edits(&plugin.config, |name, value| {
            plugin.host.edit(MapType::HttpResponseHeaders, name, value);
        });
        if self.exchange.long_lived() {
            self.is_no_load(plugin, spare);
        }
    }

    /// Marks the request as long-lived when it has lasted longer than a call may.
    pub fn outlive<H: Host>(&mut self, plugin: &mut Plugin<H>, spare: &mut Spare, now_ns: u64) {
        if self.exchange.outlived(now_ns, plugin.config.long_lived_after_ms * 1_000_000) {
            self.is_no_load(plugin, spare);
        }
    }

    /// Finishes the request, however it ended, and queues its span.
    pub fn finish<H: Host>(mut self, plugin: &mut Plugin<H>, spare: &mut Spare) {
        let now = plugin.host.mono_ns();
        self.outlive(plugin, spare, now);
        self.leave(plugin);
        if let Some(span) = self.exchange.finish(&plugin.config, now, &mut Asked::new(&plugin.host)) {
            plugin.push(&span);
            spare.put_back(span);
        }
    }

    /// Counts the request out without a span. Its context was deleted before Envoy logged it.
    pub fn abandon<H: Host>(mut self, plugin: &Plugin<H>) {
        self.leave(plugin);
    }

    /// Removes a long-lived stream from the load and counts it once as long-lived.
    fn is_no_load<H: Host>(&mut self, plugin: &mut Plugin<H>, spare: &mut Spare) {
        if let Some(buffer) = self.exchange.take_buffer() {
            spare.put_back(buffer);
        }
        if self.leave(plugin) {
            plugin.stats.long_lived.add(1);
        }
    }

    fn leave<H: Host>(&mut self, plugin: &Plugin<H>) -> bool {
        let share = self.share.take();
        if let Some(share) = share {
            plugin.load.leave(share);
        }
        share.is_some()
    }
}

fn pairs(lines: &[(String, Bytes)]) -> impl Iterator<Item = (&[u8], &[u8])> {
    lines.iter().map(|(name, value)| (name.as_bytes(), value.as_slice()))
}
