//! libFuzzer around one target, which `SPILLWAY_FUZZ_TARGET` names. `run` builds and starts it.
#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use spillway_filter_fuzz::{TARGETS, Target, named};

static TARGET: OnceLock<Target> = OnceLock::new();

fn target() -> Target {
    let name = std::env::var("SPILLWAY_FUZZ_TARGET").unwrap_or_default();
    named(&name).unwrap_or_else(|| {
        let known: Vec<_> = TARGETS.iter().map(|(name, _)| *name).collect();
        eprintln!("SPILLWAY_FUZZ_TARGET: {name:?} is not a target, expected one of {}", known.join(", "));
        std::process::exit(64)
    })
}

fuzz_target!(|data: &[u8]| TARGET.get_or_init(target)(data));
