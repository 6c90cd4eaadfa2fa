//! Decides which worker sends the totals. All workers share the counters, so one sender is enough.
//!
//! All workers see one record: when the counters began, and when totals were last sent. The first
//! worker that replaces the record sends the totals. If a worker stalls or dies, the next worker
//! that checks the record takes over.

/// Interval between two exports of the totals, in nanoseconds.
pub const PERIOD_NS: u64 = 1_000_000_000;
/// Interval after which totals may be sent early: less than a tick, so that the next one may.
const EARLY_NS: u64 = PERIOD_NS / 20;
/// Tolerated difference between the clock readings of two workers, in nanoseconds.
const SLACK_NS: u64 = PERIOD_NS / 10;

/// The shared record, with times in nanoseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Time at which the counters began.
    pub began_ns: u64,
    /// Time of the last export. Initially the time at which the counters began.
    pub sent_ns: u64,
}

impl Turn {
    /// Parses the record. Returns None when nobody has written one.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let (began, rest) = bytes.split_first_chunk()?;
        let sent = rest.try_into().ok()?;
        Some(Self { began_ns: u64::from_le_bytes(*began), sent_ns: u64::from_le_bytes(sent) })
    }

    /// Encodes the record: both times as little-endian u64.
    pub fn write(self) -> [u8; 16] {
        let mut out = [0; 16];
        let parts = self.began_ns.to_le_bytes().into_iter().chain(self.sent_ns.to_le_bytes());
        out.iter_mut().zip(parts).for_each(|(to, from)| *to = from);
        out
    }

    /// Returns the record to write when totals are due, and None before that. Totals are also due
    /// when the clock was set back by more than one period. `early`: they are due earlier, because
    /// the load has changed.
    pub fn next(self, now_ns: u64, early: bool) -> Option<Self> {
        let waited = now_ns.checked_sub(self.sent_ns);
        let due = match waited {
            Some(waited) => waited >= if early { EARLY_NS } else { PERIOD_NS - SLACK_NS },
            None => self.sent_ns - now_ns > PERIOD_NS,
        };
        due.then_some(Self { sent_ns: now_ns, ..self })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Totals are due once a second. A clock slightly behind another worker's does not send them
    /// early. A clock that was set back does not stop them. When the load has changed, the next tick
    /// sends them.
    #[test]
    fn once_a_second() {
        let start = 5 * PERIOD_NS;
        let turn = Turn { began_ns: start, sent_ns: start };
        assert_eq!(turn.next(start, false), None);
        assert_eq!(turn.next(start + PERIOD_NS / 2, false), None);
        assert_eq!(turn.next(start - SLACK_NS, false), None);
        let sent = |sent_ns| Some(Turn { began_ns: start, sent_ns });
        assert_eq!(turn.next(start + PERIOD_NS, false), sent(start + PERIOD_NS));
        assert_eq!(turn.next(PERIOD_NS, false), sent(PERIOD_NS));
        assert_eq!(turn.next(start + EARLY_NS / 4, true), None);
        assert_eq!(turn.next(start + EARLY_NS, true), sent(start + EARLY_NS));
    }

    /// A written record is read back. Bytes of any other length are not a record.
    #[test]
    fn record_round_trip() {
        let turn = Turn { began_ns: 1, sent_ns: u64::MAX };
        assert_eq!(Turn::read(&turn.write()), Some(turn));
        for bad in [b"".as_slice(), &[0; 15], &[0; 17]] {
            assert_eq!(Turn::read(bad), None);
        }
    }
}
