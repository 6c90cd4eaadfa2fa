//! Per-class values of one worker, looked up by route name.
//!
//! Their number is bounded, because Envoy never removes a stat once it is defined. Workers agree on
//! the classes that get their own stats. Otherwise each worker would choose the classes that it met
//! first, and a class would have its own stat on one worker but not on another. The agreed table
//! only grows. A worker therefore reads it once per new class, and never again after it has seen
//! the table full.

use std::collections::{HashMap, HashSet};

/// Number of classes that have their own load stats. All further classes share one.
pub const MAX_CLASSES: usize = 256;
/// Tries to append a class to the shared table. Each try fails only when another worker appended
/// first. After the last one, the request is not counted by class.
const MAX_TRIES: usize = 16;

/// The table shared by all workers: names in sequence, each preceded by its length (little-endian
/// u16).
pub trait Table {
    /// Returns the table, which is empty at first, and its version. None when it is unavailable.
    fn read(&mut self) -> Option<(&[u8], u32)>;

    /// Replaces the table if it still has that version. Returns whether it was replaced.
    fn replace(&mut self, table: &[u8], version: u32) -> bool;
}

/// The place where a class's value is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// The class has its own value.
    Own(usize),
    /// The class shares the overflow value with every class beyond the limit.
    Overflow,
}

/// One `T` per class, created when the class is first seen.
#[derive(Debug)]
pub struct Classes<T> {
    places: HashMap<String, usize>,
    values: Vec<T>,
    overflow: Option<T>,
    /// All classes with their own value. Set once this worker has seen the table full.
    chosen: Option<HashSet<String>>,
}

impl<T> Default for Classes<T> {
    fn default() -> Self {
        Self { places: HashMap::new(), values: Vec::new(), overflow: None, chosen: None }
    }
}

impl<T> Classes<T> {
    /// Returns the slot of a class.
    ///
    /// `make` creates the value for the given class name, or the shared value for None. Returns
    /// None when `make` fails or the table is unavailable. The next request then tries again.
    pub fn slot(
        &mut self,
        name: &str,
        table: &mut impl Table,
        make: impl FnOnce(Option<&str>) -> Option<T>,
    ) -> Option<Slot> {
        if let Some(at) = self.places.get(name) {
            return Some(Slot::Own(*at));
        }
        if !self.has_own(name, table)? {
            if self.overflow.is_none() {
                self.overflow = Some(make(None)?);
            }
            return Some(Slot::Overflow);
        }
        self.values.push(make(Some(name))?);
        let at = self.values.len() - 1;
        self.places.insert(name.to_string(), at);
        Some(Slot::Own(at))
    }

    fn has_own(&mut self, name: &str, table: &mut impl Table) -> Option<bool> {
        if let Some(chosen) = &self.chosen {
            return Some(chosen.contains(name));
        }
        for _ in 0..MAX_TRIES {
            let (bytes, version) = table.read()?;
            let known = names(bytes).any(|known| known == name);
            if names(bytes).count() >= MAX_CLASSES {
                self.chosen = Some(names(bytes).map(str::to_string).collect());
            }
            if known || self.chosen.is_some() {
                return Some(known);
            }
            let longer = appended(bytes, name)?;
            if table.replace(&longer, version) {
                return Some(true);
            }
        }
        None
    }

    /// Creates the missing values for all classes that any worker has met.
    pub fn meet_all(&mut self, table: &mut impl Table, mut make: impl FnMut(Option<&str>) -> Option<T>) {
        let Some((bytes, _)) = table.read() else { return };
        for name in names(bytes) {
            if !self.places.contains_key(name)
                && let Some(value) = make(Some(name))
            {
                self.values.push(value);
                self.places.insert(name.to_string(), self.values.len() - 1);
            }
        }
        if self.overflow.is_none() && names(bytes).count() >= MAX_CLASSES {
            self.overflow = make(None);
        }
    }

    /// Iterates over each class with its own value by name, then the shared value without a name.
    pub fn iter(&self) -> impl Iterator<Item = (Option<&str>, &T)> {
        let named =
            self.places.iter().filter_map(|(name, at)| Some((Some(name.as_str()), self.values.get(*at)?)));
        named.chain(self.overflow.iter().map(|shared| (None, shared)))
    }

    /// Returns the value in a slot.
    pub fn get(&self, slot: Slot) -> Option<&T> {
        match slot {
            Slot::Own(at) => self.values.get(at),
            Slot::Overflow => self.overflow.as_ref(),
        }
    }

    /// Iterates over all values, including the shared one.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.values.iter_mut().chain(self.overflow.as_mut())
    }
}

/// Iterates over the names in a table. Iteration stops at the first malformed entry.
pub fn names(mut table: &[u8]) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || {
        let (len, rest) = table.split_first_chunk()?;
        let (name, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*len)))?;
        table = rest;
        std::str::from_utf8(name).ok()
    })
}

/// Returns the table with one name appended. None when the name is too long for its length field.
pub fn appended(table: &[u8], name: &str) -> Option<Vec<u8>> {
    let mut longer = Vec::with_capacity(table.len() + name.len() + 2);
    for name in names(table).chain([name]) {
        longer.extend_from_slice(&u16::try_from(name.len()).ok()?.to_le_bytes());
        longer.extend_from_slice(name.as_bytes());
    }
    Some(longer)
}

#[cfg(test)]
#[path = "classes_tests.rs"]
mod tests;
