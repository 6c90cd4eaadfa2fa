//! The one shape in which every tracer's spans are thought about.

use std::cmp::Ordering;

use crate::memory::names::{Names, Sym};
use crate::memory::texts::Texts;

/// What a span is of: a request served, a request made, or work between them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    #[default]
    Internal = 0,
    Server = 1,
    Client = 2,
}

/// A span that passed validation. `Sym::NONE` and `None` mean that it did not say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Span {
    pub trace_id: u128,
    pub span_id: u64,
    /// 0: a root.
    pub parent_id: u64,
    pub kind: Kind,
    pub failed: bool,
    pub status: u16,
    /// Unix microseconds.
    pub started_us: i64,
    pub duration_us: i64,
    pub name: Sym,
    pub cluster: Sym,
    pub service: Sym,
    /// A valid class id that the span itself carries.
    pub class: Sym,
    /// In upper case, letters only.
    pub method: Sym,
    /// Syntactic template of the route, the RPC or the path; `class` alone may be known instead.
    pub template: Sym,
    pub source_cluster: Sym,
    pub source_service: Sym,
    pub destination_cluster: Sym,
    pub destination_service: Sym,
    pub in_flight: u32,
    pub class_in_flight: u32,
    /// Arrivals per second of the service, then of the class, at one proxy; 0: not stamped.
    pub arrival_rate: f64,
    pub class_arrival_rate: f64,
    pub network_us: Option<u64>,
    pub resends: u32,
    pub request_bytes: u64,
    pub response_bytes: u64,
    /// How many requests this span stands for (1 / sampling probability).
    pub adjusted_count: f64,
    pub ruleset_version: u64,
}

impl Span {
    /// All its strings.
    pub fn syms(&self) -> [Sym; 10] {
        let mut copy = self.clone();
        copy.syms_mut().map(|sym| *sym)
    }

    pub fn syms_mut(&mut self) -> [&mut Sym; 10] {
        [
            &mut self.name,
            &mut self.cluster,
            &mut self.service,
            &mut self.class,
            &mut self.method,
            &mut self.template,
            &mut self.source_cluster,
            &mut self.source_service,
            &mut self.destination_cluster,
            &mut self.destination_service,
        ]
    }
}

/// The order in which everything looks at spans, whatever order they came in; equal are only copies of one span.
pub(crate) fn order(a: &Span, b: &Span, names: &Names, texts: &mut Texts) -> Ordering {
    let ids = |span: &Span| (span.started_us, span.trace_id, span.span_id, span.kind);
    ids(a).cmp(&ids(b)).then_with(|| texts.hash(names, a.service).cmp(&texts.hash(names, b.service)))
}
