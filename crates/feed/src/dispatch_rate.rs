//! Dispatch rate limit of a subscription, wherever its consumers are.
//!
//! A subscription has a limiter of its own, and with the other subscriptions of its topic that of the topic. The
//! shards share both, each for the moment of a check: a limit that is not set costs two loads.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pharos_runtime::{Buckets, Nanos, Rate};

/// Minimum wait before another check of the limit: many consumers may wait, and continue together.
const WAIT_MIN: Duration = Duration::from_millis(20);
/// And no later than after this: the limit may be another one by then.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// Dispatch rate limiter of a topic or of one of its subscriptions.
#[derive(Debug, Default)]
pub struct DispatchRateLimiter {
    /// Limiter of the topic, for a subscription's.
    topic: Option<Arc<Self>>,
    is_on: AtomicBool,
    state: Mutex<Paced>,
}

#[derive(Debug, Default)]
struct Paced {
    rate: Rate,
    buckets: Buckets,
}

impl DispatchRateLimiter {
    /// Creates the limiter of a subscription, beside that of its topic.
    #[must_use]
    pub fn beside(topic: &Arc<Self>) -> Self {
        Self {
            topic: Some(Arc::clone(topic)),
            ..Self::default()
        }
    }

    /// From now on that much, without the debt of before.
    pub fn set(&self, rate: Rate) {
        let mut state = self.lock();
        if state.rate != rate {
            let was_off = state.rate.is_off();
            state.rate = rate;
            if was_off || rate.is_off() {
                state.buckets = Buckets::default();
            }
        }
        self.is_on.store(!rate.is_off(), Ordering::Relaxed);
    }

    /// True if nothing is limited, here and at the topic.
    #[must_use]
    pub fn is_off(&self) -> bool {
        let is_on = |limiter: &Self| limiter.is_on.load(Ordering::Relaxed);
        !is_on(self) && !self.topic.as_deref().is_some_and(is_on)
    }

    /// Returns the time for which nothing may be delivered; `None` if something may.
    #[must_use]
    pub fn wait(&self, now: Nanos) -> Option<Duration> {
        if self.is_off() {
            return None;
        }
        let seconds = self.seconds(now);
        let seconds = self
            .topic
            .as_ref()
            .map_or(seconds, |topic| seconds.max(topic.seconds(now)));
        (seconds > 0.0).then(|| Duration::from_secs_f64(seconds.min(60.0)).clamp(WAIT_MIN, WAIT_MAX))
    }

    /// Messages and bytes that may be delivered at once, as of the last [`wait`](Self::wait); each at least 1.
    #[must_use]
    pub fn left(&self) -> (u64, u64) {
        let own = {
            let state = self.lock();
            state.buckets.left(state.rate)
        };
        let of_topic = self
            .topic
            .as_ref()
            .map_or((u64::MAX, u64::MAX), |topic| topic.left());
        (own.0.min(of_topic.0), own.1.min(of_topic.1))
    }

    /// Counts delivered messages and bytes.
    pub fn take(&self, messages: u64, bytes: u64) {
        if self.is_off() {
            return;
        }
        self.lock().buckets.take(messages, bytes);
        if let Some(topic) = &self.topic {
            topic.take(messages, bytes);
        }
    }

    fn seconds(&self, now: Nanos) -> f64 {
        let Paced { rate, buckets } = &mut *self.lock();
        buckets.wait(*rate, now)
    }

    fn lock(&self) -> MutexGuard<'_, Paced> {
        // The numbers are never left half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_subscription_waits_for_its_own_rate_and_for_that_of_its_topic() {
        let topic = Arc::new(DispatchRateLimiter::default());
        let (first, second) = (
            DispatchRateLimiter::beside(&topic),
            DispatchRateLimiter::beside(&topic),
        );
        let now = Nanos(SECOND);
        assert!(first.is_off() && first.wait(now).is_none());
        first.set(Rate::per_second(10, 0));
        assert_eq!(first.wait(now), None);
        assert_eq!(first.left(), (10, u64::MAX));
        first.take(10, 1);
        assert!(first.wait(now).is_some());
        assert!(second.wait(now).is_none());
        topic.set(Rate::per_second(0, 100));
        assert!(second.wait(now).is_none());
        second.take(1, 1000);
        let wait = second.wait(now);
        assert_eq!(wait, Some(WAIT_MAX), "the debt is nine seconds'");
        first.set(Rate::default());
        assert!(first.wait(now).is_some(), "the topic's counts for all");
        topic.set(Rate::default());
        assert!(first.wait(now).is_none() && second.wait(now).is_none());
    }

    #[test]
    fn another_rate_keeps_the_debt_and_none_forgets_it() {
        let limiter = DispatchRateLimiter::default();
        let now = Nanos(SECOND);
        limiter.set(Rate::per_second(1, 0));
        assert_eq!(limiter.wait(now), None);
        limiter.take(100, 0);
        limiter.set(Rate::per_second(2, 0));
        assert!(limiter.wait(now).is_some());
        limiter.set(Rate::default());
        limiter.set(Rate::per_second(1, 0));
        assert!(limiter.wait(now).is_none());
    }
}
