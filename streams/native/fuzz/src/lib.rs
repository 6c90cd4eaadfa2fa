//! Fuzz targets, one function per parser of input from outside.
//!
//! Each function takes any bytes, and panics if a property is broken that must hold for all input.
//! The weakest of these properties is that the parser itself does not panic.

mod payloads;
mod texts;

use spillway_fuzzing::Target;

/// All targets by name. The name of a target is also the folder of its seeds.
pub const TARGETS: [(&str, Target); 7] = [
    ("request", payloads::request),
    ("attributes", payloads::attributes),
    ("caches", payloads::caches),
    ("path_template", texts::path_template),
    ("route_template", texts::route_template),
    ("class_id", texts::class_id),
    ("tracestate", texts::tracestate),
];
