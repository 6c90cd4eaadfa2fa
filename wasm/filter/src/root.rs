//! One root per listener and one stream per request: the action behind each callback of the proxy.

use std::cell::RefCell;
use std::rc::Rc;

use proxy_wasm::types::LogLevel;

use crate::host::Host;
use crate::worker::Worker;

type Shared<H> = Rc<RefCell<Worker<H>>>;

/// Runs `act` on the worker. Returns the default when called re-entrantly, which Envoy never does.
fn with<H, T: Default>(worker: Option<&Shared<H>>, act: impl FnOnce(&mut Worker<H>) -> T) -> T {
    let free = worker.and_then(|worker| worker.try_borrow_mut().ok());
    free.map(|mut worker| act(&mut worker)).unwrap_or_default()
}

/// The root context of one plugin in one worker thread.
pub struct Root<H> {
    host: H,
    /// `None` before the configuration is read, and again when no work is left.
    worker: Option<Shared<H>>,
}

impl<H: Host> Root<H> {
    /// Creates a root that is not configured yet.
    pub fn new(host: H) -> Self {
        Self { host, worker: None }
    }

    /// Reads the configuration. Returns whether it is valid. If it is not, the log names the
    /// errors.
    pub fn configure(&mut self) -> bool {
        match Worker::configure(self.host.clone()) {
            Ok(worker) => {
                self.worker = Some(Rc::new(RefCell::new(worker)));
                true
            }
            Err(error) => {
                self.host.log(LogLevel::Error, &format!("spillway filter: configuration: {error}"));
                false
            }
        }
    }

    /// Samples the load and sends what is due.
    pub fn tick(&self) {
        with(self.worker.as_ref(), Worker::tick);
    }

    /// Creates the stream of a new request.
    pub fn stream(&self, context: u32) -> Stream<H> {
        Stream { context, worker: self.worker.clone() }
    }

    /// Handles the collector's answer of `size` bytes. Any gRPC status except OK is a failure.
    pub fn answered(&mut self, token: u32, status: u32, size: usize) {
        let size = (status == 0).then_some(size);
        if with(self.worker.as_ref(), |worker| worker.answered(token, size)) {
            self.worker = None;
            self.host.done();
        }
    }

    /// Handles the removal of the listener. Returns whether the proxy may delete the context, which
    /// it may not while spans wait for their answer.
    pub fn close(&mut self) -> bool {
        let must_stay = with(self.worker.as_ref(), Worker::must_stay);
        if !must_stay {
            self.worker = None;
        }
        !must_stay
    }
}

/// The stream context of one request.
pub struct Stream<H> {
    context: u32,
    worker: Option<Shared<H>>,
}

impl<H: Host> Stream<H> {
    /// Handles the request's headers.
    pub fn request_headers(&self, end_of_stream: bool) {
        self.with(|worker| worker.request_headers(self.context, end_of_stream));
    }

    /// Handles the response's headers.
    pub fn response_headers(&self, end_of_stream: bool) {
        self.with(|worker| worker.response_headers(self.context, end_of_stream));
    }

    /// Finishes the request. Envoy logs every request exactly once, including requests that were
    /// reset.
    pub fn log(&self) {
        self.with(|worker| worker.finish(self.context));
    }

    /// Handles the deletion of the stream context.
    pub fn close(&self) {
        self.with(|worker| worker.abandon(self.context));
    }

    fn with(&self, act: impl FnOnce(&mut Worker<H>)) {
        with(self.worker.as_ref(), act);
    }
}

#[cfg(test)]
#[path = "root_tests.rs"]
mod tests;
