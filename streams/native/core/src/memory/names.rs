//! Table of the strings of one partition. Each string is stored once, and spans hold its number.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

/// A string of a `Names` table. Numbers follow the order of first use and have no meaning outside
/// the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Sym(pub u32);

impl Sym {
    /// The empty string.
    pub const NONE: Sym = Sym(0);

    pub fn is_none(self) -> bool {
        self == Sym::NONE
    }
}

/// Size of a table, in bytes, below which it is never crowded.
const ROOMY: usize = 4 << 20;

/// A table of strings. It grows with every new string until its owner calls `compact` with the
/// `Sym`s that are still in use.
///
/// The owner checks `is_crowded` between messages. Even with hostile strings, the table thus needs
/// at most twice the memory of the open spans' strings, plus a few megabytes and one message.
#[derive(Debug)]
pub struct Names {
    /// All strings, one after the other. The empty one is first.
    text: String,
    /// End of each string in `text`.
    ends: Vec<usize>,
    index: HashTable<u32>,
    hasher: DefaultHashBuilder,
    generation: u32,
    crowded_at: usize,
}

impl Default for Names {
    fn default() -> Self {
        let (index, hasher) = (HashTable::new(), DefaultHashBuilder::default());
        Names { text: String::new(), ends: vec![0], index, hasher, generation: 0, crowded_at: ROOMY }
    }
}

impl Names {
    /// Returns the number of a text. A new text is copied into the table.
    pub fn intern(&mut self, text: &str) -> Sym {
        let Some(hash) = self.hash(text.as_bytes()) else { return Sym::NONE };
        self.find(hash, text.as_bytes()).unwrap_or_else(|| self.insert(hash, text))
    }

    /// Like `intern`, but returns None when the bytes are not UTF-8. Only new strings are checked.
    pub fn intern_utf8(&mut self, bytes: &[u8]) -> Option<Sym> {
        let Some(hash) = self.hash(bytes) else { return Some(Sym::NONE) };
        match self.find(hash, bytes) {
            Some(sym) => Some(sym),
            None => Some(self.insert(hash, std::str::from_utf8(bytes).ok()?)),
        }
    }

    /// Returns the text of a number. Empty for a number that is not in this table.
    pub fn text(&self, sym: Sym) -> &str {
        text_at(&self.text, &self.ends, sym.0)
    }

    /// Number of strings, including the empty one. Every `Sym` is below it.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether the table only holds the empty string.
    pub fn is_empty(&self) -> bool {
        self.len() == 1
    }

    /// Number of calls of `compact`. Anything that was remembered by `Sym` before the last call is
    /// void.
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// Whether it is time to `compact`: the table is no longer small, and twice as large as after
    /// the last call.
    pub fn is_crowded(&self) -> bool {
        self.size() > self.crowded_at
    }

    /// Forgets every string except those that `live` yields, and writes the new numbers into
    /// `live`.
    ///
    /// `live` must yield every `Sym` that will be used again, once for each place that holds it.
    pub fn compact<'a>(&mut self, live: impl IntoIterator<Item = &'a mut Sym>) {
        let (text, ends) = (std::mem::take(&mut self.text), std::mem::replace(&mut self.ends, vec![0]));
        self.index.clear();
        let mut moved: Vec<Option<Sym>> = vec![None; ends.len()];
        for sym in live {
            let known = moved.get_mut(sym.0 as usize);
            let new = known.as_deref().copied().flatten();
            let new = new.unwrap_or_else(|| self.intern(text_at(&text, &ends, sym.0)));
            if let Some(known) = known {
                *known = Some(new);
            }
            *sym = new;
        }
        let (ends, hasher, all) = (&self.ends, &self.hasher, &self.text);
        self.index.shrink_to(0, |at| hasher.hash_one(text_at(all, ends, *at).as_bytes()));
        self.generation = self.generation.wrapping_add(1);
        self.crowded_at = ROOMY.max(2 * self.size());
    }

    fn size(&self) -> usize {
        self.text.len() + self.ends.len() * (size_of::<usize>() + size_of::<u32>() + 1)
    }

    /// Returns None for the empty string, whose number needs no look-up.
    fn hash(&self, bytes: &[u8]) -> Option<u64> {
        (!bytes.is_empty()).then(|| self.hasher.hash_one(bytes))
    }

    fn find(&self, hash: u64, bytes: &[u8]) -> Option<Sym> {
        let same = |at: &u32| text_at(&self.text, &self.ends, *at).as_bytes() == bytes;
        self.index.find(hash, same).map(|at| Sym(*at))
    }

    fn insert(&mut self, hash: u64, text: &str) -> Sym {
        let at = self.ends.len() as u32;
        self.text.push_str(text);
        self.ends.push(self.text.len());
        let (ends, hasher, all) = (&self.ends, &self.hasher, &self.text);
        self.index.insert_unique(hash, at, |at| hasher.hash_one(text_at(all, ends, *at).as_bytes()));
        Sym(at)
    }
}

