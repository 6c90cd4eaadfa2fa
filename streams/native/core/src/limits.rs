//! Configured limits on times and amounts. They are converted to ticks once they are checked.

/// Limits of a partition. Times are milliseconds of log time.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// Silence after which a trace is complete.
    pub window_ms: i64,
    /// Silence after which a trace is closed if a client span of it still waits for its server
    /// span.
    pub hold_ms: i64,
    /// Longest time from a trace's first span to its end.
    pub life_ms: i64,
    /// Time for which a span is remembered, so that its repeats are dropped.
    pub remember_ms: i64,
    pub tick_ms: i64,
    /// Number of spans at which a trace is closed at the end of the tick.
    pub max_trace_spans: usize,
    /// Number of spans per tick. Traces of the spans beyond it close at the end of the tick. Spans
    /// beyond twice this number become rows at once. Spans beyond four times this number are not
    /// remembered either, so their repeats would count again.
    pub max_tick_spans: usize,
    /// Number of path templates per service and tick that no rule names. Further templates become
    /// `/other`.
    pub classes_per_service: usize,
    /// Share of traces whose spans are kept raw, 0..1.
    pub span_sample: f64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            window_ms: 2_000,
            hold_ms: 10_000,
            life_ms: 30_000,
            remember_ms: 60_000,
            tick_ms: 500,
            max_trace_spans: 20_000,
            max_tick_spans: 80_000,
            classes_per_service: 200,
            span_sample: 0.01,
        }
    }
}

impl Limits {
    /// Checks all limits.
    ///
    /// # Errors
    /// Names each wrong value and what is allowed, in one text.
    pub fn check(&self) -> Result<(), String> {
        let tick = self.tick_ms;
        let mut wrong = Vec::new();
        if !(10..=60_000).contains(&tick) {
            wrong.push(format!("tick_ms: {tick}; must be 10 to 60000"));
        }
        let mut least = ("tick_ms", tick);
        let spans = [
            ("window_ms", self.window_ms),
            ("hold_ms", self.hold_ms),
            ("life_ms", self.life_ms),
            ("remember_ms", self.remember_ms),
        ];
        for (name, value) in spans {
            if value < least.1 || value > 3_600_000 || tick > 0 && value % tick != 0 {
                let (least, at) = least;
                wrong.push(format!(
                    "{name}: {value}; must be a multiple of tick_ms ({tick}), from {least} ({at}) to 3600000"
                ));
            }
            least = (name, value);
        }
        for (name, value) in [
            ("max_trace_spans", self.max_trace_spans),
            ("max_tick_spans", self.max_tick_spans),
            ("classes_per_service", self.classes_per_service),
        ] {
            if !(1..=10_000_000).contains(&value) {
                wrong.push(format!("{name}: {value}; must be 1 to 10000000"));
            }
        }
        if !(0.0..=1.0).contains(&self.span_sample) {
            wrong.push(format!("span_sample: {}; must be 0 to 1", self.span_sample));
        }
        if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ")) }
    }

    pub(crate) fn ticks(&self) -> Ticks {
        Ticks {
            window: self.window_ms / self.tick_ms,
            hold: self.hold_ms / self.tick_ms,
            life: self.life_ms / self.tick_ms,
            remember: self.remember_ms / self.tick_ms,
        }
    }

    /// Length of the log before a tick that decides the tick's content, in ms (`window` explains
    /// why).
    pub(crate) fn horizon_ms(&self) -> i64 {
        self.life_ms + self.hold_ms + self.remember_ms
    }
}

/// The times of `Limits`, in ticks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticks {
    pub window: i64,
    pub hold: i64,
    pub life: i64,
    pub remember: i64,
}
