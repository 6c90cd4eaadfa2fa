//! What decoding makes of payloads, held against the published message types.

mod absurd;
mod differential;
mod payload;
mod spans;
mod templates;
mod tracers;
