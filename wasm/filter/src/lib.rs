//! The shell: carries values between Envoy and `spillway-filter-core`. Decides nothing.
//!
//! `root` is one plugin in one worker: configuration, tick, callouts. `http` is one request.
//! `worker` is what they share. `host` and `metrics` are the only files that call the proxy.

mod host;
mod http;
mod metrics;
mod root;
mod worker;

proxy_wasm::main! {{
    proxy_wasm::set_log_level(proxy_wasm::types::LogLevel::Info);
    proxy_wasm::set_root_context(|context_id| Box::new(root::Root::new(context_id)));
}}
