//! Strings of one partition, each held once, and what is asked of them again and again.

pub mod names;
pub mod texts;
