//! What is left of a rate: a second's worth at most, and a debt that has to be made up for.

use pharos_catalog::policy::PublishRateLimit;
use pharos_runtime::Nanos;

/// What is left of a second's worth; below zero it is owed.
#[derive(Debug, Default)]
struct Bucket {
    left: f64,
    filled_at: Option<Nanos>,
}

impl Bucket {
    /// Seconds until there is something left; `rate` 0 is no limit.
    fn wait(&mut self, rate: u64, now: Nanos) -> f64 {
        if rate == 0 {
            // What goes through meanwhile is no debt.
            *self = Self::default();
            return 0.0;
        }
        let rate = rate as f64;
        let gained = match self.filled_at.replace(now) {
            Some(before) => rate * now.since(before) as f64 / 1e9,
            None => rate,
        };
        self.left = (self.left + gained).min(rate);
        if self.left > 0.0 {
            0.0
        } else {
            (1.0 - self.left) / rate
        }
    }
}

/// What is left of a rate.
#[derive(Debug, Default)]
pub(crate) struct Buckets {
    messages: Bucket,
    bytes: Bucket,
}

impl Buckets {
    /// Seconds until something may go through.
    pub(crate) fn wait(&mut self, limit: PublishRateLimit, now: Nanos) -> f64 {
        let messages = self.messages.wait(limit.messages.into(), now);
        messages.max(self.bytes.wait(limit.bytes, now))
    }

    /// So much went through.
    pub(crate) fn take(&mut self, messages: u64, bytes: u64) {
        self.messages.left -= messages as f64;
        self.bytes.left -= bytes as f64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_allows_a_second_s_worth_and_then_its_rate() {
        let mut bucket = Bucket::default();
        let mut now = Nanos(0);
        let mut passed = 0;
        for _ in 0..10_000 {
            let wait = bucket.wait(100, now);
            if wait == 0.0 {
                bucket.left -= 7.0;
                passed += 7;
            } else {
                now = Nanos(now.0 + (wait * 1e9) as u64 + 1);
            }
        }
        let allowed = 100.0 + 100.0 * now.0 as f64 / 1e9;
        let over = f64::from(passed) - allowed;
        assert!((-7.0..=7.0).contains(&over), "{passed} of {allowed}");
        // What was not used in time is not saved up.
        assert_eq!(bucket.wait(100, Nanos(now.0 + 60_000_000_000)), 0.0);
        assert!(bucket.left <= 100.0);
        // What goes through without a limit is not owed when there is one.
        bucket.left = -1e9;
        assert_eq!(bucket.wait(0, now), 0.0);
        assert_eq!(bucket.wait(100, now), 0.0);
    }
}
