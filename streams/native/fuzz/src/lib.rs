//! One function per reader of strangers' bytes. Each takes any bytes, and panics where a property is broken that
//! must hold for all of them; that the reader itself does not panic is the least of these.

mod payloads;
mod texts;

use spillway_fuzzing::Target;

/// Every target by its name, which is also its folder of seeds.
pub const TARGETS: [(&str, Target); 7] = [
    ("request", payloads::request),
    ("attributes", payloads::attributes),
    ("caches", payloads::caches),
    ("path_template", texts::path_template),
    ("route_template", texts::route_template),
    ("class_id", texts::class_id),
    ("tracestate", texts::tracestate),
];
