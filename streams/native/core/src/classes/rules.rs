//! Traffic classes of requests: what operators pinned and the job `classify` learned, else the
//! syntactic template.
//!
//! A rule applies to requests of one service whose syntactic template matches the rule's template.
//! It replaces their template. A segment `*` matches any one segment, the method '' any method, and
//! the template '' every template. Rules have two authors: operators pin and unpin, and the job
//! writes all other kinds. For each author and (service, method, template), the newest rule in
//! force counts. `retired` and `unpinned` end the previous rule.
//!
//! If several rules match, the first in this order decides: pinned before all others; a named
//! method before any; a named template before every template; fewer `*`; the `*` further to the
//! right; merged, learned, bounded; name. A template that was kept apart from a pattern thus stays
//! apart, whatever becomes of the pattern. Rules are not chained.

use std::cmp::Reverse;
use std::collections::HashMap;

use hashbrown::HashMap as FastMap;

use crate::classes::class_id::is_class_id;
use crate::classes::template::OTHER;
use crate::counters::Counters;
use crate::memory::names::{Names, Sym};

/// Kind of a rule. The order of the variants decides between equally precise rules. The last two
/// end a previous rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RuleKind {
    Pinned,
    Merged,
    Learned,
    Bounded,
    Retired,
    Unpinned,
}

impl RuleKind {
    /// Parses the name of a kind, as in the table class_rules.
    pub fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "pinned" => RuleKind::Pinned,
            "merged" => RuleKind::Merged,
            "learned" => RuleKind::Learned,
            "bounded" => RuleKind::Bounded,
            "retired" => RuleKind::Retired,
            "unpinned" => RuleKind::Unpinned,
            _ => return None,
        })
    }

    fn is_operators(self) -> bool {
        matches!(self, RuleKind::Pinned | RuleKind::Unpinned)
    }
}

/// A row of the table class_rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    pub effective_from_ms: i64,
    pub service: String,
    pub method: String,
    pub template: String,
    pub becomes: String,
    pub kind: RuleKind,
}

impl Rule {
    fn matches(&self, method: &str, template: &str) -> bool {
        let method_fits = self.method.is_empty() || self.method == method;
        method_fits && (self.template.is_empty() || segments_match(&self.template, template))
    }

    fn precedence(&self) -> impl Ord + '_ {
        let wild: Vec<usize> =
            (0..).zip(self.template.split('/')).filter(|(_, s)| *s == "*").map(|(i, _)| i).collect();
        let all = (self.kind != RuleKind::Pinned, self.method.is_empty(), self.template.is_empty());
        (all, wild.len(), Reverse(wild), self.kind, self.template.as_str())
    }
}

fn segments_match(pattern: &str, template: &str) -> bool {
    let (mut pattern, mut template) = (pattern.split('/'), template.split('/'));
    loop {
        match (pattern.next(), template.next()) {
            (None, None) => return true,
            (Some(wanted), Some(found)) if wanted == found || wanted == "*" && !found.is_empty() => {}
            _ => return false,
        }
    }
}

/// The parts of a span that decide the class of a request without a class of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Request {
    pub service: Sym,
    pub method: Sym,
    pub template: Sym,
}

/// The class rules of a partition, and the classes that they give.
#[derive(Debug, Default)]
pub(crate) struct Classes {
    /// All rules, ordered by the time at which they take effect.
    rules: Vec<Rule>,
    /// Number of rules that have taken effect. `in_force` holds the rules in force by service, in
    /// order of precedence.
    effective: usize,
    in_force: HashMap<String, Vec<Rule>>,
    /// Caches of the classes that rules give (`named`, `stamped`) and of class ids (`ids`). A cache
    /// is cleared when the rules or names that it depends on change.
    named: FastMap<Request, Option<Sym>>,
    ids: FastMap<Request, Option<Sym>>,
    stamped: FastMap<Sym, Sym>,
    generation: u32,
}

/// Largest number of entries in a cache, beyond which all caches are cleared.
const REMEMBERED: usize = 100_000;

impl Classes {
    /// Replaces all rules. `rules` includes rules that take effect later and rules that were
    /// replaced.
    pub fn set(&mut self, mut rules: Vec<Rule>) {
        rules.sort_by(|a, b| {
            let key = |r: &Rule| (r.effective_from_ms, r.kind);
            key(a).cmp(&key(b)).then_with(|| a.becomes.cmp(&b.becomes))
        });
        if rules != self.rules {
            self.rules = rules;
            self.enforce(0);
        }
    }

    /// Puts the rules into force that apply at the given time.
    pub fn at(&mut self, at_ms: i64, names: &Names) {
        let effective = self.rules.partition_point(|rule| rule.effective_from_ms <= at_ms);
        if effective != self.effective {
            self.enforce(effective);
        }
        let remembered = self.named.len().max(self.ids.len()).max(self.stamped.len());
        if self.generation != names.generation() || remembered > REMEMBERED {
            self.generation = names.generation();
            self.named.clear();
            self.ids.clear();
            self.stamped.clear();
        }
    }

    fn enforce(&mut self, effective: usize) {
        self.effective = effective;
        self.named.clear();
        self.stamped.clear();
        let mut newest: HashMap<(&str, &str, &str, bool), &Rule> = HashMap::new();
        for rule in &self.rules[..effective] {
            let key = (&*rule.service, &*rule.method, &*rule.template, rule.kind.is_operators());
            newest.insert(key, rule);
        }
        self.in_force.clear();
        for rule in newest.into_values().filter(|rule| rule.kind < RuleKind::Retired) {
            self.in_force.entry(rule.service.clone()).or_default().push(rule.clone());
        }
        for rules in self.in_force.values_mut() {
            rules.sort_by(|a, b| a.precedence().cmp(&b.precedence()));
        }
    }

