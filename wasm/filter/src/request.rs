//! One request, from its headers to its end. Every step continues at once: nothing here can hold or
//! fail it.

use spillway_filter_core::class;
use spillway_filter_core::exchange::{Arriving, Exchange, source_edits};
use spillway_filter_core::headers::{Pairs, RequestHeaders, ResponseHeaders};
use spillway_filter_core::property::{Properties, Property};
use spillway_filter_core::trace::TraceContext;

use crate::given::Given;
use crate::host::{self, Map};
use crate::load::Share;
use crate::plugin::Plugin;

/// A request under way.
pub struct Request {
    /// Context of its plugin.
    pub plugin: u32,
    exchange: Exchange,
    /// None from when it is known to be no load.
    share: Option<Share>,
}

/// Memory that requests use one after the other.
#[derive(Default)]
pub struct Reused {
    route: String,
    spans: Vec<Vec<u8>>,
}

/// Buffers kept for later: more than that many requests at once buy their own.
const SPARE_BUFFERS: usize = 64;
const SPAN_BYTES: usize = 1_024;

impl Reused {
    fn put_back(&mut self, mut buffer: Vec<u8>) {
        if self.spans.len() < SPARE_BUFFERS {
            buffer.clear();
            self.spans.push(buffer);
        }
    }
}

impl Request {
    /// The route is read first: editing headers makes Envoy choose it again, which it then does once.
    pub fn arrive(
        plugin: &mut Plugin,
        given: &mut Given,
        reused: &mut Reused,
        end_of_stream: bool,
    ) -> Option<Self> {
        let now = plugin.now()?;
        reused.route.clear();
        reused.route.push_str(given.text(Property::RouteName).unwrap_or_default());
        let class = class::of_route(&reused.route);
        let (share, loads) = plugin.load.enter(class.map(|class| class.id), given, now.mono_ns);
        let headers = RequestHeaders::read(Pairs::new(given.headers(Map::Request)));
        let trace = TraceContext::read(&headers.trace, &plugin.sampler, &mut plugin.ids);
        plugin.stats.malformed_traces.add(u64::from(trace.malformed));
        let buffer = if trace.sampled {
            reused.spans.pop().unwrap_or_else(|| Vec::with_capacity(SPAN_BYTES))
        } else {
            Vec::new()
        };
        let arriving = Arriving { now, headers: &headers, end_of_stream, class, loads, buffer };
        let exchange = Exchange::arrive(&plugin.config, &trace, arriving);
        trace.edits(|name, value| host::edit(Map::Request, name, value));
        source_edits(&plugin.config, |name, value| host::edit(Map::Request, name, value));
        let mut request = Self { plugin: plugin.context, exchange, share: Some(share) };
        if request.exchange.long_lived() {
            request.is_no_load(plugin, reused);
        }
        Some(request)
    }

    pub fn respond(
        &mut self,
        plugin: &mut Plugin,
        given: &mut Given,
        reused: &mut Reused,
        end_of_stream: bool,
    ) -> Option<()> {
        let now = host::mono_ns()?;
        let headers = ResponseHeaders::read(Pairs::new(given.headers(Map::Response)));
        self.exchange.respond(&plugin.config, now, &headers, end_of_stream);
        self.exchange.response_edits(&plugin.config, |name, value| host::edit(Map::Response, name, value));
        if self.exchange.long_lived() {
            self.is_no_load(plugin, reused);
        }
        Some(())
    }

    /// Takes it for long-lived when it has lasted too long for a call.
    pub fn outlive(&mut self, plugin: &mut Plugin, reused: &mut Reused, now_ns: u64) {
        if self.exchange.outlived(now_ns, plugin.config.long_lived_after_ms * 1_000_000) {
            self.is_no_load(plugin, reused);
        }
    }

    /// The end, however it came.
    pub fn finish(mut self, plugin: &mut Plugin, given: &mut Given, reused: &mut Reused) -> Option<()> {
        let now = host::mono_ns();
        if let Some(now) = now {
            self.outlive(plugin, reused, now);
        }
        self.leave(plugin);
        let span = self.exchange.finish(&plugin.config, now?, given)?;
        plugin.push(&span);
        reused.put_back(span);
        Some(())
    }

    /// Counts it out without a span: its context went and nobody logged it.
    pub fn abandon(mut self, plugin: &mut Plugin) {
        self.leave(plugin);
    }

    /// A long-lived stream is counted once, when it is known to be one, and is no load from then on.
    fn is_no_load(&mut self, plugin: &mut Plugin, reused: &mut Reused) {
        if let Some(buffer) = self.exchange.take_buffer() {
            reused.put_back(buffer);
        }
        if self.leave(plugin) {
            plugin.stats.long_lived.add(1);
        }
    }

    fn leave(&mut self, plugin: &Plugin) -> bool {
        let share = self.share.take();
        if let Some(share) = share {
            plugin.load.leave(share);
        }
        share.is_some()
    }
}
