//! Failover: which consumer is the active one, and handing the cursor over when that changes.
//!
//! The consumer that becomes the active one, also the first, gets messages and is told that it is the one
//! when the configured delay has passed, as in Pulsar: consumers come in flocks, and what the first of them got at once would
//! come again to the one that is chosen when all are there. Consumers that come meanwhile do not put it off; who is the chosen
//! one at its end is the active one. A consumer that joins and is not chosen is told at once that it is not. Afterwards a consumer is told
//! only of a change: one that waits is not told again that it waits.
//!
//! ```text
//!   no consumer    ── one is chosen ──► delay ──► handed over to the chosen one, announced
//!         ▲                                              │ another is chosen, or it leaves
//!         └──────────── its cursor is home ◄─────────────┘ stands down
//! ```

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use pharos_dispatch::{ConsumerKey as CandidateKey, FailoverCandidates};
use pharos_feed::ids::ConsumerKey;
use pharos_mesh::{ConnectionEvent, FeedMessage};
use pharos_runtime::spawn_local;
use pharos_types::SubscriptionName;
use pharos_types::steps::{step, walk};

use super::consumers::Consumer;
use super::subscription::{Body, CursorPlace, Subscription};
use super::{Attached, Stored, SubscriptionType, TopicContext};

/// The consumers of a Failover subscription, and what their clients know.
#[derive(Debug)]
pub(crate) struct Failover {
    candidates: FailoverCandidates,
    /// The one that knows that it is the active one.
    announced: Option<ConsumerKey>,
    /// Those that were not told that they are not: each was the chosen one when it joined.
    untold: BTreeSet<ConsumerKey>,
}

impl Failover {
    /// Of no consumer yet.
    fn new(cx: &TopicContext) -> Self {
        Self {
            candidates: FailoverCandidates::new(&cx.name.to_string(), cx.name.partition(), false),
            announced: None,
            untold: BTreeSet::new(),
        }
    }

    /// A consumer left.
    pub(super) fn remove(&mut self, key: ConsumerKey) {
        self.candidates.remove(CandidateKey(key.0));
        self.untold.remove(&key);
        self.announced.take_if(|announced| *announced == key);
    }

    fn chosen(&self) -> Option<ConsumerKey> {
        self.candidates.active().map(|key| ConsumerKey(key.0))
    }

    /// Notes that a consumer is announced as the active one. Returns those that have to be told, and whether they are the one.
    fn announce(&mut self, chosen: ConsumerKey) -> Vec<(ConsumerKey, bool)> {
        let mut told: Vec<_> = walk(std::mem::take(&mut self.untold).into_iter())
            .filter(|key| *key != chosen)
            .map(|key| (key, false))
            .collect();
        let before = self.announced.replace(chosen);
        if before != Some(chosen) {
            told.extend(before.map(|before| (before, false)));
            told.push((chosen, true));
        }
        told
    }
}

impl Subscription {
    /// The consumer that should listen now.
    pub(super) fn chosen_active(&self) -> Option<ConsumerKey> {
        self.failover.as_ref()?.chosen()
    }

    /// True if a consumer that joins would be the one.
    pub(super) fn is_chosen(&self, name: &str, priority_level: i32) -> bool {
        let failover = self.failover.as_ref();
        failover.is_none_or(|failover| failover.candidates.would_choose(name, priority_level))
    }

    /// A Failover consumer is attached. `told`: what the answer to its request says of whether it is the active one.
    pub(super) fn enter_failover(
        &mut self,
        cx: &TopicContext,
        consumers: &HashMap<ConsumerKey, Consumer>,
        key: ConsumerKey,
        (name, priority_level): (Arc<str>, i32),
        told: Option<bool>,
    ) {
        let failover = self.failover.get_or_insert_with(|| Box::new(Failover::new(cx)));
        failover.candidates.add(CandidateKey(key.0), name, priority_level);
        match told {
            Some(false) => {}
            None => _ = failover.untold.insert(key),
            Some(true) => {
                // Another may still believe that it is.
                let before = failover.announced.replace(key).filter(|before| *before != key);
                tell_active(cx, consumers, before.map(|before| (before, false)));
            }
        }
    }

    /// Tells the consumers that do not know it whether they are the one.
    pub(super) fn announce_active(
        &mut self,
        cx: &TopicContext,
        consumers: &HashMap<ConsumerKey, Consumer>,
        chosen: ConsumerKey,
    ) {
        if let Some(failover) = &mut self.failover {
            tell_active(cx, consumers, failover.announce(chosen));
        }
    }

    /// Hands the cursor to the chosen consumer after the configured delay, so that a flock of joins settles first.
    fn activate_later(&mut self, cx: &TopicContext) {
        let Some(me) = cx.me() else { return };
        if self.activation.is_some() {
            return;
        }
        let number = cx.shard.global_number();
        self.activation = Some(number);
        let name = self.name.clone();
        let delay = cx.options().failover_delay;
        spawn_local(async move {
            if !delay.is_zero() {
                tokio::time::sleep(delay).await;
            }
            let mut guard = me.state.borrow_mut();
            let state = &mut *guard;
            let is_due = state
                .attached
                .subscriptions
                .get_mut(&name)
                .is_some_and(|subscription| {
                    let is_due = subscription.activation == Some(number);
                    subscription.activation.take_if(|_| is_due).is_some()
                });
            if is_due {
                state.attached.activate(&me.cx, &state.stored, &name);
            }
        });
    }
}

