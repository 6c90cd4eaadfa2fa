//! One request. Every callback continues at once: nothing here can hold or fail it.

use std::rc::Rc;

use proxy_wasm::traits::{Context, HttpContext};
use proxy_wasm::types::Action;
use spillway_filter_core::Direction;
use spillway_filter_core::exchange::Exchange;
use spillway_filter_core::otlp::encode_span;

use crate::host;
use crate::metrics::InFlight;
use crate::worker::Worker;

/// HTTP context; without a worker (no valid configuration) it lets everything pass.
pub struct Http {
    worker: Option<Rc<Worker>>,
    exchange: Option<Exchange>,
    in_flight: Option<InFlight>,
}

impl Http {
    pub fn new(worker: Option<Rc<Worker>>) -> Self {
        Self { worker, exchange: None, in_flight: None }
    }

    fn arrive(&mut self) -> Option<()> {
        let worker = self.worker.as_ref()?;
        let direction = worker.config.direction;
        self.in_flight = Some(InFlight::enter(worker.metrics.in_flight));
        let now = host::now();
        let load = worker.arrival(now.unwrap_or_default().mono_ns);
        // The load that the application feels is the inbound one; outbound it is only counted.
        let load = load.filter(|_| direction == Direction::Inbound);
        let mut ids = worker.ids.try_borrow_mut().ok()?;
        let exchange = Exchange::arrive(direction, now?, load, host::request_header, &mut ids);
        drop(ids);
        worker.metrics.malformed_traces.add(i64::from(exchange.malformed_trace()));
        host::edit_request(exchange.request_edits(&worker.config));
        self.exchange = Some(exchange);
        self.release_long_lived();
        Some(())
    }

    fn respond(&mut self) -> Option<()> {
        let (worker, exchange) = (self.worker.as_ref()?, self.exchange.as_mut()?);
        exchange.respond(worker.config.direction, host::mono_ns()?, host::response_header);
        host::edit_response(exchange.response_edits(&worker.config));
        self.release_long_lived();
        Some(())
    }

    /// A long-lived stream is counted once, when it is known to be one, and is no load from then on.
    fn release_long_lived(&mut self) {
        let long_lived = self.exchange.as_ref().is_some_and(Exchange::long_lived);
        if let (true, Some(_), Some(worker)) =
            (long_lived, self.in_flight.take_if(|_| long_lived), &self.worker)
        {
            worker.metrics.long_lived.add(1);
        }
    }

    fn finish(&mut self) -> Option<()> {
        self.in_flight = None;
        let (worker, exchange) = (self.worker.as_ref()?, self.exchange.take()?);
        if !exchange.recorded() {
            return None;
        }
        // Routes are read at the end: editing request headers makes Envoy choose the route again.
        let route = host::route(worker.config.direction == Direction::Outbound);
        let span = exchange.finish(&worker.config, host::mono_ns()?, &route)?;
        worker.push(encode_span(&span));
        Some(())
    }
}

impl Context for Http {}

impl HttpContext for Http {
    fn on_http_request_headers(&mut self, _count: usize, _end: bool) -> Action {
        let _ = self.arrive();
        Action::Continue
    }

    fn on_http_request_body(&mut self, size: usize, _end: bool) -> Action {
        if let Some(exchange) = &mut self.exchange {
            exchange.request_body(size);
        }
        Action::Continue
    }

    fn on_http_response_headers(&mut self, _count: usize, _end: bool) -> Action {
        let _ = self.respond();
        Action::Continue
    }

    fn on_http_response_body(&mut self, size: usize, _end: bool) -> Action {
        if let Some(exchange) = &mut self.exchange {
            exchange.response_body(size);
        }
        Action::Continue
    }

    /// The end of every request, reset or not: Envoy logs each once.
    fn on_log(&mut self) {
        let _ = self.finish();
    }
}
