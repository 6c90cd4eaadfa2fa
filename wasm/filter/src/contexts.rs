//! Implements the SDK's traits by forwarding Envoy's callbacks to [`crate::root`].
//!
//! The SDK exports every callback of the ABI, including those for body chunks and trailers.
//! Callbacks that are not implemented here continue at once.

use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::{Action, ContextType};

use crate::host::Host;
use crate::root::{Root, Stream};

impl<H: Host> Context for Root<H> {
    fn on_grpc_call_response(&mut self, token: u32, status: u32, size: usize) {
        self.answered(token, status, size);
    }

    fn on_done(&mut self) -> bool {
        self.close()
    }
}

impl<H: Host> RootContext for Root<H> {
    fn on_configure(&mut self, _: usize) -> bool {
        self.configure()
    }

    fn on_tick(&mut self) {
        self.tick();
    }

    fn create_http_context(&self, context: u32) -> Option<Box<dyn HttpContext>> {
        Some(Box::new(self.stream(context)))
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }
}

impl<H: Host> Context for Stream<H> {
    fn on_done(&mut self) -> bool {
        self.close();
        true
    }
}

/// Every callback returns `Continue`, so the filter can neither hold nor fail a request.
impl<H: Host> HttpContext for Stream<H> {
    fn on_http_request_headers(&mut self, _: usize, end_of_stream: bool) -> Action {
        self.request_headers(end_of_stream);
        Action::Continue
    }

    fn on_http_response_headers(&mut self, _: usize, end_of_stream: bool) -> Action {
        self.response_headers(end_of_stream);
        Action::Continue
    }

    fn on_log(&mut self) {
        self.log();
    }
}
