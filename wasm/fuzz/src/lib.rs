//! Fuzz targets, one function per parser of the core.
//!
//! Each function takes any bytes, and panics if a property is broken that must hold for all input.
//! The weakest of these properties is that the core itself does not panic.

mod answers;
mod exchange;
mod names;
mod trace;

use spillway_fuzzing::Target;

/// All targets by name. The name of a target is also the folder of its seeds.
pub const TARGETS: [(&str, Target); 13] = [
    ("traceparent", trace::traceparent),
    ("tracestate", trace::tracestate),
    ("b3_single", trace::b3_single),
    ("b3_multi", trace::b3_multi),
    ("trace_headers", trace::headers),
    ("decimal", answers::decimal),
    ("exchange", exchange::exchange),
    ("config", names::config),
    ("class", names::class),
    ("chosen_classes", names::chosen_classes),
    ("grpc_method", names::grpc_method),
    ("otlp_answer", answers::otlp_answer),
    ("ruleset_version", answers::ruleset_version),
];
