//! The shell: carries values between Envoy and `spillway-filter-core`. Decides nothing.
//!
//! These are the callbacks of Proxy-Wasm ABI 0.2.1 that the filter needs. The SDK's dispatcher exports
//! all of them, and what is exported Envoy calls: every chunk of every body, for one. It also panics
//! where a context is unknown; here that is nothing.
//!
//! `state` finds the plugin and the request that a callback is about, `plugin` is one plugin in one
//! worker, `request` one request; `stats` and `load` are what they count; `host` and `given` alone call the proxy, by `abi`.

mod abi;
mod given;
mod host;
mod load;
mod plugin;
mod request;
mod state;
mod stats;

use state::with;

const CONTINUE: u32 = 0;

#[unsafe(no_mangle)]
extern "C" fn proxy_abi_version_0_2_1() {}

unsafe extern "C" {
    fn __wasm_call_ctors();
}

#[unsafe(no_mangle)]
extern "C" fn _initialize() {
    // SAFETY: the linker's own function; the proxy calls this once, before anything else.
    unsafe { __wasm_call_ctors() }
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_memory_allocate(size: usize) -> *mut u8 {
    given::allocate(size)
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_context_create(context: u32, parent: u32) {
    with(|state| state.created(context, parent));
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_configure(context: u32, _size: usize) -> u32 {
    u32::from(with(|state| state.configure(context)))
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_tick(context: u32) {
    with(|state| state.tick(context));
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_request_headers(context: u32, _count: usize, end_of_stream: u32) -> u32 {
    with(|state| state.request_headers(context, end_of_stream != 0));
    CONTINUE
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_response_headers(context: u32, _count: usize, end_of_stream: u32) -> u32 {
    with(|state| state.response_headers(context, end_of_stream != 0));
    CONTINUE
}

/// The end of every request, reset or not: Envoy logs each once.
#[unsafe(no_mangle)]
extern "C" fn proxy_on_log(context: u32) {
    with(|state| state.log(context));
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_done(context: u32) -> u32 {
    u32::from(with(|state| state.done(context)))
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_grpc_receive(context: u32, token: u32, size: usize) {
    with(|state| state.answered(context, token, Some(size)));
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_grpc_close(context: u32, token: u32, _status: u32) {
    // After a message this is the end of a call that is already accounted for.
    with(|state| state.answered(context, token, None));
}
