//! Cached hashes of names. A hash is the same in every process.

use twox_hash::XxHash64;

use crate::memory::names::{Names, Sym};

/// XxHash64 (seed 0) of a name. It decides the Kafka partition of the name, as in the collector's
/// exporter.
pub fn hash(text: &str) -> u64 {
    XxHash64::oneshot(0, text.as_bytes())
}

/// Hashes of names, each computed once per generation of the table.
#[derive(Debug, Default)]
pub(crate) struct Texts {
    hashes: Vec<Option<u64>>,
    generation: u32,
}

impl Texts {
    pub fn hash(&mut self, names: &Names, sym: Sym) -> u64 {
        if self.generation != names.generation() {
            self.hashes.clear();
            self.generation = names.generation();
        }
        let at = sym.0 as usize;
        if at >= self.hashes.len() {
            self.hashes.resize(names.len().max(at + 1), None);
        }
        match self.hashes[at] {
            Some(known) => known,
            None => *self.hashes[at].insert(hash(names.text(sym))),
        }
    }
}

/// Folds the two halves of a 64 x 64 bit product, which spreads bits that are not random.
pub(crate) fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ ((product >> 64) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_the_one_that_the_collector_uses() {
        // Published values of XXH64 with seed 0.
        assert_eq!(hash(""), 0xEF46_DB37_51D8_E999);
        assert_eq!(hash("a"), 0xD24E_C4F1_A98C_6E5B);
    }
}
