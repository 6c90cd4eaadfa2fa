//! How the calls of routes ended, as their callers saw it. Nothing is counted unless it is watched.

use std::collections::HashMap;

/// Bucket i has latencies in (1.04^(i-1), 1.04^i] µs, as in streams.
const GROWTH: f64 = 1.04;
/// The bucket of failed calls, which have no latency.
pub const FAILED: i32 = -1;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    pub route: u32,
    pub from: u16,
    pub to: u16,
    pub bucket: i32,
}

#[derive(Clone, Debug, Default)]
pub struct Outcomes {
    watched: bool,
    /// Calls, and the seconds that they took.
    sums: HashMap<Key, (u64, f64)>,
}

impl Outcomes {
    pub fn watch(&mut self) {
        self.watched = true;
    }

    pub fn add(&mut self, route: u32, from: u16, to: u16, seconds: f64, failed: bool) {
        if !self.watched {
            return;
        }
        let bucket = if failed { FAILED } else { bucket_of(seconds) };
        let sums = self.sums.entry(Key { route, from, to, bucket }).or_default();
        sums.0 += 1;
        sums.1 += seconds;
    }

    /// Returns what was counted since the last time, in the order of the keys.
    pub fn take(&mut self) -> Vec<(Key, u64, f64)> {
        let mut found: Vec<_> =
            self.sums.drain().map(|(key, (calls, seconds))| (key, calls, seconds)).collect();
        found.sort_unstable_by_key(|(key, ..)| *key);
        found
    }
}

fn bucket_of(seconds: f64) -> i32 {
    ((seconds * 1e6).max(1.0).ln() / GROWTH.ln() - 1e-9).ceil() as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_those_of_streams() {
        // A microsecond and less are in bucket 0; 1.04^10 µs is the end of bucket 10.
        assert_eq!((bucket_of(0.0), bucket_of(1e-6)), (0, 0));
        let end = GROWTH.powi(10) / 1e6;
        assert_eq!((bucket_of(end), bucket_of(end * 1.01)), (10, 11));
    }

    #[test]
    fn nothing_is_counted_unless_it_is_watched() {
        let mut outcomes = Outcomes::default();
        outcomes.add(0, 0, 1, 0.1, false);
        assert!(outcomes.take().is_empty());
        outcomes.watch();
        outcomes.add(0, 0, 1, 0.1, true);
        outcomes.add(0, 0, 1, 0.3, true);
        let key = Key { route: 0, from: 0, to: 1, bucket: FAILED };
        assert_eq!(outcomes.take(), vec![(key, 2, 0.4)]);
        assert!(outcomes.take().is_empty());
    }
}
