//! One request from arrival to end: its headers, its caller, its properties, and how it ended.

pub mod caller;
pub mod exchange;
pub mod flags;
pub mod grpc;
pub mod headers;
pub mod message;
pub mod outcome;
pub mod property;
