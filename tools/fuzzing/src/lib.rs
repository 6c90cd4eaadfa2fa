//! Helpers that every crate of fuzz targets needs: the choice of a target, and a short run of all
//! targets.

use std::fs;
use std::path::{Path, PathBuf};

/// A fuzz target: panics if a property is broken for the given bytes.
pub type Target = fn(&[u8]);

/// Returns the target that the environment variable `SPILLWAY_FUZZ_TARGET` names. Ends the process
/// with status 64 if it names none.
pub fn chosen(targets: &[(&str, Target)]) -> Target {
    let name = std::env::var("SPILLWAY_FUZZ_TARGET").unwrap_or_default();
    let found = targets.iter().find(|(known, _)| *known == name);
    found.map(|(_, target)| *target).unwrap_or_else(|| {
        let known: Vec<_> = targets.iter().map(|(name, _)| *name).collect();
        eprintln!("SPILLWAY_FUZZ_TARGET: {name:?} is not a target, expected one of {}", known.join(", "));
        std::process::exit(64)
    })
}

/// Runs every target briefly and deterministically, for a test suite.
///
/// Each seed in `folder`/seeds/TARGET is run unchanged, followed by 4 000 random mutations per
/// target. Panics if a target does, and prints the bytes that broke it.
pub fn seeds_and_neighbours(folder: &str, targets: &[(&str, Target)]) {
    for (name, target) in targets {
        let seeds = seeds(&Path::new(folder).join("seeds").join(name));
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

const CHANGES: u64 = 4_000;

/// SplitMix64 generator. It yields the same sequence on every machine.
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

fn seeds(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let listed = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<_> = listed.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

/// Applies one to four edits: a flipped bit, an inserted byte, a cut, a repetition, or a piece of
/// another seed.
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
