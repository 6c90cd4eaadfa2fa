//! Turns the closed traces of one tick into rows of the tables calls and edges.

use crate::classes::rules::{Asked, ClassRef, Classes, Request};
use crate::counters::Counters;
use crate::memory::names::{Names, Sym};
use crate::span::{Kind, Span};
use crate::trace::exclusive::Exclusive;
use crate::trace::ids::NONE;
use crate::trace::link::{Link, Place};

/// A server span that is a call. `span` is its index among the tick's spans.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallRow {
    pub span: u32,
    pub class: ClassRef,
    pub source_cluster: Sym,
    pub source_service: Sym,
    pub exclusive_us: u64,
    pub trace_spans: u32,
}

/// A client span that made a call, or the server span of a direct call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EdgeRow {
    pub span: u32,
    pub source_cluster: Sym,
    pub source_service: Sym,
    pub source_class: ClassRef,
    pub destination_cluster: Sym,
    pub destination_service: Sym,
    pub class: ClassRef,
    /// Network time in microseconds. -1 when it is unknown.
    pub network_us: i64,
    pub trace_spans: u32,
    /// The call that made this one: its number within the trace, from 1. 0 when it is unknown.
    pub source_call: u32,
}

/// The rows of one tick, and reusable memory for computing them.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    pub calls: Vec<CallRow>,
    pub edges: Vec<EdgeRow>,
    /// The class of each span of the tick. NONE when the span is not a call.
    pub classes: Vec<ClassRef>,
    pub asked: Asked,
    link: Link,
    exclusive: Exclusive,
    odd: Odd,
}

#[derive(Debug, Default)]
struct Odd {
    unknown_parent: u64,
    no_class: u64,
    no_destination_class: u64,
    no_server_span: u64,
    direct: u64,
}

/// One trace of the tick: its spans, and the index of its first span in the tick.
struct Trace<'a> {
    spans: &'a [Span],
    first: u32,
}

impl Rows {
    /// Computes the rows of a tick. The traces lie one after the other in `spans`, and each one
    /// extends to the next of `ends`.
    pub fn fill(
        &mut self,
        spans: &[Span],
        ends: &[u32],
        most_classes: usize,
        tools: (&mut Classes, &mut Names, &mut Counters),
    ) {
        let (classes, names, counters) = tools;
        self.calls.clear();
        self.edges.clear();
        self.classes.clear();
        self.asked.clear();
        let mut start = 0;
        for end in ends {
            let trace = Trace { spans: &spans[start as usize..*end as usize], first: start };
            self.link.link(trace.spans);
            self.exclusive.measure(trace.spans, &self.link.places);
            self.take_calls(&trace, classes, names);
            self.take_edges(&trace, classes, names);
            start = *end;
        }
        self.asked.settle(most_classes, classes, names, counters);
        self.count(counters);
    }

    fn take_calls(&mut self, trace: &Trace, classes: &mut Classes, names: &mut Names) {
        for (i, (span, place)) in trace.spans.iter().zip(&self.link.places).enumerate() {
            if place.kind != Kind::Server {
                self.classes.push(ClassRef::NONE);
                continue;
            }
            let class = class_of(span, span.service, &mut self.asked, classes, names);
            self.classes.push(class);
            if class.is_none() {
                self.odd.no_class += 1;
                continue;
            }
            let caller = trace.spans.get(place.caller as usize);
            let (source_cluster, source_service) = source(span, caller);
            self.odd.unknown_parent += u64::from(source_service.is_none() && span.parent_id != 0);
            self.calls.push(CallRow {
                span: trace.first + i as u32,
                class,
                source_cluster,
                source_service,
                exclusive_us: self.exclusive.exclusive_us[i].max(0) as u64,
                trace_spans: trace.spans.len() as u32,
            });
        }
    }

    fn take_edges(&mut self, trace: &Trace, classes: &mut Classes, names: &mut Names) {
        for (i, span) in trace.spans.iter().enumerate() {
            let place = self.link.places[i];
            match place.kind {
                Kind::Client => {
                    let class = self.destination_class(trace, span, &place, classes, names);
                    if class.is_none() {
                        self.odd.no_destination_class += 1;
                        continue;
                    }
                    self.odd.no_server_span += u64::from(place.owner == NONE);
                    self.classes[trace.first as usize + i] = class;
                    let row = self.edge(trace, i as u32, &place, class, names);
                    self.edges.push(row);
                }
                Kind::Server if place.is_direct && !self.class_at(trace, i as u32).is_none() => {
                    self.odd.direct += 1;
                    self.edges.push(self.direct_edge(trace, i as u32, &place));
                }
                _ => {}
            }
        }
    }

