//! Links the spans of one trace: which spans are calls and requests, and how they belong together.
//!
//! A client span and its server span are parent and child, or share one id (B3). Internal spans,
//! the work in between, are folded into the server span above them. An application's server span
//! under its proxy's server span is folded too, and so is an application's client span over its
//! proxy's client span. Both pairs belong to one request.

use crate::span::{Kind, Span};
use crate::trace::ids::{Ids, NONE};

/// The role of one span in its trace. Numbers are indices of spans in the trace, NONE where there
/// is none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// The kind after folding.
    pub kind: Kind,
    /// Whether this server span has no client span, but lies under a server span of another
    /// service, which called it.
    pub is_direct: bool,
    /// Whether several server spans answered this client span.
    pub is_retried: bool,
    /// The call whose work includes this span.
    pub owner: u32,
    /// Of a client span: the server span that answered it. After several attempts, the last one.
    pub answer: u32,
    /// Of a server span: the span that called it.
    pub caller: u32,
}

const UNKNOWN: u32 = NONE - 1;
const VISITED: u32 = NONE - 2;

/// Links traces, one after the other.
#[derive(Debug, Default)]
pub(crate) struct Link {
    pub places: Vec<Place>,
    ids: Ids,
    children: Ids,
    path: Vec<u32>,
}

impl Link {
    /// Computes `places` of a sorted trace.
    pub fn link(&mut self, spans: &[Span]) {
        let place = Place {
            kind: Kind::Internal,
            is_direct: false,
            is_retried: false,
            owner: UNKNOWN,
            answer: NONE,
            caller: NONE,
        };
        self.places.clear();
        self.places.extend(spans.iter().map(|span| Place { kind: span.kind, ..place }));
        self.ids.fill(spans);
        if self.fold(spans) {
            self.ids.clear(spans.len());
            for (i, span) in spans.iter().enumerate() {
                self.ids.insert(span.span_id, self.places[i].kind, i as u32);
            }
        }
        for i in 0..spans.len() {
            match self.places[i].kind {
                Kind::Server => self.pair(spans, i),
                Kind::Client => self.places[i].owner = self.owner(spans, i),
                Kind::Internal => {}
            }
        }
    }

    /// Folds spans into others of the same request. Returns whether any span was folded.
    fn fold(&mut self, spans: &[Span]) -> bool {
        self.children.clear(spans.len());
        for (i, span) in spans.iter().enumerate().filter(|(_, span)| span.kind == Kind::Client) {
            self.children.insert(below(span.parent_id, span), Kind::Client, i as u32);
        }
        let mut folded = false;
        for (i, span) in spans.iter().enumerate() {
            let is_inner = match span.kind {
                Kind::Server => self.is_under_own_server(spans, span),
                Kind::Client => self.is_over_own_client(spans, i),
                Kind::Internal => false,
            };
            if is_inner {
                self.places[i].kind = Kind::Internal;
                folded = true;
            }
        }
        folded
    }

    /// Whether a server span that no client span called lies under a server span of its own
    /// service.
    fn is_under_own_server(&self, spans: &[Span], span: &Span) -> bool {
        if span.parent_id == 0
            || span.parent_id == span.span_id
            || self.ids.find(span.span_id).client() != NONE
        {
            return false;
        }
        let above = self.ids.find(span.parent_id).server();
        above != NONE && is_one_service(&spans[above as usize], span)
    }

    /// Whether a client span lies over a client span of its own service. If a server span shares
    /// its id (B3), the spans under that id belong to the server span.
    fn is_over_own_client(&self, spans: &[Span], i: usize) -> bool {
        let span = &spans[i];
        let child = self.children.find(below(span.span_id, span)).client();
        let Some(inner) = spans.get(child as usize).filter(|_| child != i as u32) else { return false };
        let is_under = inner.parent_id == span.span_id && is_one_service(inner, span);
        is_under && self.ids.find(span.span_id).server() == NONE
    }

    fn pair(&mut self, spans: &[Span], i: usize) {
        let span = &spans[i];
        let mut client = if span.parent_id == 0 { NONE } else { self.ids.find(span.parent_id).client() };
        if client == NONE {
            client = self.ids.find(span.span_id).client();
        }
        if client == NONE {
            client = self.inner_client(spans, span.parent_id);
        }
        if client != NONE {
            let call = &mut self.places[client as usize];
            call.is_retried = call.answer != NONE;
            call.answer = i as u32;
            self.places[i].caller = client;
            return;
        }
        let owner = self.owner(spans, i);
        if owner != NONE && !is_one_service(&spans[owner as usize], span) {
            let place = &mut self.places[i];
            (place.is_direct, place.owner, place.caller) = (true, owner, owner);
        }
    }

    /// Returns the client span under a folded one. The proxy made the call, but forwarded the id of
    /// its application's span.
    fn inner_client(&self, spans: &[Span], outer: u64) -> u32 {
        let at = if outer == 0 { NONE } else { self.ids.find(outer).internal() };
        let Some(span) = spans.get(at as usize).filter(|span| span.kind == Kind::Client) else { return NONE };
        let child = self.children.find(below(span.span_id, span)).client();
        match self.places.get(child as usize) {
            Some(place) if place.kind == Kind::Client => child,
            _ => NONE,
        }
    }

