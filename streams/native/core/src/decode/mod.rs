//! Decodes OTLP payloads into validated spans. No span is remembered between messages. Rejected
//! spans are returned with their reason.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

pub(crate) mod attributes;
pub(crate) mod caches;
pub mod keys;
pub mod otlp;
pub(crate) mod outcome;
pub(crate) mod peer;
pub(crate) mod raw;
pub(crate) mod reading;
pub(crate) mod rejects;
pub mod sampling;
pub(crate) mod semconv;
pub mod wire;
