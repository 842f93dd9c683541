//! Publish rates: sends beyond a topic's rate wait here, in their order, instead of being refused.
//!
//! A bucket holds a second's worth of messages and of bytes. What arrives together goes through together as long as there
//! is anything left, and may leave a debt; over time the rate is exact. What waits has no receipt, so its connection
//! stops reading when it has as much under way as it may: that bounds what waits here, and slows the client down.

use std::collections::VecDeque;
use std::time::Duration;

use pharos_runtime::{Nanos, clock, spawn_local};

use super::{Publishing, State, TopicContext};
use crate::ids::{ConnectionId, ProducerKey};
use crate::mesh::Publish;
use pharos_catalog::policy::PublishRateLimit;

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

/// The sends of a topic that wait for their time.
#[derive(Default)]
pub(crate) struct Throttle {
    messages: Bucket,
    bytes: Bucket,
    held: VecDeque<(ConnectionId, ProducerKey, Vec<Publish>)>,
    /// A task will let more through.
    is_timed: bool,
    /// How often sends began to wait.
    pub(crate) times: u64,
}

impl Throttle {
    /// How long nothing may go through.
    fn wait(&mut self, limit: PublishRateLimit, now: Nanos) -> Option<Duration> {
        let seconds = self
            .messages
            .wait(limit.messages.into(), now)
            .max(self.bytes.wait(limit.bytes, now));
        (seconds > 0.0).then(|| Duration::from_secs_f64(seconds.min(60.0)))
    }

    fn take(&mut self, entries: &[Publish]) {
        for entry in entries {
            self.messages.left -= f64::from(entry.facts.message_count);
            self.bytes.left -= entry.payload.len() as f64;
        }
    }
}

impl Publishing {
    fn let_through_after(&mut self, cx: &TopicContext, wait: Duration) {
        let Some(me) = cx.me() else { return };
        if std::mem::replace(&mut self.throttle.is_timed, true) {
            return;
        }
        self.throttle.times += 1;
        spawn_local(async move {
            tokio::time::sleep(wait).await;
            let mut state = me.state.borrow_mut();
            state.stored.publishing.throttle.is_timed = false;
            state.let_through(&me.cx);
            state.stored.log.maintain(&me.cx);
            state.stored.publishing.watch(&me.cx);
        });
    }

    /// Producers were closed: their clients send again what waited, so it is dropped here.
    pub(super) fn drop_held(&mut self, cx: &TopicContext) {
        for (from, _, entries) in std::mem::take(&mut self.throttle.held) {
            if !entries.is_empty() {
                cx.send_dropped(from, &entries);
            }
        }
    }
}

impl State {
    /// Appends entries of one producer, now or when the topic's publish rate lets them.
    pub(super) fn on_publish(
        &mut self,
        cx: &TopicContext,
        from: ConnectionId,
        key: ProducerKey,
        entries: Vec<Publish>,
    ) {
        if self.stored.policies.publish_rate.is_off() && self.stored.publishing.throttle.held.is_empty() {
            self.append_all(cx, from, key, entries);
        } else {
            self.stored
                .publishing
                .throttle
                .held
                .push_back((from, key, entries));
            self.let_through(cx);
        }
        self.stored.log.maintain(cx);
        self.stored.publishing.watch(cx);
    }

    /// Appends what waits, as far as the rate allows; the rest in time.
    pub(super) fn let_through(&mut self, cx: &TopicContext) {
        while let Some((from, key, entries)) = self.stored.publishing.throttle.held.pop_front() {
            let limit = self.stored.policies.publish_rate;
            let wait = self.stored.publishing.throttle.wait(limit, clock::now());
            if let Some(wait) = wait {
                self.stored
                    .publishing
                    .throttle
                    .held
                    .push_front((from, key, entries));
                return self.stored.publishing.let_through_after(cx, wait);
            }
            if !limit.is_off() {
                self.stored.publishing.throttle.take(&entries);
            }
            self.append_all(cx, from, key, entries);
        }
    }

    /// A producer leaves: what it sent before goes first, whatever the rate, because it would not be sent again.
    pub(super) fn let_through_of(&mut self, cx: &TopicContext, key: ProducerKey) {
        if self
            .stored
            .publishing
            .throttle
            .held
            .iter()
            .all(|(_, other, _)| *other != key)
        {
            return;
        }
        for (from, other, entries) in std::mem::take(&mut self.stored.publishing.throttle.held) {
            if other == key {
                self.stored.publishing.throttle.take(&entries);
                self.append_all(cx, from, key, entries);
            } else {
                self.stored
                    .publishing
                    .throttle
                    .held
                    .push_back((from, other, entries));
            }
        }
        self.stored.log.maintain(cx);
        self.stored.publishing.watch(cx);
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
        assert_eq!(Bucket::default().wait(0, now), 0.0);
    }
}