    /// Returns the class that a rule gives a request. None when no rule matches, or when the rule's
    /// result cannot be a class.
    pub fn named(&mut self, request: Request, names: &mut Names) -> Option<Sym> {
        if self.in_force.is_empty() {
            return None;
        }
        if let Some(known) = self.named.get(&request) {
            return *known;
        }
        let (method, template) = (names.text(request.method), names.text(request.template));
        let rules = self.in_force.get(names.text(request.service));
        let rule = rules.and_then(|rules| rules.iter().find(|rule| rule.matches(method, template)));
        let becomes = rule.map(|rule| names.intern(&rule.becomes));
        let found = becomes.and_then(|template| self.id(Request { template, ..request }, names));
        self.named.insert(request, found);
        found
    }

    /// Returns the class of a request that carries one, after applying the rules.
    ///
    /// Envoy stamps classes of the ruleset, and the ruleset is made from stamped classes. Without
    /// rules here, classes would never merge or end. The rule for every template does not apply,
    /// because it is about templates that nobody named.
    pub fn stamped(&mut self, class: Sym, names: &mut Names) -> Sym {
        if self.in_force.is_empty() {
            return class;
        }
        if let Some(known) = self.stamped.get(&class) {
            return *known;
        }
        let found = self.renamed(names.text(class)).map_or(class, |id| names.intern(&id));
        self.stamped.insert(class, found);
        found
    }

    fn renamed(&self, class: &str) -> Option<String> {
        let mut parts = class.split(' ');
        let (service, method, template) = (parts.next()?, parts.next()?, parts.next()?);
        let rule = self
            .in_force
            .get(service)?
            .iter()
            .find(|rule| !rule.template.is_empty() && rule.matches(method, template))?;
        let id = format!("{service} {method} {}", rule.becomes);
        is_class_id(&id).then_some(id)
    }

    /// Returns the class id of a request whose template is final. None when the parts do not form a
    /// class id.
    pub fn id(&mut self, request: Request, names: &mut Names) -> Option<Sym> {
        if let Some(known) = self.ids.get(&request) {
            return *known;
        }
        let [service, method, template] =
            [request.service, request.method, request.template].map(|sym| names.text(sym));
        let text = format!("{service} {method} {template}");
        let id = is_class_id(&text).then(|| names.intern(&text));
        self.ids.insert(request, id);
        id
    }
}

/// A class that may depend on the other requests of the same tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClassRef(u32);

const PENDING: u32 = 1 << 31;

impl ClassRef {
    pub const NONE: ClassRef = ClassRef(0);

    pub fn is_none(self) -> bool {
        self == ClassRef::NONE
    }
}

impl From<Sym> for ClassRef {
    fn from(class: Sym) -> Self {
        ClassRef(class.0 & !PENDING)
    }
}

/// The requests of one tick that carry no class of their own.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    index: FastMap<Request, Option<u32>>,
    requests: Vec<(Request, u64)>,
    /// The class of each request. `Sym::NONE` until `settle` decides.
    classes: Vec<Sym>,
}

impl Asked {
    pub fn clear(&mut self) {
        self.index.clear();
        self.requests.clear();
        self.classes.clear();
    }

    /// Returns the class of a request and counts the `spans` that ask for it. NONE when the request
    /// cannot have a class.
    pub fn class(
        &mut self,
        request: Request,
        spans: u64,
        classes: &mut Classes,
        names: &mut Names,
    ) -> ClassRef {
        let index = *self.index.entry(request).or_insert_with(|| {
            let named = classes.named(request, names);
            if named.is_none() {
                classes.id(request, names)?;
            }
            self.requests.push((request, 0));
            self.classes.push(named.unwrap_or_default());
            Some((self.requests.len() - 1) as u32)
        });
        let Some(index) = index else { return ClassRef::NONE };
        self.requests[index as usize].1 += spans;
        ClassRef(PENDING | index)
    }

    /// Decides the classes of requests that no rule names. For each service, the `most` frequent
    /// templates are kept (ties by name), and all others become `/other`.
    pub fn settle(&mut self, most: usize, classes: &mut Classes, names: &mut Names, counters: &mut Counters) {
        let mut open: Vec<usize> = (0..self.classes.len()).filter(|i| self.classes[*i].is_none()).collect();
        if open.len() > most {
            let text = |sym: Sym| names.text(sym);
            let order = |i: &usize| {
                let (request, count) = self.requests[*i];
                (text(request.service), Reverse(count), text(request.method), text(request.template))
            };
            open.sort_by(|a, b| order(a).cmp(&order(b)));
        }
        let other = names.intern(OTHER);
        let (mut service, mut kept, mut dropped) = (Sym::NONE, 0, 0);
        for i in open {
            let (mut request, count) = self.requests[i];
            kept = if request.service == service { kept + 1 } else { 1 };
            service = request.service;
            if kept > most {
                request.template = other;
                dropped += count;
            }
            self.classes[i] = classes.id(request, names).unwrap_or_default();
        }
        counters.add("class_other", dropped);
    }

    /// Returns the final class. Requires that `settle` was called.
    pub fn resolve(&self, class: ClassRef) -> Sym {
        match class.0 & PENDING {
            0 => Sym(class.0),
            _ => self.classes[(class.0 & !PENDING) as usize],
        }
    }
}
