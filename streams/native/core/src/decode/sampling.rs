//! Sampling probability in W3C tracestate, as written by OpenTelemetry's consistent probability
//! sampling.
//!
//! The member `ot` has a sub-key `th`: up to 14 hex digits with trailing zeros dropped. A span is
//! kept when its 56 random bits are at least the threshold T. Its probability is therefore (2^56 -
//! T) / 2^56, and its adjusted count is the inverse (OpenTelemetry specification, "TraceState:
//! Probability Sampling").

const FULL: u64 = 1 << 56;
/// Largest number of requests that one span is believed to stand for. Nobody samples less often,
/// because the traces of a service would then be hours apart. A caller from outside that claims
/// more would otherwise count as all the load there is.
pub const MAX_COUNT: f64 = (1 << 20) as f64;
const LEAST_KEPT: u64 = FULL >> 20;
const DIGITS: usize = 14;

/// Returns how many requests one span stands for. 1.0 without a threshold, None for a malformed
/// threshold or for more than `MAX_COUNT` requests.
pub fn adjusted_count(tracestate: &[u8]) -> Option<f64> {
    for member in tracestate.split(|byte| *byte == b',') {
        let Some(pairs) = member.trim_ascii().strip_prefix(b"ot=") else { continue };
        for pair in pairs.split(|byte| *byte == b';') {
            match pair.strip_prefix(b"th") {
                Some([b':', threshold @ ..]) => return count(threshold),
                Some([]) => return None,
                _ => {}
            }
        }
    }
    Some(1.0)
}

fn count(threshold: &[u8]) -> Option<f64> {
    if threshold.is_empty() || threshold.len() > DIGITS {
        return None;
    }
    let mut number = 0;
    for byte in threshold {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            _ => return None,
        };
        number = number << 4 | u64::from(digit);
    }
    let number = number << (4 * (DIGITS - threshold.len()));
    let kept = FULL - number;
    (kept >= LEAST_KEPT).then(|| FULL as f64 / kept as f64)
}

/// Returns the tracestate of a trace that was kept with this probability. None unless the
/// probability is in [1 / `MAX_COUNT`, 1].
pub fn tracestate(probability: f64) -> Option<String> {
    if !(1.0 / MAX_COUNT..=1.0).contains(&probability) {
        return None;
    }
    let threshold = ((1.0 - probability) * FULL as f64).round_ties_even() as u64;
    let digits = format!("{threshold:014x}");
    let digits = digits.trim_end_matches('0');
    Some(format!("ot=th:{}", if digits.is_empty() { "0" } else { digits }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Trailing zeros may be omitted. Malformed thresholds are distinguished from absent ones.
    #[test]
    fn thresholds_of_the_specification() {
        for (state, expected) in [
            ("", Some(1.0)),
            ("vendor=x", Some(1.0)),
            ("vendor=ot=th:8", Some(1.0)),
            ("ot=rv:1;p:8", Some(1.0)),
            ("ot=th:0", Some(1.0)),
            ("ot=th:8", Some(2.0)),
            ("ot=th:c", Some(4.0)),
            ("a=b,ot=rv:1;th:8", Some(2.0)),
            ("ot=th:8;th:c", Some(2.0)),
            ("ot=thx:8;th:c", Some(4.0)),
            ("ot=th:", None),
            ("ot=th", None),
            ("ot=th:XYZ", None),
            ("ot=th:000000000000000", None),
            ("ot=th:fffff", Some(MAX_COUNT)),
            ("ot=th:fffff000000001", None),
            ("ot=th:ffffffffffffff", None),
        ] {
            assert_eq!(adjusted_count(state.as_bytes()), expected, "{state}");
        }
        let hundredth = adjusted_count(b"vendor=x, ot=rv:abc;th:fd70a4").unwrap();
        assert!((hundredth / 100.0 - 1.0).abs() < 1e-3);
    }

    /// Impossible probabilities have no tracestate.
    #[test]
    fn impossible_probabilities_are_refused() {
        for probability in [0.0, -0.5, 1.5, 1e-300, 0.999 / MAX_COUNT, f64::NAN, f64::INFINITY] {
            assert_eq!(tracestate(probability), None);
        }
        assert_eq!(tracestate(1.0).as_deref(), Some("ot=th:0"));
        assert_eq!(tracestate(0.5).as_deref(), Some("ot=th:8"));
        assert_eq!(tracestate(1.0 / MAX_COUNT).as_deref(), Some("ot=th:fffff"));
    }

    proptest! {
        /// The decoder reads what the converter writes.
        #[test]
        fn a_probability_survives_the_way_there_and_back(probability in 1.0 / MAX_COUNT..=1.0) {
            let count = adjusted_count(tracestate(probability).unwrap().as_bytes()).unwrap();
            prop_assert!((count * probability - 1.0).abs() < 1e-6);
        }

        /// Whatever a tracestate contains, a count is at least 1 and at most `MAX_COUNT`.
        #[test]
        fn a_count_has_bounds(state in "[ot=th:;,0-9a-fx ]{0,40}") {
            prop_assert!(adjusted_count(state.as_bytes()).is_none_or(|count| (1.0..=MAX_COUNT).contains(&count)));
        }
    }
}
