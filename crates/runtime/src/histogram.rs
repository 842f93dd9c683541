//! A small histogram of durations that is cheap enough to be always on.
//!
//! Log-linear buckets: 16 per power of two, so a quantile is at most 6.25 % off; 640 buckets cover 1 µs to 12 days.
//! Recording is an index computation and an add; memory is 5 KB, and only once something was recorded.

const SUB_BITS: u32 = 4;
const SUB: usize = 1 << SUB_BITS;
const BUCKETS: usize = 640;

/// Counts of durations. Values are recorded in nanoseconds and kept in microseconds.
#[derive(Clone, Debug, Default)]
pub struct Histogram {
    /// Empty until the first value, so that an idle topic costs nothing.
    counts: Vec<u64>,
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
        if self.counts.is_empty() {
            self.counts.resize(BUCKETS, 0);
        }
        if let Some(slot) = self.counts.get_mut(bucket_of(nanos / 1000)) {
            *slot += n;
        }
        self.count += n;
        self.sum_ns = self.sum_ns.saturating_add(nanos.saturating_mul(n));
        self.max_ns = self.max_ns.max(nanos);
    }

    /// Adds another histogram's counts.
    pub fn merge(&mut self, other: &Self) {
        if other.counts.is_empty() {
            return;
        }
        if self.counts.is_empty() {
            self.counts.resize(BUCKETS, 0);
        }
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.count += other.count;
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// How many durations were recorded.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
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
                return (bucket_end_us(index) as f64 / 1e6).min(self.max_seconds());
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
    fn an_empty_histogram_answers_zero() {
        assert_eq!(Histogram::default().quantile_seconds(0.99), 0.0);
    }
}
