//! Python binding of one Kafka partition of otlp_spans.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use spillway_spans::classes::rules::{Rule, RuleKind};
use spillway_spans::limits::Limits;
use spillway_spans::output::closed;
use spillway_spans::partition;

use crate::PayloadError;
use crate::batch::Batch;

type RuleRow = (i64, String, String, String, String, String);

#[pyclass(frozen)]
pub struct Closed {
    #[pyo3(get)]
    calls: Py<Batch>,
    #[pyo3(get)]
    edges: Py<Batch>,
    #[pyo3(get)]
    network: Py<Batch>,
    #[pyo3(get)]
    spans: Py<Batch>,
    #[pyo3(get)]
    commit_offset: Option<i64>,
    #[pyo3(get)]
    traces: u64,
}

impl Closed {
    fn of(closed: closed::Closed, py: Python<'_>) -> PyResult<Self> {
        Ok(Closed {
            calls: Batch::of(closed.calls, py)?,
            edges: Batch::of(closed.edges, py)?,
            network: Batch::of(closed.network, py)?,
            spans: Batch::of(closed.spans, py)?,
            commit_offset: closed.commit_offset,
            traces: closed.traces,
        })
    }
}

#[pyclass(frozen)]
pub struct Partition {
    inner: Mutex<partition::Partition>,
    hot_ms: i64,
    published: Published,
}

/// State that Python may read at any time. A reader holds the interpreter, so it must not wait
/// until a tick is closed.
#[derive(Default)]
struct Published {
    open_spans: AtomicUsize,
    known_traces: AtomicUsize,
    clock_ms: AtomicI64,
    overridden: AtomicU64,
}

impl Published {
    fn update(&self, engine: &mut partition::Partition) {
        self.open_spans.store(engine.open_spans(), Relaxed);
        self.known_traces.store(engine.known_traces(), Relaxed);
        self.clock_ms.store(engine.clock_ms().unwrap_or(0), Relaxed);
        self.overridden.store(engine.overridden(), Relaxed);
    }
}

impl Partition {
    /// Runs `act` on the engine without holding the interpreter, one call at a time. If a call
    /// panics, its partial work stays and later calls continue.
    fn with<T: Send>(&self, py: Python<'_>, act: impl FnOnce(&mut partition::Partition) -> T + Send) -> T {
        py.detach(|| {
            let mut engine = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
            let result = act(&mut engine);
            self.published.update(&mut engine);
            result
        })
    }
}

#[pymethods]
impl Partition {
    #[new]
    #[pyo3(signature = (*, first_offset, log_start, partitions, window_ms=2_000, hold_ms=10_000, life_ms=30_000,
        remember_ms=60_000, tick_ms=500, max_trace_spans=20_000, max_tick_spans=80_000, classes_per_service=200,
        span_sample=0.01, hot_ms=10_000, follows_ms=None))]
    #[expect(clippy::too_many_arguments)]
    fn new(
        first_offset: i64,
        log_start: bool,
        partitions: u32,
        window_ms: i64,
        hold_ms: i64,
        life_ms: i64,
        remember_ms: i64,
        tick_ms: i64,
        max_trace_spans: usize,
        max_tick_spans: usize,
        classes_per_service: usize,
        span_sample: f64,
        hot_ms: i64,
        follows_ms: Option<i64>,
    ) -> PyResult<Self> {
        let limits = Limits {
            window_ms,
            hold_ms,
            life_ms,
            remember_ms,
            tick_ms,
            max_trace_spans,
            max_tick_spans,
            classes_per_service,
            span_sample,
        };
        let engine = partition::Partition::new(limits, first_offset, log_start, partitions);
        let mut engine = engine.map_err(PyValueError::new_err)?;
        if let Some(horizon_ms) = follows_ms {
            engine.follow(horizon_ms);
        }
        Ok(Partition { inner: Mutex::new(engine), hot_ms, published: Published::default() })
    }

    fn set_rules(&self, rules: Vec<RuleRow>, py: Python<'_>) -> PyResult<()> {
        let rules = rules.into_iter().map(rule).collect::<PyResult<Vec<_>>>()?;
        self.with(py, |engine| engine.set_rules(rules));
        Ok(())
    }

    #[pyo3(signature = (payload, offset, timestamp_ms, now_ms=None, cluster=None))]
    fn add<'py>(
        &self,
        payload: &Bound<'py, PyBytes>,
        offset: i64,
        timestamp_ms: i64,
        now_ms: Option<i64>,
        cluster: Option<&str>,
    ) -> PyResult<Vec<(String, Bound<'py, PyBytes>, u64)>> {
        let (py, bytes) = (payload.py(), payload.as_bytes());
        let is_hot = now_ms.unwrap_or_else(wall_ms).saturating_sub(timestamp_ms) < self.hot_ms;
        let rejected = self
            .with(py, |engine| engine.add(bytes, offset, timestamp_ms, is_hot, cluster))
            .map_err(|error| PayloadError::new_err(error.to_string()))?;
        let rejected =
            rejected.into_iter().map(|part| (part.reason, PyBytes::new(py, &part.request), part.spans));
        Ok(rejected.collect())
    }

    fn advance(&self, now_ms: i64, py: Python<'_>) {
        self.with(py, |engine| engine.advance(now_ms));
    }

    fn arrivals(&self, py: Python<'_>) -> PyResult<Py<Batch>> {
        let batch = self.with(py, |engine| engine.arrivals());
        Batch::of(batch, py)
    }

    #[pyo3(signature = (max_rows=400_000))]
    fn close(&self, max_rows: usize, py: Python<'_>) -> PyResult<Option<Closed>> {
        let closed = self.with(py, |engine| engine.close(max_rows));
        closed.map(|closed| Closed::of(closed, py)).transpose()
    }

    fn counters(&self, py: Python<'_>) -> HashMap<&'static str, u64> {
        self.with(py, |engine| engine.counters()).into_iter().collect()
    }

    #[getter]
    fn open_spans(&self) -> usize {
        self.published.open_spans.load(Relaxed)
    }

    #[getter]
    fn known_traces(&self) -> usize {
        self.published.known_traces.load(Relaxed)
    }

    #[getter]
    fn overridden(&self) -> u64 {
        self.published.overridden.load(Relaxed)
    }

    #[getter]
    fn clock_ms(&self) -> i64 {
        self.published.clock_ms.load(Relaxed)
    }
}

fn rule((effective_from_ms, service, method, template, becomes, kind): RuleRow) -> PyResult<Rule> {
    let Some(known) = RuleKind::parse(&kind) else {
        return Err(PyValueError::new_err(format!(
            "class rule of {service} {method} {template}: kind {kind}: must be pinned, merged, learned, bounded, \
             retired or unpinned"
        )));
    };
    Ok(Rule { effective_from_ms, service, method, template, becomes, kind: known })
}

fn wall_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64)
}
