//! One plugin in one worker: reads the configuration, ticks, sends, hears the collector's answers.
//!
//! Only the root context sends: a callout belongs to the context that makes it, and a request's
//! context is gone before the answer. A full batch therefore waits for the next tick, which is soon.

use std::rc::Rc;
use std::time::Duration;

use proxy_wasm::hostcalls;
use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::{BufferType, ContextType};
use spillway_filter_core::config::Config;

use crate::host;
use crate::http::Http;
use crate::metrics::Metrics;
use crate::worker::Worker;

/// Ten samples in the load window, and the longest that a full batch waits.
const TICK_MS: u64 = 100;

/// Root context.
pub struct Root {
    context_id: u32,
    worker: Option<Rc<Worker>>,
    flushed_ns: u64,
}

impl Root {
    pub fn new(context_id: u32) -> Self {
        Self { context_id, worker: None, flushed_ns: 0 }
    }

    fn configure(&self) -> Result<Worker, String> {
        let json = hostcalls::get_buffer(BufferType::PluginConfiguration, 0, usize::MAX)
            .map_err(|status| format!("cannot be read: {status:?}"))?
            .unwrap_or_default();
        let config = Config::parse(&json)?;
        let metrics = Metrics::define(config.direction)
            .map_err(|status| format!("metrics cannot be defined: {status:?}"))?;
        let tick = Duration::from_millis(config.flush_interval_ms.min(TICK_MS));
        hostcalls::set_tick_period(tick).map_err(|status| format!("no tick: {status:?}"))?;
        Ok(Worker::new(config, metrics, host::ids(self.context_id)))
    }
}

impl Context for Root {
    fn on_grpc_call_response(&mut self, token: u32, status: u32, size: usize) {
        if let Some(worker) = &self.worker {
            let response = (status == 0).then(|| host::grpc_response(size));
            worker.answered(token, response.as_deref());
        }
    }

    fn on_done(&mut self) -> bool {
        if let Some(worker) = self.worker.take() {
            worker.abandon();
        }
        true
    }
}

impl RootContext for Root {
    fn on_configure(&mut self, _size: usize) -> bool {
        match self.configure() {
            Ok(worker) => {
                if let Some(now) = host::mono_ns() {
                    worker.sample(now);
                    self.flushed_ns = now;
                }
                self.worker = Some(Rc::new(worker));
                true
            }
            Err(error) => {
                log::error!("spillway filter: configuration: {error}");
                false
            }
        }
    }

    fn on_tick(&mut self) {
        let (Some(worker), Some(now)) = (&self.worker, host::mono_ns()) else { return };
        worker.sample(now);
        let waited_ms = now.saturating_sub(self.flushed_ns) / 1_000_000;
        let due = waited_ms >= worker.config.flush_interval_ms;
        if due {
            self.flushed_ns = now;
        }
        worker.flush(due);
    }

    fn create_http_context(&self, _context_id: u32) -> Option<Box<dyn HttpContext>> {
        Some(Box::new(Http::new(self.worker.clone())))
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }
}