impl Attached {
    /// Brings the active consumer of a Failover subscription in line with who is attached.
    pub(super) fn choose_active(&mut self, cx: &TopicContext, name: &SubscriptionName) {
        let Some(subscription) = self.subscriptions.get_mut(name) else {
            return;
        };
        if cx.is_non_persistent() {
            subscription.choose_transient_active(cx, &self.consumers);
            return;
        }
        if subscription.kind != Some(SubscriptionType::Failover) {
            return;
        }
        let Some(chosen) = subscription.chosen_active() else {
            return;
        };
        let Body::Stream(cursor) = &mut subscription.body else {
            return;
        };
        let is_joining = |key| {
            self.consumers
                .get(&key)
                .is_some_and(|consumer| consumer.is_joining)
        };
        if is_joining(chosen) {
            return; // We come here again when it is in, or gone.
        }
        match &mut cursor.place {
            CursorPlace::HandedOver(handed_over) if handed_over.key == chosen => {}
            CursorPlace::HandedOver(handed_over) if is_joining(handed_over.key) => {}
            CursorPlace::HandedOver(handed_over) => {
                // The one that listens stands down; when its cursor is home we come here again.
                if !std::mem::replace(&mut handed_over.recalled, true) {
                    let (connection, consumer_id, key) =
                        (handed_over.connection, handed_over.consumer_id, handed_over.key);
                    cx.send_feed(
                        handed_over.feed,
                        connection.shard,
                        FeedMessage::Deactivate {
                            connection,
                            consumer_id,
                            key,
                        },
                    );
                }
            }
            CursorPlace::Home(_) => subscription.activate_later(cx),
        }
    }

    /// A consumer's connection is about to hear that it is in.
    pub(super) fn came_in(&mut self, cx: &TopicContext, key: ConsumerKey) {
        let Some(consumer) = self.consumers.get_mut(&key) else {
            return;
        };
        consumer.is_joining = false;
        let name = consumer.subscription.clone();
        if !cx.is_non_persistent() {
            self.choose_active(cx, &name);
        }
    }

    fn activate(&mut self, cx: &TopicContext, stored: &Stored, name: &SubscriptionName) {
        let Some(subscription) = self.subscriptions.get_mut(name) else {
            return;
        };
        let Some(chosen) = subscription.chosen_active() else {
            return;
        };
        let Some(consumer) = self.consumers.get(&chosen) else {
            return;
        };
        let (connection, consumer_id, feed) = (consumer.connection, consumer.consumer_id, consumer.feed);
        if subscription.kind != Some(SubscriptionType::Failover) || subscription.fenced || consumer.is_joining
        {
            return;
        }
        let durable = subscription.is_durable();
        let Body::Stream(cursor) = &mut subscription.body else {
            return;
        };
        let rate = &subscription.rate;
        let Some(mut handoff) = cursor.hand_over(chosen, connection, consumer_id, feed, durable, rate) else {
            return;
        };
        handoff.withheld = subscription.withheld();
        self.links.hand_over(cx, &stored.log, connection.shard, feed);
        let seed = stored.log.seed(cx, feed);
        cx.send_feed(
            feed,
            connection.shard,
            FeedMessage::Activate {
                connection,
                consumer_id,
                key: chosen,
                handoff,
                seed,
            },
        );
        subscription.announce_active(cx, &self.consumers, chosen);
    }
}

/// Tells consumers whether they are the active one.
fn tell_active(
    cx: &TopicContext,
    consumers: &HashMap<ConsumerKey, Consumer>,
    told: impl IntoIterator<Item = (ConsumerKey, bool)>,
) {
    for (key, active) in told {
        step();
        let Some(consumer) = consumers.get(&key) else {
            continue;
        };
        let event = ConnectionEvent::ActiveConsumer {
            consumer_id: consumer.consumer_id,
            key,
            active,
        };
        cx.tell_connection(consumer.connection, event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_those_are_told_whose_state_changed() {
        let mut failover = Failover {
            candidates: FailoverCandidates::new("t", Some(0), false),
            announced: None,
            untold: [1, 2, 3].map(ConsumerKey).into(),
        };
        let first = failover.announce(ConsumerKey(2));
        assert_eq!(
            first,
            [(1, false), (3, false), (2, true)].map(|(key, active)| (ConsumerKey(key), active))
        );
        assert_eq!(failover.announce(ConsumerKey(2)), []);
        let second = failover.announce(ConsumerKey(9));
        assert_eq!(second, [(ConsumerKey(2), false), (ConsumerKey(9), true)]);
        failover.remove(ConsumerKey(9));
        assert_eq!(failover.announce(ConsumerKey(1)), [(ConsumerKey(1), true)]);
    }
}
