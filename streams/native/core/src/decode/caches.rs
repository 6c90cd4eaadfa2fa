//! Caches of a decoder: which strings are class ids, and which templates paths have.

use std::hash::BuildHasher;

use hashbrown::DefaultHashBuilder;

use crate::classes::class_id::{MAX_CLASS, is_class_id};
use crate::classes::template::{put_path, put_route};
use crate::decode::semconv::{MAX_PATH, Path};
use crate::memory::names::{Names, Sym};

/// Number of slots in the template cache. Each path has one slot, in which the newest path stays.
const PATHS: usize = 4096;
/// Longest path, in bytes, that is cached. This bounds the size of the cache.
const MAX_REMEMBERED: usize = 256;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Validity {
    #[default]
    Unknown,
    Valid,
    Invalid,
}

#[derive(Clone, Debug, Default)]
struct Remembered {
    path: Vec<u8>,
    is_route: bool,
    template: Sym,
}

/// Caches of symbols. They are cleared when the names are compacted.
#[derive(Debug, Default)]
pub struct Caches {
    generation: u32,
    classes: Vec<Validity>,
    paths: Vec<Remembered>,
    hasher: DefaultHashBuilder,
    scratch: Vec<u8>,
    joined: Vec<u8>,
}

impl Caches {
    /// Clears the caches if the names were compacted. Must be called first for every message.
    pub fn renew(&mut self, names: &Names) {
        if self.generation != names.generation() || self.paths.is_empty() {
            self.generation = names.generation();
            self.classes.clear();
            self.paths.clear();
            self.paths.resize(PATHS, Remembered::default());
        }
    }

    /// Returns the class id that a text is. NONE when the text is not a class id.
    #[inline]
    pub fn class(&mut self, text: &[u8], names: &mut Names) -> Sym {
        if text.is_empty() || text.len() > MAX_CLASS {
            return Sym::NONE;
        }
        let Some(sym) = names.intern_utf8(text) else { return Sym::NONE };
        match self.classes.get(sym.0 as usize) {
            Some(Validity::Valid) => sym,
            Some(Validity::Invalid) => Sym::NONE,
            _ => self.judge(sym, names),
        }
    }

    #[cold]
    fn judge(&mut self, sym: Sym, names: &Names) -> Sym {
        let is_class = is_class_id(names.text(sym));
        self.classes.resize(self.classes.len().max(names.len()), Validity::Unknown);
        if let Some(known) = self.classes.get_mut(sym.0 as usize) {
            *known = if is_class { Validity::Valid } else { Validity::Invalid };
        }
        if is_class { sym } else { Sym::NONE }
    }

    /// Returns the template of a path.
    pub fn template(&mut self, path: Path<'_>, names: &mut Names) -> Sym {
        match path {
            Path::None => Sym::NONE,
            Path::Raw(path) => self.remembered(path, false, names),
            Path::Route(route) => self.remembered(route, true, names),
            Path::Rpc(service, method) => {
                let mut joined = std::mem::take(&mut self.joined);
                joined.clear();
                for part in [b"/", service, b"/", method] {
                    joined.extend_from_slice(part);
                }
                joined.truncate(MAX_PATH);
                let template = self.remembered(&joined, true, names);
                self.joined = joined;
                template
            }
        }
    }

    fn remembered(&mut self, path: &[u8], is_route: bool, names: &mut Names) -> Sym {
        let hash = self.hasher.hash_one(path) as usize ^ usize::from(is_route);
        let Some(place) = self.paths.get_mut(hash % PATHS) else { return Sym::NONE };
        if place.path == path && place.is_route == is_route && !place.template.is_none() {
            return place.template;
        }
        self.scratch.clear();
        if is_route {
            put_route(path, &mut self.scratch)
        } else {
            put_path(path, &mut self.scratch)
        }
        let template = names.intern_utf8(&self.scratch).unwrap_or_default();
        if path.len() <= MAX_REMEMBERED {
            place.path.clear();
            place.path.extend_from_slice(path);
            (place.is_route, place.template) = (is_route, template);
        }
        template
    }
}
