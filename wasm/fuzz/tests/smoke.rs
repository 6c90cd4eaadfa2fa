//! A short deterministic run of every target, for the test suite: each seed as it is, and some
//! thousands of small changes of it. `run` looks further, guided by coverage.

use std::fs;
use std::path::{Path, PathBuf};

use spillway_filter_fuzz::TARGETS;

const CHANGES: u64 = 4_000;

/// SplitMix64: the same sequence everywhere.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % bound.max(1) as u64) as usize
    }
}

fn seeds(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds").join(target);
    let listed = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<_> = listed.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

/// One to four edits: a bit, a byte, a cut, a repetition, or a piece of another seed.
fn change(seed: &[u8], other: &[u8], draw: &mut Draw) -> Vec<u8> {
    let mut out = seed.to_vec();
    for _ in 0..=draw.below(4) {
        let at = draw.below(out.len() + 1);
        match draw.below(5) {
            0 if at < out.len() => out[at] ^= 1 << draw.below(8),
            1 => out.insert(at, draw.below(256) as u8),
            2 => out.truncate(at),
            3 => out.extend_from_within(at..),
            _ => {
                let from = draw.below(other.len() + 1);
                let piece = &other[from..from + draw.below(other.len() - from + 1)];
                out.splice(at..at, piece.iter().copied());
            }
        }
        out.truncate(1 << 14);
    }
    out
}

/// Every target holds for its seeds and their neighbours. What breaks it is printed as bytes.
#[test]
fn seeds_and_their_neighbours() {
    for (name, target) in TARGETS {
        let seeds = seeds(name);
        assert!(!seeds.is_empty(), "{name}: no seeds");
        let mut draw = Draw(1);
        let run = |from: &Path, data: &[u8]| {
            let outcome = std::panic::catch_unwind(|| target(data));
            assert!(outcome.is_ok(), "{name}, from {}: {}", from.display(), data.escape_ascii());
        };
        for (path, seed) in &seeds {
            run(path, seed);
        }
        for _ in 0..CHANGES {
            let (path, seed) = &seeds[draw.below(seeds.len())];
            let (_, other) = &seeds[draw.below(seeds.len())];
            run(path, &change(seed, other, &mut draw));
        }
    }
}
