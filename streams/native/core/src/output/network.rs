//! Network times of calls between clusters, as sums per second and bucket of a logarithmic
//! histogram.

use std::sync::LazyLock;

use hashbrown::HashMap;

use crate::memory::names::{Names, Sym};
use crate::memory::texts;
use crate::output::columns::{Sheet, Table, table};

/// Ratio of the buckets' bounds. Bucket i holds times above 1.04^(i-1) and up to 1.04^i
/// microseconds. A time of zero is in bucket 0.
const RATIO: f64 = 1.04;
const MOST: usize = 1_100; // 1.04^1100 is more than 2^62

/// Upper bound of every bucket, in whole microseconds.
static BOUNDS: LazyLock<Vec<u64>> =
    LazyLock::new(|| (0..MOST).map(|i| RATIO.powi(i as i32) as u64).collect());

/// Returns the bucket of a network time.
pub(crate) fn bucket(time_us: u64) -> i16 {
    // The result is the first bucket whose bound is not below the time. Small whole bounds repeat,
    // and the first of them is right.
    BOUNDS.partition_point(|bound| *bound < time_us).min(MOST - 1) as i16
}

table!(
    /// Columns of a batch of network times.
    Network {
        at "at": I64,
        source_cluster "source_cluster": Text,
        destination_cluster "destination_cluster": Text,
        bucket "bucket": I64,
        calls "calls": F64,
        time_us "time_us": F64,
    }
);

type Key = (Sym, Sym, i64, i16);

/// Sums of one tick. They are reproducible, because `rows` fixes the order in which calls are
/// added.
#[derive(Debug, Default)]
pub(crate) struct Sums(HashMap<Key, (f64, f64)>);

impl Sums {
    /// Adds a network time that counts for `count` calls.
    pub fn add(&mut self, source: Sym, destination: Sym, started_us: i64, time_us: u64, count: f64) {
        let key = (source, destination, started_us.div_euclid(1_000_000), bucket(time_us));
        let sums = self.0.entry(key).or_default();
        sums.0 += count;
        sums.1 += count * time_us as f64;
    }

    /// Appends the tick's rows by partition, pair, second and bucket.
    pub fn write(&mut self, tick: i64, partitions: u32, names: &Names, out: &mut Sheet<Network>) {
        let Sheet { table, batch, dictionary } = out;
        let mut pairs: HashMap<(Sym, Sym), u32> = HashMap::new();
        let mut rows: Vec<_> = self.0.drain().collect();
        table.reserve(rows.len());
        for ((source, destination, ..), _) in &rows {
            pairs.entry((*source, *destination)).or_insert_with(|| {
                let pair = format!("{}>{}", names.text(*source), names.text(*destination));
                partition_of(texts::hash(&pair), partitions)
            });
        }
        let partition = |key: &Key| pairs[&(key.0, key.1)];
        let order = |key: &Key| (partition(key), names.text(key.0), names.text(key.1), key.2, key.3);
        rows.sort_unstable_by(|(a, _), (b, _)| order(a).cmp(&order(b)));
        for same in rows.chunk_by(|(a, _), (b, _)| partition(a) == partition(b)) {
            let start = batch.rows;
            for ((source, destination, at, bucket), (calls, time_us)) in same {
                table.at.push(*at);
                table.source_cluster.push(dictionary.code(*source));
                table.destination_cluster.push(dictionary.code(*destination));
                table.bucket.push(i64::from(*bucket));
                table.calls.push(*calls);
                table.time_us.push(*time_us);
            }
            batch.rows += same.len();
            batch.slice(tick, partition(&same[0].0), start);
        }
    }
}

/// Returns the partition of a topic for a hash.
pub(crate) fn partition_of(hash: u64, partitions: u32) -> u32 {
    (hash % u64::from(partitions)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn whole_powers_of_the_ratio_bound_the_buckets() {
        assert_eq!([0, 1, 2, 3].map(bucket), [0, 0, 18, 29]); // 1.04^18 = 2.03, 1.04^29 = 3.12
        assert_eq!(bucket(3_600_000_000), 562);
        assert!(bucket(u64::MAX) > 1_000);
    }

    proptest! {
        #[test]
        fn a_time_is_within_its_bucket(time in 1_u64..3_600_000_000) {
            let i = i32::from(bucket(time));
            prop_assert!(time as f64 <= RATIO.powi(i) && (i == 0 || time as f64 > RATIO.powi(i - 1)));
        }
    }
}
