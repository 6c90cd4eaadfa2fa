//! Ratio sampling of the traces that this proxy starts, by OpenTelemetry's consistent probability
//! sampling: a trace is kept when its 56 random bits are at least the rejection threshold T, so its
//! probability is 1 - T / 2^56, which every later reader finds in `tracestate` as `ot=th:T`.
//! Source: OTel specification, "TraceState: Probability Sampling"; W3C Trace Context level 2, random flag.

use crate::ids::TraceId;

const FULL: u64 = 1 << 56;
const DIGITS: usize = 14;

/// Decides about traces that start here. Continued traces keep the decision that they came with.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampler {
    threshold: u64,
    tracestate: Option<String>,
}

impl Sampler {
    /// `ratio` in 0..=1: the part of traces to keep.
    pub fn new(ratio: f64) -> Self {
        let threshold = (((1.0 - ratio.clamp(0.0, 1.0)) * FULL as f64).round() as u64).min(FULL);
        // At 1 a span stands for itself, which is what no threshold means too: one header edit less.
        let told = (1..FULL).contains(&threshold);
        Self { threshold, tracestate: told.then(|| format!("ot=th:{}", threshold_digits(threshold))) }
    }

    /// Whether a new trace is kept. Its id is random as a whole; level 2 looks at the last 7 bytes.
    pub fn keeps(&self, trace: &TraceId) -> bool {
        let random = trace.iter().skip(9).fold(0, |bits, byte| (bits << 8) | u64::from(*byte));
        random >= self.threshold
    }

    /// `tracestate` of the traces that are kept; None where all are.
    pub fn tracestate(&self) -> Option<&str> {
        self.tracestate.as_deref()
    }
}

/// The threshold as up to 14 hexadecimal digits, trailing zeros dropped.
fn threshold_digits(threshold: u64) -> String {
    let digits = format!("{threshold:0DIGITS$x}");
    let short = digits.trim_end_matches('0');
    if short.is_empty() { "0".to_string() } else { short.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Ids;
    use proptest::prelude::*;

    fn threshold_of(tracestate: &str) -> u64 {
        let digits = tracestate.strip_prefix("ot=th:").unwrap();
        u64::from_str_radix(&format!("{digits:0<14}"), 16).unwrap()
    }

    /// The edges: 1 keeps all and says nothing, 0 keeps none; a half is the specification's `8`.
    #[test]
    fn edges() {
        let (all, none, half) = (Sampler::new(1.0), Sampler::new(0.0), Sampler::new(0.5));
        let (low, high) = ([0; 16], [0xff; 16]);
        assert!(all.keeps(&low) && all.keeps(&high) && all.tracestate().is_none());
        assert!(!none.keeps(&low) && !none.keeps(&high) && none.tracestate().is_none());
        assert_eq!(half.tracestate(), Some("ot=th:8"));
        assert!(!half.keeps(&low) && half.keeps(&high));
    }

    /// Only the last seven bytes decide, as every other consistent sampler would.
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
        /// What the threshold says is the share that is kept, within seven standard deviations.
        #[test]
        fn share_kept_is_the_ratio(ratio in 0.01f64..0.99, seed: u64) {
            let (sampler, mut ids) = (Sampler::new(ratio), Ids::from_weak_seed(seed));
            let told = 1.0 - threshold_of(sampler.tracestate().unwrap()) as f64 / FULL as f64;
            prop_assert!((told - ratio).abs() < 1e-9);
            let kept = (0..4_000).filter(|_| sampler.keeps(&ids.trace_id())).count() as f64;
            let deviation = (4_000.0 * ratio * (1.0 - ratio)).sqrt();
            prop_assert!((kept - 4_000.0 * ratio).abs() < 7.0 * deviation, "{kept} of 4000 at {ratio}");
        }

        /// Samplers agree: what a lower ratio keeps, a higher one keeps too.
        #[test]
        fn consistent(low in 0.0f64..1.0, high in 0.0f64..1.0, trace: [u8; 16]) {
            let (low, high) = (low.min(high), low.max(high));
            prop_assert!(!Sampler::new(low).keeps(&trace) || Sampler::new(high).keeps(&trace));
        }
    }
}
