//! What a worker keeps per traffic class, found by the route's name; bounded, because a stat that was
//! once defined stays in the proxy for good.
//!
//! Which classes have their own is agreed between workers, or each would choose by what it meets first:
//! one class would be counted here and lost in the shared stat there. The table of the chosen only grows, so
//! a worker looks into it once per class that it meets, and no more when it has seen it full.

use std::collections::{HashMap, HashSet};

/// Classes that have load stats of their own. Beyond, they share one.
pub const MAX_CLASSES: usize = 256;
/// Other workers append at most that often in between, before a request goes uncounted by class.
const MAX_TRIES: usize = 16;

/// The table that all workers see: names one after the other, each after its length (little-endian u16).
pub trait Table {
    /// The table and its version, at first empty; None where it cannot be had.
    fn read(&mut self) -> Option<(&[u8], u32)>;

    /// Replaces what was read with that version; whether nobody else was faster.
    fn replace(&mut self, table: &[u8], version: u32) -> bool;
}

/// Where a class is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// Its own.
    Own(usize),
    /// Shared by every class beyond the bound.
    Overflow,
}

/// `T` per class, made when the class is first seen.
#[derive(Debug)]
pub struct Classes<T> {
    places: HashMap<String, usize>,
    values: Vec<T>,
    overflow: Option<T>,
    /// All that have their own, once the table was seen full.
    chosen: Option<HashSet<String>>,
}

impl<T> Default for Classes<T> {
    fn default() -> Self {
        Self { places: HashMap::new(), values: Vec::new(), overflow: None, chosen: None }
    }
}

impl<T> Classes<T> {
    /// The class's slot. `make` makes what is kept there, given its name, or None for the shared one;
    /// where it cannot, or the table cannot be had, there is no slot and the next request tries again.
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

    /// Makes what is missing here of the classes that any worker has met.
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

    /// Every class that has its own by name, then the shared one without.
    pub fn iter(&self) -> impl Iterator<Item = (Option<&str>, &T)> {
        let own =
            self.places.iter().filter_map(|(name, at)| Some((Some(name.as_str()), self.values.get(*at)?)));
        own.chain(self.overflow.iter().map(|shared| (None, shared)))
    }

    /// What is kept there.
    pub fn get(&self, slot: Slot) -> Option<&T> {
        match slot {
            Slot::Own(at) => self.values.get(at),
            Slot::Overflow => self.overflow.as_ref(),
        }
    }

    /// Everything that is kept, the shared one too.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.values.iter_mut().chain(self.overflow.as_mut())
    }
}

/// The names in a table; they end where the bytes are none.
pub fn names(mut table: &[u8]) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || {
        let (len, rest) = table.split_first_chunk()?;
        let (name, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*len)))?;
        table = rest;
        std::str::from_utf8(name).ok()
    })
}

/// The table with one name more; None where that is too long for it.
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
