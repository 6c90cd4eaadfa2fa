//! Everything of one VM: its plugins, and the requests under way. A VM has one thread, and the proxy
//! calls back one at a time, never from within a host call.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::given::Given;
use crate::host::{self, Buffer, Level};
use crate::plugin::Plugin;
use crate::request::{Request, Reused};

/// Context ids are counted up by the proxy: spreading their bits is all the hashing they need.
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

type Requests = HashMap<u32, Request, BuildHasherDefault<IdHasher>>;

/// How often requests are looked through for those that outlived a call.
const SWEEP_NS: u64 = 1_000_000_000;

/// One VM.
pub struct State {
    given: Given,
    reused: Reused,
    plugins: Vec<Plugin>,
    requests: Requests,
    /// The newest context and its plugin's: Envoy creates a request's context and calls it at once, so
    /// one place is enough to know which plugin a request belongs to.
    newest: (u32, u32),
    swept_ns: u64,
}

thread_local! {
    static STATE: RefCell<State> = RefCell::new(State {
        // SAFETY: a VM has one thread, so this is made once.
        given: unsafe { Given::the_only_one() },
        reused: Reused::default(),
        plugins: Vec::new(),
        requests: Requests::default(),
        newest: (0, 0),
        swept_ns: 0,
    });
}

/// What a callback does with the state; nothing in a callback within a callback, which does not happen.
pub fn with<T: Default>(act: impl FnOnce(&mut State) -> T) -> T {
    STATE.with(|state| state.try_borrow_mut().map(|mut state| act(&mut state)).unwrap_or_default())
}

fn find(plugins: &mut [Plugin], context: u32) -> Option<&mut Plugin> {
    plugins.iter_mut().find(|plugin| plugin.context == context)
}

impl State {
    pub fn created(&mut self, context: u32, parent: u32) {
        self.newest = (context, parent);
    }

    pub fn configure(&mut self, context: u32) -> bool {
        match Plugin::configure(context, &mut self.given) {
            Ok(plugin) => {
                self.plugins.retain(|plugin| plugin.context != context);
                self.plugins.push(plugin);
                true
            }
            Err(error) => {
                host::log(Level::Error, &format!("spillway filter: configuration: {error}"));
                false
            }
        }
    }

    pub fn tick(&mut self, context: u32) {
        let now = find(&mut self.plugins, context).and_then(Plugin::tick);
        if let Some(now) = now.filter(|now| now.saturating_sub(self.swept_ns) >= SWEEP_NS) {
            self.swept_ns = now;
            for request in self.requests.values_mut() {
                if let Some(plugin) = find(&mut self.plugins, request.plugin) {
                    request.outlive(plugin, &mut self.reused, now);
                }
            }
        }
    }

    pub fn request_headers(&mut self, context: u32, end_of_stream: bool) {
        let (newest, parent) = self.newest;
        let plugin = find(&mut self.plugins, parent).filter(|_| newest == context);
        let request = plugin
            .and_then(|plugin| Request::arrive(plugin, &mut self.given, &mut self.reused, end_of_stream));
        if let Some(request) = request {
            self.requests.insert(context, request);
        }
    }

    pub fn response_headers(&mut self, context: u32, end_of_stream: bool) {
        if let Some(request) = self.requests.get_mut(&context)
            && let Some(plugin) = find(&mut self.plugins, request.plugin)
        {
            request.respond(plugin, &mut self.given, &mut self.reused, end_of_stream);
        }
    }

    pub fn log(&mut self, context: u32) {
        if let Some(request) = self.requests.remove(&context)
            && let Some(plugin) = find(&mut self.plugins, request.plugin)
        {
            request.finish(plugin, &mut self.given, &mut self.reused);
        }
    }

    /// Whether the proxy may delete the context.
    pub fn done(&mut self, context: u32) -> bool {
        if let Some(request) = self.requests.remove(&context) {
            if let Some(plugin) = find(&mut self.plugins, request.plugin) {
                request.abandon(plugin);
            }
            return true;
        }
        let closed = find(&mut self.plugins, context).is_none_or(Plugin::close);
        self.plugins.retain(|plugin| !(closed && plugin.context == context));
        closed
    }

    pub fn answered(&mut self, context: u32, token: u32, size: Option<usize>) {
        if let Some(plugin) = find(&mut self.plugins, context) {
            let response = size.map(|size| self.given.buffer(Buffer::GrpcReceive, size).unwrap_or_default());
            if plugin.answered(token, response) {
                self.plugins.retain(|plugin| plugin.context != context);
                host::done();
            }
        }
    }
}
