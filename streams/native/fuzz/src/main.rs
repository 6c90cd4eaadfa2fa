//! Runs libFuzzer on the target that `SPILLWAY_FUZZ_TARGET` names. `tools/fuzzing/run` builds and
//! starts it.
#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use spillway_fuzzing::{Target, chosen};
use spillway_spans_fuzz::TARGETS;

static TARGET: OnceLock<Target> = OnceLock::new();

fuzz_target!(|data: &[u8]| TARGET.get_or_init(|| chosen(&TARGETS))(data));
