//! Sums over the requests that have just ended, computed while messages are read. Load boards
//! cannot wait for whole traces.
//!
//! One request may have two server spans: its proxy's and its application's. Our filter stamps
//! every request with load. For a service that it stamps, only stamped spans count. For other
//! services, a span does not count if its parent is a server span of the same service in the same
//! message. Repeats are counted, so these sums are not exact. The rows that `rows` computes are
//! exact.

use hashbrown::{HashMap, HashSet};

use crate::classes::rules::{Asked, ClassRef, Classes, Request};
use crate::counters::Counters;
use crate::memory::names::{Names, Sym};
use crate::memory::texts::Texts;
use crate::output::columns::{Batch, Sheet, Table, table};
use crate::output::network::partition_of;
use crate::span::{Kind, Span};

table!(
    /// Columns of a batch of arrivals. All f64 columns are sums of adjusted counts, except
    /// `samples`, which counts spans that did not fail.
    Arrivals {
        at "at": I64,
        newest_us "newest_us": I64,
        cluster "cluster": Text,
        service "service": Text,
        class "class": Text,
        entry "entry": Bool,
        calls "calls": F64,
        failed "failed": F64,
        ok "ok": F64,
        duration_ok_ms "duration_ok_ms": F64,
        stamped "stamped": F64,
        in_flight "in_flight": F64,
        rate "rate": F64,
        class_stamped "class_stamped": F64,
        class_in_flight "class_in_flight": F64,
        class_rate "class_rate": F64,
        samples "samples": F64,
    }
);

/// Second of the end, cluster, service, own class, (method, template), and whether the request is
/// an entry.
type Key = (i64, Sym, Sym, Sym, (Sym, Sym), bool);
const SUMS: usize = 11;

#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    newest_us: i64,
    /// Number of spans, whatever they stand for. The frequency of a class must be the same as among
    /// rows.
    spans: u64,
    values: [f64; SUMS],
}

impl Sums {
    fn of(span: &Span, ended_us: i64) -> Self {
        let count = span.adjusted_count;
        let good = if span.failed { 0.0 } else { count };
        // A stamp counts the request itself as in flight. Its rate may be 0, if nothing else
        // arrived in the second before.
        let stamped = if span.in_flight > 0 { count } else { 0.0 };
        let class_stamped = if span.class_in_flight > 0 { count } else { 0.0 };
        let values = [
            count,
            count - good,
            good,
            good * span.duration_us as f64 / 1e3,
            stamped,
            stamped * f64::from(span.in_flight),
            stamped * span.arrival_rate,
            class_stamped,
            class_stamped * f64::from(span.class_in_flight),
            class_stamped * span.class_arrival_rate,
            f64::from(u8::from(!span.failed)),
        ];
        Sums { newest_us: ended_us, spans: 1, values }
    }

    fn add(&mut self, other: &Sums) {
        self.newest_us = self.newest_us.max(other.newest_us);
        self.spans += other.spans;
        self.values.iter_mut().zip(other.values).for_each(|(sum, value)| *sum += value);
    }
}

/// Log time in ms for which a service counts as stamped after a stamped span.
const STAMPING_MS: i64 = 10_000;

/// The sums since the last `take`.
#[derive(Debug, Default)]
pub(crate) struct Hot {
    sums: HashMap<Key, Sums>,
    /// Log time in ms of the last stamped span, by (cluster, service).
    stamping: HashMap<(Sym, Sym), i64>,
    near: Near,
}

impl Hot {
    /// Adds the spans of one message that was read at the given log time.
    pub fn add(&mut self, spans: &[Span], now_ms: i64, counters: &mut Counters) {
        self.note_stamping(spans, now_ms);
        self.near.forget();
        let (mut beside, mut inner) = (0, 0);
        for span in spans.iter().filter(|span| span.kind == Kind::Server) {
            if span.in_flight == 0 && self.is_stamping(span, now_ms) {
                beside += 1;
            } else if span.in_flight == 0 && self.near.is_inner(span, spans) {
                inner += 1;
            } else {
                self.count(span);
            }
        }
        counters.add("arrival_beside_stamped", beside);
        counters.add("arrival_within_another", inner);
    }

    fn count(&mut self, span: &Span) {
        let ended_us = span.started_us + span.duration_us;
        // Our filter names the caller of every call inside the mesh. A stamped call without a
        // caller therefore came from outside, even if it carries its caller's trace. A span of
        // another tracer is certain to come from outside only if it is a root.
        let is_entry = span.source_service.is_none() && (span.parent_id == 0 || span.in_flight > 0);
        let asked = if span.class.is_none() { (span.method, span.template) } else { (Sym::NONE, Sym::NONE) };
        let key = (ended_us.div_euclid(1_000_000), span.cluster, span.service, span.class, asked, is_entry);
        self.sums.entry(key).or_default().add(&Sums::of(span, ended_us));
    }

    fn note_stamping(&mut self, spans: &[Span], now_ms: i64) {
        let mut noted = (Sym::NONE, Sym::NONE);
        for span in spans.iter().filter(|span| span.kind == Kind::Server && span.in_flight > 0) {
            // Spans of one proxy are usually adjacent.
            if noted != (span.cluster, span.service) {
                noted = (span.cluster, span.service);
                self.stamping.insert(noted, now_ms);
            }
        }
    }

