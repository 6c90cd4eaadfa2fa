//! The strings of one partition, each stored once, and their cached hashes.

pub mod names;
pub mod texts;
