//! Whose turn it is to send the totals: the workers share the counters, so one of them is enough.
//!
//! All see one record: when the counters began, and when totals were last sent. Whoever replaces it first
//! sends; a worker that stalls or dies is replaced by the next that looks.

/// Totals are sent this often.
pub const PERIOD_NS: u64 = 1_000_000_000;
/// A worker's clock reading may be that much older than another's.
const SLACK_NS: u64 = PERIOD_NS / 10;

/// The record, nanoseconds since the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// When the counters began.
    pub began_ns: u64,
    /// When totals were last sent; at first when they began.
    pub sent_ns: u64,
}

impl Turn {
    /// Reads the record; None where nobody wrote one.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let (began, rest) = bytes.split_first_chunk()?;
        let sent = rest.try_into().ok()?;
        Some(Self { began_ns: u64::from_le_bytes(*began), sent_ns: u64::from_le_bytes(sent) })
    }

    /// The record's bytes.
    pub fn write(self) -> [u8; 16] {
        let mut out = [0; 16];
        let parts = self.began_ns.to_le_bytes().into_iter().chain(self.sent_ns.to_le_bytes());
        out.iter_mut().zip(parts).for_each(|(to, from)| *to = from);
        out
    }

    /// The record to write when totals are due; None before. A clock that was set back makes them due.
    pub fn next(self, now_ns: u64) -> Option<Self> {
        let waited = now_ns.checked_sub(self.sent_ns);
        let due = match waited {
            Some(waited) => waited >= PERIOD_NS - SLACK_NS,
            None => self.sent_ns - now_ns > PERIOD_NS,
        };
        due.then_some(Self { sent_ns: now_ns, ..self })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Totals are due once a second; a clock that is a little behind another's makes them no sooner, one that
    /// was set back does not stop them.
    #[test]
    fn once_a_second() {
        let start = 5 * PERIOD_NS;
        let turn = Turn { began_ns: start, sent_ns: start };
        assert_eq!(turn.next(start), None);
        assert_eq!(turn.next(start + PERIOD_NS / 2), None);
        assert_eq!(turn.next(start - SLACK_NS), None);
        assert_eq!(turn.next(start + PERIOD_NS), Some(Turn { began_ns: start, sent_ns: start + PERIOD_NS }));
        assert_eq!(turn.next(PERIOD_NS), Some(Turn { began_ns: start, sent_ns: PERIOD_NS }));
    }

    /// What is written is read; anything else is no record.
    #[test]
    fn record_round_trip() {
        let turn = Turn { began_ns: 1, sent_ns: u64::MAX };
        assert_eq!(Turn::read(&turn.write()), Some(turn));
        for bad in [b"".as_slice(), &[0; 15], &[0; 17]] {
            assert_eq!(Turn::read(bad), None);
        }
    }
}
