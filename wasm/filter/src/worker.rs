//! One plugin in one worker thread, and its requests in progress.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::host::Host;
use crate::plugin::Plugin;
use crate::request::{Request, Spare};

/// Hasher for context ids. Envoy assigns them in sequence, so spreading their bits is sufficient.
#[derive(Default)]
struct IdHasher(u64);

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u32(u32::from(*byte)));
    }

    fn write_u32(&mut self, id: u32) {
        self.0 = (self.0 ^ u64::from(id)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Interval between the searches for requests that have lasted longer than a call may.
const SWEEP_NS: u64 = 1_000_000_000;

/// A plugin and its requests, in one worker thread.
pub struct Worker<H> {
    plugin: Plugin<H>,
    requests: HashMap<u32, Request, BuildHasherDefault<IdHasher>>,
    spare: Spare,
    swept_ns: u64,
}

impl<H: Host> Worker<H> {
    /// Reads the configuration of the current root context.
    pub fn configure(host: H) -> Result<Self, String> {
        let plugin = Plugin::configure(host)?;
        Ok(Self { plugin, requests: HashMap::default(), spare: Spare::default(), swept_ns: 0 })
    }

    /// Samples the load, sends what is due, and looks for long-lived requests once a second.
    pub fn tick(&mut self) {
        let now = self.plugin.tick();
        if now.saturating_sub(self.swept_ns) >= SWEEP_NS {
            self.swept_ns = now;
            for request in self.requests.values_mut() {
                request.outlive(&mut self.plugin, &mut self.spare, now);
            }
        }
    }

    /// Handles the headers of a new request.
    pub fn request_headers(&mut self, context: u32, end_of_stream: bool) {
        let request = Request::arrive(&mut self.plugin, &mut self.spare, end_of_stream);
        if let Some(replaced) = self.requests.insert(context, request) {
            replaced.abandon(&self.plugin);
        }
    }

    /// Handles the headers of its response.
    pub fn response_headers(&mut self, context: u32, end_of_stream: bool) {
        if let Some(request) = self.requests.get_mut(&context) {
            request.respond(&mut self.plugin, &mut self.spare, end_of_stream);
        }
    }

    /// Finishes the request.
    pub fn finish(&mut self, context: u32) {
        if let Some(request) = self.requests.remove(&context) {
            request.finish(&mut self.plugin, &mut self.spare);
        }
    }

    /// Handles the deletion of the request's context. Counts the request out if it was not
    /// finished.
    pub fn abandon(&mut self, context: u32) {
        if let Some(request) = self.requests.remove(&context) {
            request.abandon(&self.plugin);
        }
    }

    /// Handles the collector's answer of `size` bytes to a call. `size` is None when the call
    /// failed.
    ///
    /// Returns whether this was the last answer that a closing plugin waited for.
    pub fn answered(&mut self, token: u32, size: Option<usize>) -> bool {
        self.plugin.answered(token, size)
    }

    /// Sends the remaining spans when the root context is about to be deleted. Returns whether the
    /// context must stay for answers.
    pub fn must_stay(&mut self) -> bool {
        !self.plugin.close()
    }
}
