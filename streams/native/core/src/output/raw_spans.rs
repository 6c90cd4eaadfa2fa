//! Unaggregated spans of a share of the traces, for looking into single traces.

use crate::memory::names::{Names, Sym};
use crate::output::columns::{Batch, Sheet, Table, put_hex, table};
use crate::output::rows::Rows;
use crate::span::{Kind, Span};
use crate::trace::seen::mixed;

table!(
    /// Columns of a batch of raw spans.
    Raw {
        started_at "started_at": I64,
        trace_id "trace_id": Hex,
        span_id "span_id": Hex,
        parent_id "parent_id": Hex,
        kind "kind": Text,
        name "name": Text,
        cluster "cluster": Text,
        service "service": Text,
        class "class": Text,
        duration_us "duration_us": U64,
        status "status": U64,
        failed "failed": Bool,
    }
);

#[derive(Debug, Default)]
pub(crate) struct RawWriter(Sheet<Raw>);

impl RawWriter {
    /// Appends those traces of a tick that are in the sample of the given share, in the order of
    /// their ids.
    pub fn write(&mut self, share: f64, spans: &[Span], ends: &[u32], rows: &Rows, names: &mut Names) {
        if share <= 0.0 {
            return;
        }
        let kinds = ["internal", "server", "client"].map(|kind| names.intern(kind));
        let mut start = 0;
        let mut sampled = Vec::new();
        for end in ends {
            let trace_id = spans[start as usize].trace_id;
            if is_sampled(trace_id, share) {
                sampled.push((trace_id, start, *end));
            }
            start = *end;
        }
        sampled.sort_unstable();
        self.0.table.reserve(sampled.iter().map(|(_, start, end)| (end - start) as usize).sum());
        for (_, start, end) in sampled {
            for at in start..end {
                let class = rows.asked.resolve(rows.classes[at as usize]);
                self.put(&spans[at as usize], class, kinds);
            }
        }
    }

    fn put(&mut self, span: &Span, class: Sym, [internal, server, client]: [Sym; 3]) {
        let Sheet { table, batch, dictionary } = &mut self.0;
        let kind = match span.kind {
            Kind::Internal => internal,
            Kind::Server => server,
            Kind::Client => client,
        };
        table.started_at.push(span.started_us);
        put_hex(span.trace_id.to_be_bytes(), &mut table.trace_id);
        put_hex(span.span_id.to_be_bytes(), &mut table.span_id);
        match span.parent_id {
            0 => table.parent_id.extend_from_slice(&[0; 16]),
            parent => put_hex(parent.to_be_bytes(), &mut table.parent_id),
        }
        table.kind.push(dictionary.code(kind));
        table.name.push(dictionary.code(span.name));
        table.cluster.push(dictionary.code(span.cluster));
        table.service.push(dictionary.code(span.service));
        table.class.push(dictionary.code(class));
        table.duration_us.push(span.duration_us as u64);
        table.status.push(u64::from(span.status));
        table.failed.push(u8::from(span.failed));
        batch.rows += 1;
    }

    pub fn finish(self, names: &Names) -> Batch {
        self.0.finish(names)
    }
}

/// Whether a trace is in the sample. Whole traces are sampled, the same ones in every process and
/// partition.
fn is_sampled(trace_id: u128, share: f64) -> bool {
    let uniform = (mixed(trace_id) >> 11) as f64 / (1_u64 << 53) as f64;
    uniform < share
}
