//! What a worker keeps per traffic class, found by the route's name; bounded, because a stat that was
//! once defined stays in the proxy for good.

use std::collections::HashMap;

/// Classes that have load stats of their own. Beyond, they share one.
pub const MAX_CLASSES: usize = 256;

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
}

impl<T> Default for Classes<T> {
    fn default() -> Self {
        Self { places: HashMap::new(), values: Vec::new(), overflow: None }
    }
}

impl<T> Classes<T> {
    /// The class's slot. `make` makes what is kept there, given its name, or None for the shared one;
    /// where it cannot, there is no slot and the next request tries again.
    pub fn slot(&mut self, name: &str, make: impl FnOnce(Option<&str>) -> Option<T>) -> Option<Slot> {
        if let Some(at) = self.places.get(name) {
            return Some(Slot::Own(*at));
        }
        if self.values.len() >= MAX_CLASSES {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A class keeps its slot; beyond the bound all share one; what cannot be made is tried again.
    #[test]
    fn bounded() {
        let mut classes = Classes::default();
        let mut made = 0;
        for round in 0..2 {
            for nth in 0..MAX_CLASSES + 10 {
                let slot = classes.slot(&format!("class {nth}"), |name| {
                    made += 1;
                    Some(name.map(str::to_string))
                });
                let own = slot.and_then(|slot| classes.get(slot)).unwrap();
                assert_eq!(own.is_some(), nth < MAX_CLASSES, "{nth} in round {round}");
            }
        }
        assert_eq!((made, classes.iter_mut().count()), (MAX_CLASSES + 1, MAX_CLASSES + 1));
        let mut empty = Classes::<u8>::default();
        assert_eq!(empty.slot("a", |_| None), None);
        assert_eq!(empty.slot("a", |_| Some(1)), Some(Slot::Own(0)));
    }
}
