//! The `tracestate` list in the form that a span records. The header itself is forwarded unchanged.
//!
//! Source: <https://www.w3.org/TR/trace-context/#tracestate-header>.

use std::borrow::Cow;

/// Longest list, in bytes, that the specification asks every participant to forward.
const MAX: usize = 512;
/// Prefix of OpenTelemetry's list member, which carries the sampling threshold.
const OT: &[u8] = b"ot=";

/// Returns the list to record, joined from all `tracestate` lines.
///
/// A list that is too long or not printable ASCII is reduced to OpenTelemetry's member. Without its
/// sampling threshold, the span would count as a single request.
pub fn recordable<'a>(first: &'a [u8], more: &[&'a [u8]]) -> Option<Cow<'a, str>> {
    if more.is_empty()
        && first.len() <= MAX
        && let Some(text) = plain(first)
    {
        return Some(Cow::Borrowed(text)).filter(|text| !text.is_empty());
    }
    let lines = || std::iter::once(&first).chain(more).filter(|line| !line.trim_ascii().is_empty());
    let commas = lines().count().saturating_sub(1);
    let total = lines().map(|line| line.len()).sum::<usize>() + commas;
    let texts: Option<Vec<&str>> = lines().map(|line| plain(line)).collect();
    match texts {
        Some(texts) if texts.is_empty() => None,
        Some(texts) if total <= MAX => Some(Cow::Owned(texts.join(","))),
        _ => lines().find_map(|line| ot_member(line)).map(Cow::Borrowed),
    }
}

/// Returns the member `ot=…` of one line.
fn ot_member(line: &[u8]) -> Option<&str> {
    let mut members = line.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    members.find(|member| member.starts_with(OT)).filter(|member| member.len() <= MAX).and_then(plain)
}

fn plain(bytes: &[u8]) -> Option<&str> {
    let printable = bytes.iter().all(|byte| (0x20..0x7f).contains(byte));
    printable.then(|| std::str::from_utf8(bytes).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Several lines form one list. A list that is too long or holds foreign bytes keeps its
    /// threshold.
    #[test]
    fn lists() {
        assert_eq!(recordable(b"a=1,ot=th:8", &[]).as_deref(), Some("a=1,ot=th:8"));
        assert_eq!(recordable(b"a=1", &[b"ot=th:8"]).as_deref(), Some("a=1,ot=th:8"));
        let long = format!("a={},ot=th:c;rv:01", "x".repeat(600));
        assert_eq!(recordable(long.as_bytes(), &[]).as_deref(), Some("ot=th:c;rv:01"));
        assert_eq!(recordable(b"v=\xff, ot=th:4", &[]).as_deref(), Some("ot=th:4"));
        assert_eq!(recordable(b"v=\xff", &[]), None);
        assert_eq!(recordable(b"", &[]), None);
        assert_eq!(recordable(b"", &[b"", b" "]), None, "empty lines are no members");
        assert_eq!(recordable(b"", &[b"a=1", b"", b"b=2"]).as_deref(), Some("a=1,b=2"));
        let (most, more) = (format!("a={}", "x".repeat(MAX - 6)), format!("a={}", "x".repeat(MAX - 5)));
        assert_eq!(recordable(most.as_bytes(), &[b"b=2"]).map(|list| list.len()), Some(MAX));
        assert_eq!(recordable(more.as_bytes(), &[b"b=2"]), None);
    }

    proptest! {
        /// Whatever the bytes are, the recorded list is printable and short.
        #[test]
        fn any_bytes(first: Vec<u8>, second in proptest::collection::vec(any::<u8>(), 0..700)) {
            if let Some(text) = recordable(&first, &[&second]) {
                prop_assert!(text.len() <= MAX && text.bytes().all(|byte| (0x20..0x7f).contains(&byte)));
            }
        }

        /// A list of printable members within the length limit is recorded unchanged.
        #[test]
        fn round_trip(list in "[a-z0-9]{1,8}=[!-+.-~]{1,40}(,[a-z0-9]{1,8}=[!-+.-~]{1,40}){0,8}") {
            let recorded = recordable(list.as_bytes(), &[]);
            prop_assert_eq!(recorded.as_deref(), Some(list.as_str()));
        }
    }
}
