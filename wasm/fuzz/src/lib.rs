//! One function per parser of the core. Each takes any bytes, and panics where a property is broken
//! that must hold for all of them; that the core itself does not panic is the least of these.

mod answers;
mod exchange;
mod names;
mod trace;

use spillway_fuzzing::Target;

/// Every target by its name, which is also its folder of seeds.
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
