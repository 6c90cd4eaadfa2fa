//! Runs every fuzz target on its seeds. `tools/fuzzing/run` explores further, guided by coverage.

/// Every target holds for its seeds and for mutations of them.
#[test]
fn seeds_and_their_neighbours() {
    spillway_fuzzing::seeds_and_neighbours(env!("CARGO_MANIFEST_DIR"), &spillway_spans_fuzz::TARGETS);
}
