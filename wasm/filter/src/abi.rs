//! The host functions of Proxy-Wasm ABI 0.2.1 that the filter calls.
//! Source: <https://github.com/proxy-wasm/spec/tree/main/abi-versions/v0.2.1>.

#[link(wasm_import_module = "env")]
unsafe extern "C" {
    pub fn proxy_log(level: u32, data: *const u8, size: usize) -> u32;
    pub fn proxy_set_tick_period_milliseconds(period: u32) -> u32;
    pub fn proxy_done() -> u32;
    pub fn proxy_get_buffer_bytes(
        kind: u32,
        start: usize,
        max: usize,
        data: *mut *mut u8,
        size: *mut usize,
    ) -> u32;
    pub fn proxy_get_header_map_pairs(map: u32, data: *mut *mut u8, size: *mut usize) -> u32;
    pub fn proxy_replace_header_map_value(
        map: u32,
        key: *const u8,
        keys: usize,
        value: *const u8,
        size: usize,
    ) -> u32;
    pub fn proxy_remove_header_map_value(map: u32, key: *const u8, keys: usize) -> u32;
    pub fn proxy_get_property(path: *const u8, paths: usize, data: *mut *mut u8, size: *mut usize) -> u32;
    pub fn proxy_get_shared_data(
        key: *const u8,
        keys: usize,
        data: *mut *mut u8,
        size: *mut usize,
        version: *mut u32,
    ) -> u32;
    pub fn proxy_set_shared_data(
        key: *const u8,
        keys: usize,
        value: *const u8,
        size: usize,
        version: u32,
    ) -> u32;
    pub fn proxy_define_metric(kind: u32, name: *const u8, size: usize, id: *mut u32) -> u32;
    pub fn proxy_increment_metric(id: u32, offset: i64) -> u32;
    pub fn proxy_get_metric(id: u32, value: *mut u64) -> u32;
    pub fn proxy_grpc_call(
        cluster: *const u8,
        cluster_size: usize,
        service: *const u8,
        service_size: usize,
        method: *const u8,
        method_size: usize,
        metadata: *const u8,
        metadata_size: usize,
        message: *const u8,
        message_size: usize,
        timeout_ms: u32,
        token: *mut u32,
    ) -> u32;
}
