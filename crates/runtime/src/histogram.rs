//! A small histogram of durations that is cheap enough to be always on.
//!
//! Log-linear buckets: 16 per power of two, so a quantile is at most 6.25 % off; 640 buckets cover 1 µs to 12 days.
//! Recording is an index computation and an add. Only the powers of two between the shortest and the longest duration
//! seen take memory, 128 bytes each: a topic that had a few messages pays for a few of them.

const SUB_BITS: u32 = 4;
const SUB: usize = 1 << SUB_BITS;
const BUCKETS: usize = 640;

/// Counts of durations. Values are recorded in nanoseconds and kept in microseconds.
#[derive(Clone, Debug, Default)]
pub struct Histogram {
    /// Buckets `first..first + counts.len()`, whole powers of two; empty until the first value.
    counts: Vec<u64>,
    /// A multiple of [`SUB`].
    first: usize,
    count: u64,
    sum_ns: u64,
    max_ns: u64,
}

impl Histogram {
    /// Records one duration.
    pub fn record(&mut self, nanos: u64) {
        self.record_n(nanos, 1);
    }

    /// Records the same duration `n` times.
    pub fn record_n(&mut self, nanos: u64, n: u64) {
        if n == 0 {
            return;
        }
        let bucket = bucket_of(nanos / 1000);
        // Below `first` it wraps to beyond the end.
        if let Some(slot) = self.counts.get_mut(bucket.wrapping_sub(self.first)) {
            *slot += n;
        } else {
            self.cover(bucket, bucket + 1);
            if let Some(slot) = self.counts.get_mut(bucket - self.first) {
                *slot += n;
            }
        }
        self.count += n;
        self.sum_ns = self.sum_ns.saturating_add(nanos.saturating_mul(n));
        self.max_ns = self.max_ns.max(nanos);
    }

    /// Makes room for the buckets `from..to`.
    fn cover(&mut self, from: usize, to: usize) {
        let from = from & !(SUB - 1);
        let to = to.next_multiple_of(SUB);
        let (from, to) = if self.counts.is_empty() {
            (from, to)
        } else {
            (from.min(self.first), to.max(self.first + self.counts.len()))
        };
        if to - from == self.counts.len() {
            return;
        }
        let mut counts = Vec::new();
        counts.reserve_exact(to - from);
        counts.resize(self.first.saturating_sub(from), 0);
        counts.append(&mut self.counts);
        counts.resize(to - from, 0);
        (self.counts, self.first) = (counts, from);
    }

    /// Adds another histogram's counts.
    pub fn merge(&mut self, other: &Self) {
        if other.counts.is_empty() {
            return;
        }
        self.cover(other.first, other.first + other.counts.len());
        let skip = other.first - self.first;
        for (mine, theirs) in self.counts.iter_mut().skip(skip).zip(&other.counts) {
            *mine += theirs;
        }
        self.count += other.count;
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// Returns the number of recorded durations.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the number of durations of at most `nanos`. Values are told apart by bucket, so some that are up to
    /// 6.25 % longer count as well.
    #[must_use]
    pub fn count_up_to(&self, nanos: u64) -> u64 {
        let end = bucket_of(nanos / 1000) + 1;
        self.counts.iter().take(end.saturating_sub(self.first)).sum()
    }

    /// Their sum in seconds.
    #[must_use]
    pub fn sum_seconds(&self) -> f64 {
        self.sum_ns as f64 / 1e9
    }

    /// The longest, in seconds.
    #[must_use]
    pub fn max_seconds(&self) -> f64 {
        self.max_ns as f64 / 1e9
    }

    /// The duration in seconds that a share `quantile` (0 to 1) of all stays at or below; 0 when empty.
    #[must_use]
    pub fn quantile_seconds(&self, quantile: f64) -> f64 {
        let rank = ((self.count as f64) * quantile).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (index, n) in self.counts.iter().enumerate() {
            seen += n;
            if seen >= rank && *n > 0 {
                return (bucket_end_us(self.first + index) as f64 / 1e6).min(self.max_seconds());
            }
        }
        0.0
    }
}

fn bucket_of(micros: u64) -> usize {
    if micros < SUB as u64 {
        return micros as usize;
    }
    let shift = 63 - micros.leading_zeros() - SUB_BITS;
    let index = ((shift as usize + 1) << SUB_BITS) + ((micros >> shift) as usize & (SUB - 1));
    index.min(BUCKETS - 1)
}

/// The first microsecond beyond a bucket.
fn bucket_end_us(index: usize) -> u64 {
    if index < SUB {
        return index as u64 + 1;
    }
    let shift = (index >> SUB_BITS) - 1;
    ((SUB + (index & (SUB - 1)) + 1) as u64) << shift
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_falls_into_the_bucket_that_ends_just_beyond_it() {
        for micros in (0..5000).chain([10_000, 65_535, 65_536, 1_000_000, 86_400_000_000]) {
            let end = bucket_end_us(bucket_of(micros));
            assert!(end > micros, "{micros} in a bucket that ends at {end}");
            assert!(
                end as f64 <= (micros as f64 * 1.0626).max(micros as f64 + 1.0),
                "{micros} → {end}"
            );
        }
    }

    #[test]
    fn quantiles_come_out_within_a_sixteenth() {
        let mut histogram = Histogram::default();
        for i in 1..=1000u64 {
            histogram.record(i * 1_000_000);
        }
        let p99 = histogram.quantile_seconds(0.99);
        assert!((0.99..=1.0).contains(&p99), "{p99}");
        let p50 = histogram.quantile_seconds(0.5);
        assert!((0.5..0.532).contains(&p50), "{p50}");
        assert_eq!(histogram.count(), 1000);
    }

    #[test]
    fn it_grows_to_both_sides_and_merges_whatever_the_range() {
        let durations = [700_000u64, 3_000, 40_000_000_000, 1, 900_000, 70_000];
        let (mut all, mut parts) = (Histogram::default(), Histogram::default());
        for nanos in durations {
            all.record(nanos);
            let mut one = Histogram::default();
            one.record(nanos);
            assert_eq!(one.counts.len(), SUB, "one power of two");
            parts.merge(&one);
        }
        for histogram in [&all, &parts] {
            assert_eq!(histogram.count(), 6);
            assert_eq!(histogram.counts.iter().sum::<u64>(), 6);
        }
        for quantile in [0.1, 0.3, 0.5, 0.7, 0.9, 1.0] {
            assert_eq!(all.quantile_seconds(quantile), parts.quantile_seconds(quantile));
        }
        assert_eq!(all.quantile_seconds(1.0), 40.0);
    }

    #[test]
    fn shorter_ones_are_counted() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.count_up_to(u64::MAX), 0);
        for i in 1..=1000u64 {
            histogram.record(i * 1_000_000);
        }
        assert_eq!(histogram.count_up_to(0), 0);
        assert_eq!(histogram.count_up_to(u64::MAX), 1000);
        for ms in [1, 5, 10, 20, 50, 100, 200, 1000] {
            let count = histogram.count_up_to(ms * 1_000_000);
            assert!((ms..=ms + ms / 16).contains(&count), "{ms} ms: {count}");
        }
    }

    #[test]
    fn an_empty_histogram_answers_zero() {
        assert_eq!(Histogram::default().quantile_seconds(0.99), 0.0);
    }
}
