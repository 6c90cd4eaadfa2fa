//! Host calls that give bytes. What the proxy does not have, or fails to give, is None.
//!
//! The proxy hands out memory through [`allocate`], which lends one buffer over and over: what a call
//! gives is borrowed from [`Given`], so the next call cannot be made while it is in use.

use std::cell::UnsafeCell;

use spillway_filter_core::headers::Pairs;
use spillway_filter_core::property::{Properties, Property};

use crate::abi::*;
use crate::host::{Buffer, Map, OK};

const NOT_FOUND: u32 = 1;
/// The proxy counts versions up from 1 and takes 0 for "whatever is there": with one that it will not have
/// given, only who comes first writes. Source: proxy-wasm-cpp-host, `SharedData::set`.
const NO_VERSION: u32 = u32::MAX;

/// More than any header map; a larger gift is given back.
const LENT_MAX: usize = 1 << 20;

struct Lent(UnsafeCell<Vec<u8>>);
// SAFETY: a VM has one thread.
unsafe impl Sync for Lent {}
static LENT: Lent = Lent(UnsafeCell::new(Vec::new()));

/// Memory for the proxy to write the result of the call under way into.
pub fn allocate(size: usize) -> *mut u8 {
    // SAFETY: one thread, and `Given` lets no borrow of the last gift live into a new call.
    let lent = unsafe { &mut *LENT.0.get() };
    if lent.capacity() > LENT_MAX && size <= LENT_MAX {
        *lent = Vec::new();
    }
    lent.clear();
    lent.reserve(size);
    lent.as_mut_ptr()
}

/// Whoever holds it may ask the proxy for memory; there is one per VM.
pub struct Given(());

impl Given {
    /// # Safety
    /// A VM makes one: two could each lend out the one buffer.
    pub const unsafe fn the_only_one() -> Self {
        Self(())
    }

    /// A header map, serialized.
    pub fn headers(&mut self, map: Map) -> &[u8] {
        // SAFETY: both pointers are of the callee's stack.
        self.take(|data, size| unsafe { proxy_get_header_map_pairs(map as u32, data, size) })
            .unwrap_or_default()
    }

    /// A buffer, `max` bytes of it at most.
    pub fn buffer(&mut self, buffer: Buffer, max: usize) -> Option<&[u8]> {
        // SAFETY: as above.
        self.take(|data, size| unsafe { proxy_get_buffer_bytes(buffer as u32, 0, max, data, size) })
    }

    /// What VMs of one `vm_id` share under this key, with its version; empty where nobody wrote yet.
    pub fn shared(&mut self, key: &str) -> Option<(&[u8], u32)> {
        let (mut version, mut status) = (0, OK);
        let found = self.take(|data, size| {
            // SAFETY: the key is a live string, the pointers are of the callee's stack.
            status = unsafe { proxy_get_shared_data(key.as_ptr(), key.len(), data, size, &raw mut version) };
            status
        });
        match found {
            Some(bytes) => Some((bytes, version)),
            None if status == NOT_FOUND => Some((&[], NO_VERSION)),
            None => None,
        }
    }

    fn take(&mut self, call: impl FnOnce(*mut *mut u8, *mut usize) -> u32) -> Option<&[u8]> {
        let (mut data, mut size) = (std::ptr::null_mut(), 0usize);
        if call(&raw mut data, &raw mut size) != OK || data.is_null() {
            return None;
        }
        // SAFETY: the proxy wrote `size` bytes at what `allocate` gave it, and nothing is lent again
        // before this borrow ends.
        Some(unsafe { std::slice::from_raw_parts(data, size) })
    }
}

impl Properties for Given {
    fn get(&mut self, property: Property) -> Option<&[u8]> {
        let path = property.path();
        // SAFETY: the path is static, the pointers are of the callee's stack.
        self.take(|data, size| unsafe { proxy_get_property(path.as_ptr(), path.len(), data, size) })
    }

    fn request_header_bytes(&mut self) -> Option<u64> {
        let sizes =
            Pairs::new(self.headers(Map::Request)).map(|(name, value)| (name.len() + value.len()) as u64);
        Some(sizes.sum()).filter(|bytes| *bytes > 0)
    }
}