fn text_at<'a>(text: &'a str, ends: &[usize], at: u32) -> &'a str {
    let at = at as usize;
    let start = at.checked_sub(1).and_then(|before| ends.get(before));
    let (Some(start), Some(end)) = (start, ends.get(at)) else { return "" };
    text.get(*start..*end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Each text has one number and each number one text. The empty text has the number
    /// `Sym::NONE`.
    #[test]
    fn a_text_has_one_number() {
        let mut names = Names::default();
        let (a, b) = (names.intern("a"), names.intern("bé"));
        assert_ne!(a, b);
        assert_eq!((names.intern_utf8(b"a"), names.intern_utf8("bé".as_bytes())), (Some(a), Some(b)));
        assert_eq!((names.text(a), names.text(b), names.text(Sym::NONE)), ("a", "bé", ""));
        assert_eq!((names.intern(""), names.intern_utf8(b""), names.len()), (Sym::NONE, Some(Sym::NONE), 3));
        assert_eq!((names.intern_utf8(b"\xff"), names.intern_utf8(b"b\xc3"), names.len()), (None, None, 3));
        assert_eq!(names.text(Sym(99)), "");
    }

    /// Strings that nobody holds are removed. Held numbers keep their text, and the numbers become
    /// small again.
    #[test]
    fn compacting_forgets_what_is_not_held() {
        let mut names = Names::default();
        let mut held: Vec<_> = ["x", "", "y", "x"].map(|text| names.intern(text)).into();
        while !names.is_crowded() {
            names.intern(&format!("{:0200}", names.len()));
        }
        let before = (names.generation(), names.text.capacity());
        names.compact(&mut held);
        assert_eq!(held.iter().map(|sym| names.text(*sym)).collect::<Vec<_>>(), ["x", "", "y", "x"]);
        assert_eq!((held[0], names.len()), (held[3], 3));
        assert!(!names.is_crowded() && names.generation() != before.0 && names.text.capacity() < before.1);
        assert_eq!((names.intern("x"), names.intern("y")), (held[0], held[2]));
    }

    /// The limit depends on the held strings: a table that had to keep many is not crowded again at
    /// once.
    #[test]
    fn the_bound_follows_what_is_held() {
        let mut names = Names::default();
        let mut held: Vec<_> = (0..50_000).map(|number| names.intern(&format!("{number:0200}"))).collect();
        assert!(names.is_crowded());
        names.compact(&mut held);
        assert!(!names.is_crowded());
        assert_eq!(names.text(held[49_999]), format!("{:0200}", 49_999));
    }

    proptest! {
        /// Whatever is interned and compacted, every held number keeps its text.
        #[test]
        fn held_numbers_keep_their_texts(rounds in proptest::collection::vec(
            proptest::collection::vec(("[ab]{0,3}", any::<bool>()), 0..20), 0..6,
        )) {
            let (mut names, mut held) = (Names::default(), Vec::<(Sym, String)>::new());
            for round in rounds {
                for (text, keep) in round {
                    let sym = names.intern(&text);
                    if keep {
                        held.push((sym, text));
                    }
                }
                names.compact(held.iter_mut().map(|(sym, _)| sym));
                for (sym, text) in &held {
                    prop_assert_eq!(names.text(*sym), text);
                    prop_assert_eq!(names.intern(text), *sym);
                }
            }
        }
    }
}
