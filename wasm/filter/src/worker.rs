//! One plugin in one worker thread, and its requests under way.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::host::Host;
use crate::plugin::Plugin;
use crate::request::{Request, Spare};

/// Envoy counts context ids up: spreading their bits is all the hashing they need.
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

/// How often requests are searched for those that lasted too long for a call.
const SWEEP_NS: u64 = 1_000_000_000;

/// One plugin in one worker thread.
pub struct Worker<H> {
    plugin: Plugin<H>,
    requests: HashMap<u32, Request, BuildHasherDefault<IdHasher>>,
    spare: Spare,
    swept_ns: u64,
}

impl<H: Host> Worker<H> {
    /// Reads the configuration of the root context at hand.
    pub fn configure(host: H) -> Result<Self, String> {
        let plugin = Plugin::configure(host)?;
        Ok(Self { plugin, requests: HashMap::default(), spare: Spare::default(), swept_ns: 0 })
    }

    /// Samples the load and sends what is due.
    pub fn tick(&mut self) {
        let now = self.plugin.tick();
        if now.saturating_sub(self.swept_ns) >= SWEEP_NS {
            self.swept_ns = now;
            for request in self.requests.values_mut() {
                request.outlive(&mut self.plugin, &mut self.spare, now);
            }
        }
    }

    /// A request has come.
    pub fn request_headers(&mut self, context: u32, end_of_stream: bool) {
        let request = Request::arrive(&mut self.plugin, &mut self.spare, end_of_stream);
        if let Some(replaced) = self.requests.insert(context, request) {
            replaced.abandon(&self.plugin);
        }
    }

    /// Its response's headers have come.
    pub fn response_headers(&mut self, context: u32, end_of_stream: bool) {
        if let Some(request) = self.requests.get_mut(&context) {
            request.respond(&mut self.plugin, &mut self.spare, end_of_stream);
        }
    }

    /// It is over.
    pub fn finish(&mut self, context: u32) {
        if let Some(request) = self.requests.remove(&context) {
            request.finish(&mut self.plugin, &mut self.spare);
        }
    }

    /// Its context goes. Counts the request out where it was not finished.
    pub fn abandon(&mut self, context: u32) {
        if let Some(request) = self.requests.remove(&context) {
            request.abandon(&self.plugin);
        }
    }

    /// The collector answered a call with a message of `size` bytes, or the call failed. Returns whether
    /// this was the last answer that a closing plugin waited for.
    pub fn answered(&mut self, token: u32, size: Option<usize>) -> bool {
        self.plugin.answered(token, size)
    }

    /// The root context goes: sends what is left. Returns whether the context must stay for answers.
    pub fn must_stay(&mut self) -> bool {
        !self.plugin.close()
    }
}
