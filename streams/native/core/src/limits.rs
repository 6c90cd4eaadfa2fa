//! How long and how much is held: configuration, in ticks once it is checked.

/// Milliseconds of log time unless said otherwise.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// Silence after which a trace is complete.
    pub window_ms: i64,
    /// Silence after which one is closed whose client span still waits for its server span.
    pub hold_ms: i64,
    /// Longest time from a trace's first span to its end.
    pub life_ms: i64,
    /// How long a span is known, so that a repeat of it is dropped.
    pub remember_ms: i64,
    pub tick_ms: i64,
    /// Spans beyond which a trace closes at the end of the tick.
    pub max_trace_spans: usize,
    /// Spans of one tick beyond which the traces that they belong to close at its end. Those beyond twice as many become
    /// rows at once; those beyond four times as many are not remembered either, so that a repeat of them would count
    /// again.
    pub max_tick_spans: usize,
    /// Path templates per service and tick that no rule names; more become `/other`.
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
    /// Everything that is wrong, in one text.
    ///
    /// # Errors
    /// Each wrong value with its name and what is allowed.
    pub fn check(&self) -> Result<(), String> {
        let tick = self.tick_ms;
        let mut wrong = Vec::new();
        if !(10..=60_000).contains(&tick) {
            wrong.push(format!("tick_ms {tick}: must be 10 to 60000"));
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
                    "{name} {value}: must be {least} ({at}) to 3600000 and whole ticks of {tick}"
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
                wrong.push(format!("{name} {value}: must be 1 to 10000000"));
            }
        }
        if !(0.0..=1.0).contains(&self.span_sample) {
            wrong.push(format!("span_sample {}: must be 0 to 1", self.span_sample));
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

    /// How much log before a tick decides what is in it (`window` says why).
    pub(crate) fn horizon_ms(&self) -> i64 {
        self.life_ms + self.hold_ms + self.remember_ms
    }
}

/// The same in ticks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticks {
    pub window: i64,
    pub hold: i64,
    pub life: i64,
    pub remember: i64,
}
