//! Host calls as total functions: what the proxy does not have, or fails to give, is None.
//!
//! The SDK's trait methods unwrap every status, and its text variants panic on header values that
//! are not UTF-8; so only its `Result` functions are called, and of those the ones for bytes.

use proxy_wasm::hostcalls;
use proxy_wasm::types::{BufferType, MapType};
use spillway_contracts::XDS_METADATA_NAMESPACE;
use spillway_filter_core::exchange::{Moment, Route, ruleset_version};
use spillway_filter_core::ids::Ids;
use spillway_filter_core::trace::Edit;

const RULESET_VERSION: [&str; 5] =
    ["xds", "route_metadata", "filter_metadata", XDS_METADATA_NAMESPACE, "ruleset_version"];

/// Both clocks; None when the host has none, and then nothing is measured.
pub fn now() -> Option<Moment> {
    Some(Moment { wall_ns: clock(wasip1::CLOCKID_REALTIME)?, mono_ns: mono_ns()? })
}

/// The monotonic clock alone.
pub fn mono_ns() -> Option<u64> {
    clock(wasip1::CLOCKID_MONOTONIC)
}

fn clock(id: wasip1::Clockid) -> Option<u64> {
    // SAFETY: reads a clock into the callee's own stack slot.
    unsafe { wasip1::clock_time_get(id, 0) }.ok()
}

/// Ids seeded by the host's entropy, else by what differs between VMs.
pub fn ids(context_id: u32) -> Ids {
    let mut seed = [0u8; 32];
    // SAFETY: the pointer and length are those of `seed`, which outlives the call.
    if unsafe { wasip1::random_get(seed.as_mut_ptr(), seed.len()) }.is_ok() {
        return Ids::from_entropy(seed);
    }
    let moment = now().unwrap_or_default();
    log::warn!("no entropy from the proxy: ids are seeded from the clocks");
    let address = seed.as_ptr() as u64;
    Ids::from_weak_seed(
        moment.wall_ns ^ moment.mono_ns.rotate_left(32) ^ (u64::from(context_id) << 48) ^ address,
    )
}

/// A request header's bytes.
pub fn request_header(name: &str) -> Option<Vec<u8>> {
    hostcalls::get_map_value_bytes(MapType::HttpRequestHeaders, name).ok().flatten()
}

/// A response header's bytes.
pub fn response_header(name: &str) -> Option<Vec<u8>> {
    hostcalls::get_map_value_bytes(MapType::HttpResponseHeaders, name).ok().flatten()
}

/// The message that answered a callout, `size` bytes.
pub fn grpc_response(size: usize) -> Vec<u8> {
    hostcalls::get_buffer(BufferType::GrpcReceiveBuffer, 0, size).ok().flatten().unwrap_or_default()
}

/// Sets or removes request headers.
pub fn edit_request(edits: Vec<Edit>) {
    edit(MapType::HttpRequestHeaders, edits);
}

/// Sets or removes response headers.
pub fn edit_response(edits: Vec<Edit>) {
    edit(MapType::HttpResponseHeaders, edits);
}

fn edit(map: MapType, edits: Vec<Edit>) {
    for (name, value) in edits {
        // A header that cannot be changed costs a link in the trace, never the request.
        let _ = hostcalls::set_map_value(map, name, value.as_deref());
    }
}

/// What the proxy decided about this request; the destination only where it is asked for.
pub fn route(with_destination: bool) -> Route {
    let mut route = Route { name: text(vec!["xds", "route_name"]), ..Route::default() };
    if with_destination {
        route.cluster = text(vec!["xds", "cluster_name"]);
        route.ruleset_version = property(RULESET_VERSION.to_vec()).as_deref().and_then(ruleset_version);
    }
    route
}

fn text(path: Vec<&str>) -> Option<String> {
    property(path).and_then(|value| String::from_utf8(value).ok())
}

fn property(path: Vec<&str>) -> Option<Vec<u8>> {
    hostcalls::get_property(path).ok().flatten()
}
