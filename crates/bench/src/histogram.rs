//! Latency histograms: nanoseconds, three significant digits, and their way through a text pipe.

use std::fmt::Write as _;

use anyhow::Context as _;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer as _, V2Serializer};

/// Longest latency told apart: ten minutes. Longer ones are recorded as this.
const MAX_NS: u64 = 600_000_000_000;

/// A latency histogram in nanoseconds, resolved to a microsecond or a thousandth, whichever is more.
#[derive(Clone, Debug)]
pub struct Latencies(Histogram<u64>);

impl Default for Latencies {
    #[expect(clippy::expect_used, reason = "the bounds are constants")]
    fn default() -> Self {
        Self(Histogram::new_with_bounds(1_000, MAX_NS, 3).expect("valid bounds"))
    }
}

impl Latencies {
    /// Records `count` values of `ns`.
    #[inline]
    pub fn record(&mut self, ns: u64, count: u64) {
        self.0.saturating_record_n(ns, count);
    }

    /// Adds another histogram.
    pub fn merge(&mut self, other: &Self) {
        // Same bounds on both sides: this cannot fail.
        let _ = self.0.add(&other.0);
    }

    /// Values recorded.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// Mean, milliseconds; 0 when empty.
    pub fn mean_ms(&self) -> f64 {
        if self.0.is_empty() {
            0.0
        } else {
            self.0.mean() / 1e6
        }
    }

    /// The value at `percentile` (0 to 100), milliseconds; 0 when empty.
    pub fn percentile_ms(&self, percentile: f64) -> f64 {
        if self.0.is_empty() {
            0.0
        } else {
            self.0.value_at_percentile(percentile) as f64 / 1e6
        }
    }

    /// Largest value, milliseconds; 0 when empty.
    pub fn max_ms(&self) -> f64 {
        if self.0.is_empty() {
            0.0
        } else {
            self.0.max() as f64 / 1e6
        }
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.0.reset();
    }

    /// The histogram underneath.
    pub(crate) fn inner(&self) -> &Histogram<u64> {
        &self.0
    }

    /// HdrHistogram V2 encoding as hexadecimal text.
    pub(crate) fn to_text(&self) -> anyhow::Result<String> {
        let mut bytes = Vec::new();
        V2Serializer::new()
            .serialize(&self.0, &mut bytes)
            .context("a histogram cannot be encoded")?;
        Ok(bytes
            .iter()
            .fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
                let _ = write!(text, "{byte:02x}");
                text
            }))
    }

    /// Reads the output of [`Latencies::to_text`].
    pub(crate) fn from_text(text: &str) -> anyhow::Result<Self> {
        let bytes = (0..text.len() / 2)
            .map(|i| {
                text.get(2 * i..2 * i + 2)
                    .and_then(|pair| u8::from_str_radix(pair, 16).ok())
            })
            .collect::<Option<Vec<u8>>>()
            .context("a histogram is not hexadecimal")?;
        let histogram = Deserializer::new()
            .deserialize(&mut &bytes[..])
            .context("a histogram cannot be decoded")?;
        Ok(Self(histogram))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_survives_the_pipe_and_merging_adds_up() {
        let mut first = Latencies::default();
        first.record(1_000_000, 99);
        let mut second = Latencies::from_text(&first.to_text().expect("encodes")).expect("decodes");
        second.record(50_000_000, 1);
        first.merge(&second);
        assert_eq!(first.count(), 199);
        assert!((first.percentile_ms(50.0) - 1.0).abs() < 0.01);
        assert!((first.max_ms() - 50.0).abs() < 0.1);
    }

    #[test]
    fn what_is_too_long_is_recorded_as_the_longest() {
        let mut histogram = Latencies::default();
        histogram.record(u64::MAX, 1);
        assert!(histogram.max_ms() >= 600_000.0);
        assert_eq!(Latencies::default().percentile_ms(99.0), 0.0);
    }

    #[test]
    fn damaged_text_is_refused() {
        assert!(Latencies::from_text("zz").is_err());
        assert!(Latencies::from_text("00").is_err());
    }
}