    /// Returns the server span above a span, with internal spans in between. Every internal span is
    /// visited once.
    fn owner(&mut self, spans: &[Span], i: usize) -> u32 {
        self.path.clear();
        let mut at = i;
        let found = loop {
            let parent = spans[at].parent_id;
            let above = if parent == 0 { None } else { Some(self.ids.find(parent)) };
            let Some(above) = above else { break NONE };
            if above.server() != NONE {
                break if above.server() == i as u32 { NONE } else { above.server() };
            }
            at = above.internal() as usize;
            match self.places.get(at).map(|place| place.owner) {
                Some(UNKNOWN) => {
                    self.places[at].owner = VISITED;
                    self.path.push(at as u32);
                }
                // The parents form a circle, or a parent is missing.
                Some(VISITED) | None => break NONE,
                Some(known) => break known,
            }
        };
        for at in &self.path {
            self.places[*at as usize].owner = found;
        }
        found
    }
}

fn is_one_service(a: &Span, b: &Span) -> bool {
    (a.service, a.cluster) == (b.service, b.cluster)
}

/// Key of the client spans of one service under a given span.
fn below(parent: u64, span: &Span) -> u64 {
    let service = u64::from(span.service.0) << 32 | u64::from(span.cluster.0);
    parent ^ service.wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// Whether a client span is present without the server span that made the call. Such a trace is
/// worth waiting for.
pub(crate) fn waits(spans: &[Span], ids: &mut Ids) -> bool {
    if spans.iter().all(|span| span.kind != Kind::Client) {
        return false;
    }
    ids.fill(spans);
    spans.iter().any(|span| span.kind == Kind::Client && is_orphan(span, spans, ids))
}

fn is_orphan(client: &Span, spans: &[Span], ids: &Ids) -> bool {
    let mut parent = client.parent_id;
    for _ in 0..64 {
        if parent == 0 {
            return false;
        }
        let above = ids.find(parent);
        if above.server() != NONE {
            return false;
        }
        if above.is_none() {
            return true;
        }
        let next = if above.internal() == NONE { above.client() } else { above.internal() };
        parent = spans[next as usize].parent_id;
    }
    // The parents form a circle, or there are too many to be worth the search.
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::names::Sym;

    const MANY: u64 = 100_000;

    fn span(span_id: u64, parent_id: u64, kind: Kind) -> Span {
        let trace_id = 1;
        Span {
            trace_id,
            span_id,
            parent_id,
            kind,
            duration_us: 1,
            service: Sym(span_id as u32 % 5),
            adjusted_count: 1.0,
            ..Span::default()
        }
    }

    /// Returns the look-ups and probes for linking a trace of 100 000 spans and for deciding
    /// whether it waits.
    fn work(parent: impl Fn(u64) -> u64, kind: impl Fn(u64) -> Kind) -> usize {
        let spans: Vec<_> = (1..=MANY).map(|id| span(id, parent(id), kind(id))).collect();
        let (mut link, mut ids) = (Link::default(), Ids::default());
        link.link(&spans);
        waits(&spans, &mut ids);
        link.ids.looked.get() + link.children.looked.get() + ids.looked.get()
    }

    /// Whatever the shape of a trace, the work per span is bounded and does not grow with the
    /// trace. The shapes are deep chains, a star, circles, leaves at the end of a long chain, and
    /// one id for all spans.
    #[test]
    fn a_trace_of_many_spans_is_linked_in_linear_work() {
        use Kind::{Client, Internal, Server};
        let half = MANY / 2;
        let mixed = |id: u64| [Internal, Server, Client][(id % 3) as usize];
        let shapes: [(&str, usize); 7] = [
            ("internal chain", work(|id| id - 1, |_| Internal)),
            ("mixed chain", work(|id| id - 1, mixed)),
            ("chain of clients", work(|id| id - 1, |_| Client)),
            ("star", work(|id| u64::from(id > 1), mixed)),
            ("circle", work(|id| id % MANY + 1, |id| if id % 2 == 0 { Client } else { Internal })),
            (
                "leaves under a chain",
                work(
                    |id| if id > half { half } else { id - 1 },
                    |id| if id > half { Client } else { Internal },
                ),
            ),
            ("leaves under nothing", work(|id| id + MANY, |_| Client)),
        ];
        for (shape, looked) in shapes {
            // A client looks at most 64 spans up to decide whether it waits. Each look-up probes
            // about two entries.
            assert!(looked < 300 * MANY as usize, "{shape}: {looked}");
        }
        let spans: Vec<_> = (0..MANY).map(|_| span(7, 7, Kind::Server)).collect();
        let mut link = Link::default();
        link.link(&spans);
        assert!(link.ids.looked.get() < 40 * MANY as usize);
    }
}