    fn is_stamping(&self, span: &Span, now_ms: i64) -> bool {
        let stamped = self.stamping.get(&(span.cluster, span.service));
        stamped.is_some_and(|at| now_ms - at <= STAMPING_MS)
    }

    /// Returns the sums as rows by partition, and resets them.
    pub fn take(
        &mut self,
        now_ms: i64,
        partitions: u32,
        most_classes: usize,
        classes: &mut Classes,
        names: &mut Names,
        texts: &mut Texts,
    ) -> Batch {
        self.stamping.retain(|_, at| now_ms - *at <= STAMPING_MS);
        let mut asked = Asked::default();
        let found: Vec<_> = self.sums.drain().collect();
        let refs: Vec<ClassRef> = found
            .iter()
            .map(|((_, _, service, class, (method, template), _), sums)| match class.is_none() {
                false => ClassRef::from(classes.stamped(*class, names)),
                true => {
                    let request = Request { service: *service, method: *method, template: *template };
                    asked.class(request, sums.spans, classes, names)
                }
            })
            .collect();
        asked.settle(most_classes, classes, names, &mut Counters::default());
        let mut merged: HashMap<(i64, Sym, Sym, Sym, bool), Sums> = HashMap::new();
        for (((at, cluster, service, .., is_entry), sums), class) in found.iter().zip(refs) {
            if !class.is_none() {
                merged
                    .entry((*at, *cluster, *service, asked.resolve(class), *is_entry))
                    .or_default()
                    .add(sums);
            }
        }
        let mut rows: Vec<_> = merged
            .into_iter()
            .map(|(k, s)| (partition_of(texts.hash(names, k.2), partitions), k, s))
            .collect();
        rows.sort_unstable_by_key(|(partition, k, _)| {
            (*partition, k.0, [k.2, k.3, k.1].map(|sym| names.text(sym)), k.4)
        });
        write(&rows, names)
    }

    /// Takes all sums out, so that `Held::syms_mut` can update their strings. `restore` puts them
    /// back.
    pub fn hold(&mut self) -> Held {
        Held { sums: self.sums.drain().collect(), stamping: self.stamping.drain().collect() }
    }

    pub fn restore(&mut self, held: Held) {
        self.sums.extend(held.sums);
        self.stamping.extend(held.stamping);
    }
}

#[derive(Debug)]
pub(crate) struct Held {
    sums: Vec<(Key, Sums)>,
    stamping: Vec<((Sym, Sym), i64)>,
}

impl Held {
    pub fn syms_mut(&mut self) -> impl Iterator<Item = &mut Sym> {
        let sums = self.sums.iter_mut().flat_map(|((_, cluster, service, class, asked, _), _)| {
            [cluster, service, class, &mut asked.0, &mut asked.1]
        });
        sums.chain(self.stamping.iter_mut().flat_map(|((cluster, service), _)| [cluster, service]))
    }
}

/// Spans of one message by trace, id and, for server spans, cluster and service. Built on the first
/// query.
#[derive(Debug, Default)]
struct Near(HashSet<(u128, u64, Sym, Sym)>);

impl Near {
    fn forget(&mut self) {
        self.0.clear();
    }

    /// Whether a server span lies under a server span of its own service. It does not if a client
    /// span shares its id (B3), because then the span above called it.
    fn is_inner(&mut self, span: &Span, spans: &[Span]) -> bool {
        if span.parent_id == 0 || span.parent_id == span.span_id {
            return false;
        }
        if self.0.is_empty() {
            self.0.extend(spans.iter().filter_map(|span| match span.kind {
                Kind::Server => Some((span.trace_id, span.span_id, span.cluster, span.service)),
                Kind::Client => Some((span.trace_id, span.span_id, Sym::NONE, Sym::NONE)),
                Kind::Internal => None,
            }));
        }
        let called = (span.trace_id, span.span_id, Sym::NONE, Sym::NONE);
        let above = (span.trace_id, span.parent_id, span.cluster, span.service);
        self.0.contains(&above) && !self.0.contains(&called)
    }
}

type Row = (u32, (i64, Sym, Sym, Sym, bool), Sums);

fn write(rows: &[Row], names: &Names) -> Batch {
    let mut sheet = Sheet::<Arrivals>::default();
    let Sheet { table, batch, dictionary } = &mut sheet;
    table.reserve(rows.len());
    for same in rows.chunk_by(|a, b| a.0 == b.0) {
        let start = batch.rows;
        for (_, (at, cluster, service, class, is_entry), sums) in same {
            table.at.push(*at);
            table.newest_us.push(sums.newest_us);
            table.cluster.push(dictionary.code(*cluster));
            table.service.push(dictionary.code(*service));
            table.class.push(dictionary.code(*class));
            table.entry.push(u8::from(*is_entry));
            table.put(&sums.values);
        }
        batch.rows += same.len();
        batch.slice(0, same[0].0, start);
    }
    sheet.finish(names)
}

impl Arrivals {
    fn put(&mut self, values: &[f64; SUMS]) {
        let columns = [
            &mut self.calls,
            &mut self.failed,
            &mut self.ok,
            &mut self.duration_ok_ms,
            &mut self.stamped,
            &mut self.in_flight,
            &mut self.rate,
            &mut self.class_stamped,
            &mut self.class_in_flight,
            &mut self.class_rate,
            &mut self.samples,
        ];
        columns.into_iter().zip(values).for_each(|(column, value)| column.push(*value));
    }
}
