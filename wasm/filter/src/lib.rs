//! The shell: carries values between Envoy and `spillway-filter-core`. Decides nothing.
//!
//! It stands on the `proxy-wasm` SDK, which owns the ABI and dispatches Envoy's callbacks to
//! `contexts`. [`root`] finds the [`worker::Worker`] that a callback is about: one plugin in one
//! worker thread, with its requests under way. Everything is generic over [`host::Host`], which is
//! Envoy (`sdk`) or a fake in tests. Host calls exist in the proxy only, so what names them is not
//! built for the host.
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