    fn class_at(&self, trace: &Trace, i: u32) -> ClassRef {
        match i {
            NONE => ClassRef::NONE,
            _ => self.classes[(trace.first + i) as usize],
        }
    }

    fn destination_class(
        &mut self,
        trace: &Trace,
        span: &Span,
        place: &Place,
        classes: &mut Classes,
        names: &mut Names,
    ) -> ClassRef {
        if !span.class.is_none() {
            return classes.stamped(span.class, names).into();
        }
        let answered = self.class_at(trace, place.answer);
        if !answered.is_none() {
            return answered;
        }
        let answer = trace.spans.get(place.answer as usize);
        let service = answer.map_or(span.destination_service, |answer| answer.service);
        if service.is_none() {
            return ClassRef::NONE;
        }
        class_of(span, service, &mut self.asked, classes, names)
    }

    fn edge(&self, trace: &Trace, i: u32, place: &Place, class: ClassRef, names: &mut Names) -> EdgeRow {
        let span = &trace.spans[i as usize];
        let answer = trace.spans.get(place.answer as usize);
        // After a retry, the client's time includes the tries before the answered one and the waits
        // between them.
        let difference = answer
            .filter(|_| span.resends == 0 && !place.is_retried)
            .map(|answer| (span.duration_us - answer.duration_us).max(0));
        let measured = span.network_us.map(|time| i64::try_from(time).unwrap_or(i64::MAX));
        let destination = match (span.destination_cluster, answer) {
            (Sym::NONE, Some(answer)) => answer.cluster,
            (Sym::NONE, None) => span.cluster,
            (named, _) => named,
        };
        let service = answer.map_or(span.destination_service, |answer| answer.service);
        EdgeRow {
            span: trace.first + i,
            source_cluster: span.cluster,
            source_service: span.service,
            source_class: self.class_at(trace, place.owner),
            destination_cluster: destination,
            destination_service: if service.is_none() { service_of(span.class, names) } else { service },
            class,
            network_us: measured.or(difference).unwrap_or(-1),
            trace_spans: trace.spans.len() as u32,
            source_call: number(place.owner),
        }
    }

    /// Returns the edge of a call of which only the callee's span is known.
    fn direct_edge(&self, trace: &Trace, i: u32, place: &Place) -> EdgeRow {
        let (span, caller) = (&trace.spans[i as usize], &trace.spans[place.owner as usize]);
        EdgeRow {
            span: trace.first + i,
            source_cluster: caller.cluster,
            source_service: caller.service,
            source_class: self.class_at(trace, place.owner),
            destination_cluster: span.cluster,
            destination_service: span.service,
            class: self.class_at(trace, i),
            network_us: -1,
            trace_spans: trace.spans.len() as u32,
            source_call: number(place.owner),
        }
    }

    fn count(&mut self, counters: &mut Counters) {
        let odd = std::mem::take(&mut self.odd);
        for (reason, count) in [
            ("entry_with_unknown_parent", odd.unknown_parent),
            ("server_span_without_class", odd.no_class),
            ("client_span_without_destination_class", odd.no_destination_class),
            ("client_span_without_server_span", odd.no_server_span),
            ("edge_without_client_span", odd.direct),
            ("async_child", std::mem::take(&mut self.exclusive.outlived)),
            ("clock_skew", std::mem::take(&mut self.exclusive.skewed)),
        ] {
            counters.add(reason, count);
        }
    }
}

/// Returns the number of the span at an index of its trace.
fn number(index: u32) -> u32 {
    if index == NONE { 0 } else { index + 1 }
}

fn class_of(
    span: &Span,
    service: Sym,
    asked: &mut Asked,
    classes: &mut Classes,
    names: &mut Names,
) -> ClassRef {
    if !span.class.is_none() {
        return classes.stamped(span.class, names).into();
    }
    if span.method.is_none() || span.template.is_none() {
        return ClassRef::NONE;
    }
    asked.class(Request { service, method: span.method, template: span.template }, 1, classes, names)
}

/// Returns cluster and service of the caller. Both are NONE for an entry call.
fn source(span: &Span, caller: Option<&Span>) -> (Sym, Sym) {
    if span.source_service.is_none() {
        return caller.map_or((Sym::NONE, Sym::NONE), |caller| (caller.cluster, caller.service));
    }
    let cluster = match (span.source_cluster, caller) {
        (Sym::NONE, Some(caller)) => caller.cluster,
        (Sym::NONE, None) => span.cluster,
        (named, _) => named,
    };
    (cluster, span.source_service)
}

/// Returns the service with which a class id begins.
fn service_of(class: Sym, names: &mut Names) -> Sym {
    let service = names.text(class).split(' ').next().unwrap_or_default().to_owned();
    names.intern(&service)
}
