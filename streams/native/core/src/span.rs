//! The common shape of spans from every tracer.

use std::cmp::Ordering;

use crate::memory::names::{Names, Sym};
use crate::memory::texts::Texts;

/// The kind of a span: a served request, a made request, or work between them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    #[default]
    Internal = 0,
    Server = 1,
    Client = 2,
}

/// A span that passed validation. `Sym::NONE` and `None` mean that the span does not state the
/// value.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Span {
    pub trace_id: u128,
    pub span_id: u64,
    /// Id of the parent span. 0 for a root.
    pub parent_id: u64,
    pub kind: Kind,
    pub failed: bool,
    pub status: u16,
    /// Start in Unix microseconds.
    pub started_us: i64,
    pub duration_us: i64,
    pub name: Sym,
    pub cluster: Sym,
    pub service: Sym,
    /// A valid class id that the span itself carries.
    pub class: Sym,
    /// In upper case, letters only.
    pub method: Sym,
    /// Syntactic template of the route, the RPC or the path. It may be missing when `class` is
    /// known.
    pub template: Sym,
    pub source_cluster: Sym,
    pub source_service: Sym,
    pub destination_cluster: Sym,
    pub destination_service: Sym,
    pub in_flight: u32,
    pub class_in_flight: u32,
    /// Arrivals per second at one proxy, of the service and then of the class. 0 when not stamped.
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
    /// Returns all strings of the span.
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

/// The order in which all code visits spans, independent of their arrival. Only copies of one span
/// are equal.
pub(crate) fn order(a: &Span, b: &Span, names: &Names, texts: &mut Texts) -> Ordering {
    let ids = |span: &Span| (span.started_us, span.trace_id, span.span_id, span.kind);
    ids(a).cmp(&ids(b)).then_with(|| texts.hash(names, a.service).cmp(&texts.hash(names, b.service)))
}
