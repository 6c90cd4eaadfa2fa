//! Tests of the decoder, compared with the published message types.

mod absurd;
mod differential;
mod payload;
mod spans;
mod templates;
mod tracers;
