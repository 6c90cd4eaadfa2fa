//! Host calls as total functions: what the proxy does not have, or fails to give, is None. Those that
//! give bytes are in [`crate::given`].

use std::ptr::null;

use crate::abi::*;

/// Status of a call that did what was asked.
pub const OK: u32 = 0;

/// Header maps.
#[derive(Clone, Copy)]
#[repr(u32)]
pub enum Map {
    Request = 0,
    Response = 2,
}

/// Buffers.
#[derive(Clone, Copy)]
#[repr(u32)]
pub enum Buffer {
    GrpcReceive = 5,
    PluginConfiguration = 7,
}

/// Severities, as the proxy numbers them.
#[derive(Clone, Copy)]
#[repr(u32)]
pub enum Level {
    Warn = 3,
    Error = 4,
}

/// Replaces what was read with that version; whether nobody else was faster.
pub fn share(key: &str, value: &[u8], version: u32) -> bool {
    // SAFETY: the pointers and sizes are of live values.
    unsafe { proxy_set_shared_data(key.as_ptr(), key.len(), value.as_ptr(), value.len(), version) == OK }
}

/// Sets (or with None removes) a header. One that cannot be changed costs a link in the trace, never
/// the request.
pub fn edit(map: Map, name: &str, value: Option<&str>) {
    // SAFETY: the pointers and sizes are of live strings.
    let _ = unsafe {
        match value {
            Some(value) => proxy_replace_header_map_value(
                map as u32,
                name.as_ptr(),
                name.len(),
                value.as_ptr(),
                value.len(),
            ),
            None => proxy_remove_header_map_value(map as u32, name.as_ptr(), name.len()),
        }
    };
}

/// Nanoseconds since the epoch.
pub fn wall_ns() -> Option<u64> {
    // SAFETY: reads a clock into the callee's own stack slot.
    unsafe { wasip1::clock_time_get(wasip1::CLOCKID_REALTIME, 0) }.ok()
}

/// Nanoseconds of a clock that never steps back.
pub fn mono_ns() -> Option<u64> {
    // SAFETY: as above.
    unsafe { wasip1::clock_time_get(wasip1::CLOCKID_MONOTONIC, 0) }.ok()
}

/// Wall clock minus monotonic clock. The one is read between two readings of the other; of three tries
/// the shortest counts, since the thread may be put aside in the middle of one.
pub fn epoch_ns() -> Option<u64> {
    let attempt = |_| {
        let (before, wall, after) = (mono_ns()?, wall_ns()?, mono_ns()?);
        let took = after.saturating_sub(before);
        Some((took, wall.wrapping_sub(before.wrapping_add(took / 2))))
    };
    (0..3).filter_map(attempt).min().map(|(_, epoch)| epoch)
}

/// Fills `bytes` from the host's entropy; whether it could.
pub fn random(bytes: &mut [u8]) -> bool {
    // SAFETY: the pointer and length are those of `bytes`.
    unsafe { wasip1::random_get(bytes.as_mut_ptr(), bytes.len()) }.is_ok()
}

pub fn log(level: Level, message: &str) {
    // SAFETY: the pointer and length are those of `message`.
    let _ = unsafe { proxy_log(level as u32, message.as_ptr(), message.len()) };
}

pub fn tick_every(milliseconds: u32) -> bool {
    // SAFETY: no pointers.
    unsafe { proxy_set_tick_period_milliseconds(milliseconds) == OK }
}

/// The root context at hand may be deleted now.
pub fn done() {
    // SAFETY: no pointers.
    let _ = unsafe { proxy_done() };
}

/// Defines (or finds) a stat: 0 is a counter, 1 a gauge.
pub fn define_metric(kind: u32, name: &str) -> Option<u32> {
    let mut id = 0;
    // SAFETY: the pointers are of a live string and of this stack.
    (unsafe { proxy_define_metric(kind, name.as_ptr(), name.len(), &raw mut id) } == OK).then_some(id)
}

pub fn increment_metric(id: u32, offset: i64) {
    // SAFETY: no pointers.
    let _ = unsafe { proxy_increment_metric(id, offset) };
}

pub fn get_metric(id: u32) -> Option<u64> {
    let mut value = 0;
    // SAFETY: the pointer is of this stack.
    (unsafe { proxy_get_metric(id, &raw mut value) } == OK).then_some(value)
}

/// Starts a unary call; its answer will carry the token.
pub fn grpc_call(cluster: &str, service: &str, method: &str, message: &[u8], timeout_ms: u32) -> Option<u32> {
    let mut token = 0;
    // SAFETY: the pointers and sizes are of live values; no metadata is an empty range.
    let status = unsafe {
        proxy_grpc_call(
            cluster.as_ptr(),
            cluster.len(),
            service.as_ptr(),
            service.len(),
            method.as_ptr(),
            method.len(),
            null(),
            0,
            message.as_ptr(),
            message.len(),
            timeout_ms,
            &raw mut token,
        )
    };
    (status == OK).then_some(token)
}
