//! Rate limiter: the allowance that is left, one period's worth at most, and a debt that has to be made up for.

use std::time::Duration;

use crate::Nanos;

/// Amount allowed per period; 0 is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Messages.
    pub messages: u64,
    /// Bytes.
    pub bytes: u64,
    /// The period; not zero.
    pub period: Duration,
}

impl Rate {
    /// Returns a rate per second.
    #[must_use]
    pub const fn per_second(messages: u64, bytes: u64) -> Self {
        Self {
            messages,
            bytes,
            period: Duration::from_secs(1),
        }
    }

    /// True if nothing is limited.
    #[must_use]
    pub fn is_off(&self) -> bool {
        self.messages == 0 && self.bytes == 0
    }
}

impl Default for Rate {
    /// No limit.
    fn default() -> Self {
        Self::per_second(0, 0)
    }
}

/// Rest of a period's allowance; below zero it is a debt.
#[derive(Debug, Default)]
struct Bucket {
    left: f64,
    filled_at: Option<Nanos>,
}

impl Bucket {
    /// Seconds until there is something left; `per_period` 0 is no limit.
    fn wait(&mut self, per_period: u64, period: Duration, now: Nanos) -> f64 {
        if per_period == 0 {
            // What goes through meanwhile is no debt.
            *self = Self::default();
            return 0.0;
        }
        let most = per_period as f64;
        let rate = most / period.as_secs_f64();
        let gained = match self.filled_at.replace(now) {
            Some(before) => rate * now.since(before) as f64 / 1e9,
            None => most,
        };
        self.left = (self.left + gained).min(most);
        if self.left > 0.0 {
            0.0
        } else {
            (1.0 - self.left) / rate
        }
    }
}

/// Rest of the allowance of a [`Rate`].
#[derive(Debug, Default)]
pub struct Buckets {
    messages: Bucket,
    bytes: Bucket,
}

impl Buckets {
    /// Seconds until something may go through.
    pub fn wait(&mut self, rate: Rate, now: Nanos) -> f64 {
        let messages = self.messages.wait(rate.messages, rate.period, now);
        messages.max(self.bytes.wait(rate.bytes, rate.period, now))
    }

    /// Takes this amount from the allowance.
    pub fn take(&mut self, messages: u64, bytes: u64) {
        self.messages.left -= messages as f64;
        self.bytes.left -= bytes as f64;
    }

    /// Messages and bytes that may go through at once without a debt, as of the last [`wait`](Self::wait); each at least 1.
    #[must_use]
    pub fn left(&self, rate: Rate) -> (u64, u64) {
        let left = |bucket: &Bucket, limit: u64| match limit {
            0 => u64::MAX,
            _ => bucket.left.max(1.0) as u64,
        };
        (left(&self.messages, rate.messages), left(&self.bytes, rate.bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_allows_a_period_s_worth_and_then_its_rate() {
        for period in [1, 4] {
            let mut buckets = Buckets::default();
            let rate = Rate {
                messages: 100,
                bytes: 0,
                period: Duration::from_secs(period),
            };
            let mut now = Nanos(0);
            let mut passed = 0;
            for _ in 0..10_000 {
                let wait = buckets.wait(rate, now);
                if wait == 0.0 {
                    buckets.take(7, 1_000_000);
                    passed += 7;
                } else {
                    now = Nanos(now.0 + (wait * 1e9) as u64 + 1);
                }
            }
            let allowed = 100.0 + 100.0 / period as f64 * now.0 as f64 / 1e9;
            let over = f64::from(passed) - allowed;
            assert!((-7.0..=7.0).contains(&over), "{passed} of {allowed}");
            // What was not used in time is not saved up.
            assert_eq!(buckets.wait(rate, Nanos(now.0 + 60_000_000_000)), 0.0);
            assert_eq!(buckets.left(rate), (100, u64::MAX));
            // What goes through without a limit is not owed when there is one.
            buckets.take(1_000_000_000, 1_000_000_000);
            assert_eq!(buckets.wait(Rate::default(), now), 0.0);
            assert_eq!(buckets.wait(rate, now), 0.0);
        }
    }
}
