//! Ratio sampling of the traces that this proxy starts: OpenTelemetry's consistent probability
//! sampling.
//!
//! A trace is kept when its 56 random bits are at least the rejection threshold T. Its sampling
//! probability is therefore (2^56 - T) / 2^56. Every later reader finds T in `tracestate` as
//! `ot=th:T`. Source: OTel specification, "TraceState: Probability Sampling"; W3C Trace Context
//! level 2, random flag.

use crate::context::ids::TraceId;

const FULL: u64 = 1 << 56;
const DIGITS: usize = 14;

/// Sampler of the traces that start here. Continued traces keep the decision that they arrived
/// with.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampler {
    threshold: u64,
    tracestate: Option<String>,
}

impl Sampler {
    /// Creates a sampler that keeps the given `ratio` of traces, 0..=1.
    pub fn new(ratio: f64) -> Self {
        let threshold = (((1.0 - ratio.clamp(0.0, 1.0)) * FULL as f64).round() as u64).min(FULL);
        // At ratio 1 each span counts as one request. Readers assume the same when no threshold is
        // present, so the header edit is saved.
        let partial = (1..FULL).contains(&threshold);
        Self { threshold, tracestate: partial.then(|| format!("ot=th:{}", threshold_digits(threshold))) }
    }

    /// Whether a new trace is kept. Level 2 compares only the last 7 bytes of its id, which are
    /// random.
    pub fn keeps(&self, trace: &TraceId) -> bool {
        let random = trace.iter().skip(9).fold(0, |bits, byte| (bits << 8) | u64::from(*byte));
        random >= self.threshold
    }

    /// The `tracestate` of kept traces. None when all traces are kept, or none.
    pub fn tracestate(&self) -> Option<&str> {
        self.tracestate.as_deref()
    }
}

/// Formats the threshold as up to 14 hexadecimal digits without trailing zeros.
fn threshold_digits(threshold: u64) -> String {
    let digits = format!("{threshold:0DIGITS$x}");
    let short = digits.trim_end_matches('0');
    if short.is_empty() { "0".to_string() } else { short.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::ids::Ids;
    use proptest::prelude::*;

    fn threshold_of(tracestate: &str) -> u64 {
        let digits = tracestate.strip_prefix("ot=th:").unwrap();
        u64::from_str_radix(&format!("{digits:0<14}"), 16).unwrap()
    }

    /// Ratio 1 keeps all traces and writes no threshold. Ratio 0 keeps none. Ratio 0.5 writes `8`,
    /// as in the specification.
    #[test]
    fn edges() {
        let (all, none, half) = (Sampler::new(1.0), Sampler::new(0.0), Sampler::new(0.5));
        let (low, high) = ([0; 16], [0xff; 16]);
        assert!(all.keeps(&low) && all.keeps(&high) && all.tracestate().is_none());
        assert!(!none.keeps(&low) && !none.keeps(&high) && none.tracestate().is_none());
        assert_eq!(half.tracestate(), Some("ot=th:8"));
        assert!(!half.keeps(&low) && half.keeps(&high));
    }

    /// Only the last seven bytes decide, as in every other consistent sampler.
    #[test]
    fn only_the_random_bits_decide() {
        let sampler = Sampler::new(0.25);
        let mut trace = [0xff; 16];
        trace[9..].copy_from_slice(&[0xbf, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
        assert!(!sampler.keeps(&trace));
        trace[9..].copy_from_slice(&[0xc0, 0, 0, 0, 0, 0, 0]);
        assert!(sampler.keeps(&trace));
        assert_eq!(sampler.tracestate(), Some("ot=th:c"));
    }

    proptest! {
        /// The share of kept traces matches the written threshold, within seven standard
        /// deviations.
        #[test]
        fn share_kept_is_the_ratio(ratio in 0.01f64..0.99, seed: u64) {
            let (sampler, mut ids) = (Sampler::new(ratio), Ids::from_weak_seed(seed));
            let written = 1.0 - threshold_of(sampler.tracestate().unwrap()) as f64 / FULL as f64;
            prop_assert!((written - ratio).abs() < 1e-9);
            let kept = (0..4_000).filter(|_| sampler.keeps(&ids.trace_id())).count() as f64;
            let deviation = (4_000.0 * ratio * (1.0 - ratio)).sqrt();
            prop_assert!((kept - 4_000.0 * ratio).abs() < 7.0 * deviation, "{kept} of 4000 at {ratio}");
        }

        /// Samplers are consistent: every trace that a lower ratio keeps, a higher ratio keeps too.
        #[test]
        fn consistent(low in 0.0f64..1.0, high in 0.0f64..1.0, trace: [u8; 16]) {
            let (low, high) = (low.min(high), low.max(high));
            prop_assert!(!Sampler::new(low).keeps(&trace) || Sampler::new(high).keeps(&trace));
        }
    }
}
