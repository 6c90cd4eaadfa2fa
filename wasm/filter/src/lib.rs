//! The shell of the filter: carries values between Envoy and `spillway-filter-core`, and decides
//! nothing.
//!
//! The crate uses the `proxy-wasm` SDK, which owns the ABI and dispatches Envoy's callbacks to
//! `contexts`. [`root`] finds the [`worker::Worker`] of a callback: one plugin in one worker
//! thread, with its requests in progress. Everything is generic over [`host::Host`], which is Envoy
//! (`sdk`) or a fake in tests. Host calls exist only inside the proxy, so modules that use them are
//! built only for wasm.
#![cfg_attr(not(target_family = "wasm"), allow(dead_code))]

mod host;
mod load;
mod plugin;
mod request;
mod root;
mod stats;
mod totals;
mod worker;

#[cfg(target_family = "wasm")]
mod contexts;
#[cfg(target_family = "wasm")]
mod sdk;

#[cfg(test)]
mod fake;

#[cfg(target_family = "wasm")]
proxy_wasm::main! {{
    proxy_wasm::set_root_context(|_| Box::new(root::Root::new(sdk::Sdk::start())));
}}
