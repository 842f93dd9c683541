//! Failover: which consumer is the active one, and handing the cursor over when that changes.
//!
//! The consumer that becomes the active one, also the first, gets messages and is announced to all consumers of the subscription
//! when the configured delay has passed, as in Pulsar: consumers come in flocks, and what the first of them got at once would
//! come again to the one that is chosen when all are there. Consumers that come meanwhile do not put it off; who is the chosen
//! one at its end is the active one. A consumer that joins and is not chosen hears at once that it is not.
//!
//! ```text
//!   no consumer    ── one is chosen ──► delay ──► handed over to the chosen one, announced
//!         ▲                                              │ another is chosen, or it leaves
//!         └──────────── its cursor is home ◄─────────────┘ stands down
//! ```

use std::collections::HashMap;

use pharos_dispatch::{Candidate, pick_active};
use pharos_feed::ids::ConsumerKey;
use pharos_mesh::{ConnectionEvent, FeedMessage};
use pharos_runtime::spawn_local;
use pharos_types::SubscriptionName;

use super::consumers::Consumer;
use super::subscription::{Body, CursorPlace, Subscription};
use super::{Attached, Stored, SubscriptionType, TopicContext};

impl Subscription {
    /// The consumer that should listen now.
    pub(super) fn chosen_active(
        &self,
        cx: &TopicContext,
        consumers: &HashMap<ConsumerKey, Consumer>,
    ) -> Option<ConsumerKey> {
        let index = pick(cx, &self.candidates(consumers))?;
        self.consumers.iter().nth(index).copied()
    }

    /// Whether a consumer that joins would be the one.
    pub(super) fn is_chosen(
        &self,
        cx: &TopicContext,
        consumers: &HashMap<ConsumerKey, Consumer>,
        newcomer: Candidate<'_>,
    ) -> bool {
        let mut candidates = self.candidates(consumers);
        candidates.push(newcomer);
        pick(cx, &candidates) == Some(candidates.len() - 1)
    }

    fn candidates<'a>(&self, consumers: &'a HashMap<ConsumerKey, Consumer>) -> Vec<Candidate<'a>> {
        let attached = self.consumers.iter().filter_map(|key| consumers.get(key));
        let candidates = attached.map(|consumer| Candidate {
            name: &consumer.name,
            priority_level: consumer.priority_level,
        });
        candidates.collect()
    }

    /// Tells every consumer whether it is the one.
    pub(super) fn announce_active(
        &self,
        cx: &TopicContext,
        consumers: &HashMap<ConsumerKey, Consumer>,
        chosen: ConsumerKey,
    ) {
        for key in &self.consumers {
            let Some(consumer) = consumers.get(key) else {
                continue;
            };
            let event = ConnectionEvent::ActiveConsumer {
                consumer_id: consumer.consumer_id,
                key: *key,
                active: *key == chosen,
            };
            cx.tell_connection(consumer.connection, event);
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
        let Some(chosen) = subscription.chosen_active(cx, &self.consumers) else {
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
        let Some(chosen) = subscription.chosen_active(cx, &self.consumers) else {
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

/// The index of the candidate that should be active.
fn pick(cx: &TopicContext, candidates: &[Candidate<'_>]) -> Option<usize> {
    pick_active(candidates, &cx.name.to_string(), cx.name.partition(), false)
}
