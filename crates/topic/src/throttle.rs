//! Publish rates: sends beyond the rate of a topic, or of its tenant, wait here, in their order, instead of being refused.
//!
//! A bucket holds a second's worth of messages and of bytes. What arrives together goes through together as long as there
//! is anything left, and may leave a debt; over time the rate is exact. What waits has no receipt, so its connection
//! stops reading when it has as much under way as it may: that bounds what waits here, and slows the client down.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use pharos_accounts::tenants::TenantShare;
use pharos_catalog::policy::PublishRateLimit;
use pharos_feed::ids::{ConnectionId, ProducerKey};
use pharos_mesh::Publish;
use pharos_runtime::{Buckets, Nanos, clock, spawn_local};
use pharos_types::steps::step;

use super::{Publishing, State, TopicContext};

/// Sends of one producer that arrived together.
type Sends = (ConnectionId, ProducerKey, Vec<Publish>);

/// Waiting sends in order, also indexed by producer.
#[derive(Default)]
struct HeldSends {
    /// By a number that rises.
    sends: BTreeMap<u64, Sends>,
    of_producer: BTreeSet<(ProducerKey, u64)>,
}

impl HeldSends {
    fn is_empty(&self) -> bool {
        self.sends.is_empty()
    }

    fn push_back(&mut self, sends: Sends) {
        let number = self.sends.last_key_value().map_or(0, |(last, _)| last + 1);
        self.of_producer.insert((sends.1, number));
        self.sends.insert(number, sends);
    }

    fn pop_front(&mut self) -> Option<Sends> {
        let (number, sends) = self.sends.pop_first()?;
        self.of_producer.remove(&(sends.1, number));
        Some(sends)
    }

    /// The first that waits of this producer.
    fn take_of(&mut self, key: ProducerKey) -> Option<Sends> {
        step();
        let own = (key, 0)..=(key, u64::MAX);
        let first = *self.of_producer.range(own).next()?;
        self.of_producer.remove(&first);
        self.sends.remove(&first.1)
    }

    /// All, in their order.
    fn take_all(&mut self) -> impl Iterator<Item = Sends> + use<> {
        std::mem::take(self).sends.into_values()
    }
}

/// The sends of a topic that wait for their time.
#[derive(Default)]
pub(crate) struct Throttle {
    own: Buckets,
    /// Limits that the topic shares with others of its tenant.
    tenant: Option<Arc<TenantShare>>,
    held: HeldSends,
    /// A task will let more through.
    is_timed: bool,
    /// Number of times that sends began to wait.
    pub(crate) times: u64,
}

impl Throttle {
    pub(super) fn beside(tenant: Option<Arc<TenantShare>>) -> Self {
        Self {
            tenant,
            ..Self::default()
        }
    }

    /// True if nothing is throttled; `own` is the topic's limit.
    fn is_off(&self, own: PublishRateLimit) -> bool {
        own.is_off() && self.tenant.is_none() && self.held.is_empty()
    }

    /// Time during which nothing may be published.
    fn wait(&mut self, own: PublishRateLimit, now: Nanos) -> Option<Duration> {
        let of_tenant = self.tenant.as_ref().map_or(0.0, |tenant| tenant.wait(now));
        let seconds = self.own.wait(own.rate(), now).max(of_tenant);
        (seconds > 0.0).then(|| Duration::from_secs_f64(seconds.min(60.0)))
    }

    fn take(&mut self, entries: &[Publish]) {
        let messages = entries
            .iter()
            .map(|entry| u64::from(entry.facts.message_count))
            .sum();
        let bytes = entries.iter().map(|entry| entry.payload.len() as u64).sum();
        self.own.take(messages, bytes);
        if let Some(tenant) = &self.tenant {
            tenant.take(messages, bytes);
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
        for (from, _, entries) in self.throttle.held.take_all() {
            if !entries.is_empty() {
                cx.send_dropped(from, &entries);
            }
        }
    }
}

impl State {
    /// Appends entries of one producer, now or when the publish rates of the topic and its tenant let them.
    pub(super) fn on_publish(
        &mut self,
        cx: &TopicContext,
        from: ConnectionId,
        key: ProducerKey,
        entries: Vec<Publish>,
    ) {
        if self
            .stored
            .publishing
            .throttle
            .is_off(self.stored.policies.publish_rate)
        {
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
        while !self.stored.publishing.throttle.held.is_empty() {
            let limit = self.stored.policies.publish_rate;
            let throttle = &mut self.stored.publishing.throttle;
            if let Some(wait) = throttle.wait(limit, clock::now()) {
                return self.stored.publishing.let_through_after(cx, wait);
            }
            let Some((from, key, entries)) = throttle.held.pop_front() else {
                return;
            };
            throttle.take(&entries);
            self.append_all(cx, from, key, entries);
        }
    }

    /// A producer leaves: what it sent before goes first, whatever the rate, because it would not be sent again.
    pub(super) fn let_through_of(&mut self, cx: &TopicContext, key: ProducerKey) {
        let mut any = false;
        while let Some((from, key, entries)) = self.stored.publishing.throttle.held.take_of(key) {
            any = true;
            self.stored.publishing.throttle.take(&entries);
            self.append_all(cx, from, key, entries);
        }
        if !any {
            return;
        }
        self.stored.log.maintain(cx);
        self.stored.publishing.watch(cx);
    }
}
