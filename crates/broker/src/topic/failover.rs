//! Failover: which consumer is the active one, and handing the cursor over when that changes.
//!
//! Who becomes the active one is announced to all consumers of the subscription after the configured delay, as the
//! reference broker does: a client that was just told SUCCESS may not listen for the announcement yet. A consumer that
//! joins behind an active one hears at once that it is not.

use pharos_runtime::spawn_local;
use pharos_types::SubscriptionName;

use super::subscribe::{SubscriptionType, lend};
use super::subscription::{Body, CursorPlace};
use super::{State, Topic};
use crate::dispatcher::{Candidate, pick_active};
use crate::ids::ConsumerKey;
use crate::shard::{FeedMessage, OutletEvent};

impl Topic {
    /// The consumer that should listen now.
    pub(super) fn chosen_active(&self, state: &State, name: &SubscriptionName) -> Option<ConsumerKey> {
        let subscription = state.subscriptions.get(name)?;
        let candidates: Vec<Candidate<'_>> = subscription
            .consumers
            .iter()
            .filter_map(|key| state.consumers.get(key))
            .map(|consumer| Candidate {
                name: &consumer.name,
                priority_level: consumer.priority_level,
            })
            .collect();
        let index = pick_active(&candidates, &self.name.to_string(), self.name.partition(), false)?;
        subscription.consumers.get(index).copied()
    }

    /// Brings the active consumer of a Failover subscription in line with who is attached.
    pub(super) fn choose_active(&self, state: &mut State, name: &SubscriptionName) {
        if self.is_transient() {
            return self.choose_transient_active(state, name);
        }
        if state.subscriptions.get(name).and_then(|s| s.kind) != Some(SubscriptionType::Failover) {
            return;
        }
        let Some(chosen) = self.chosen_active(state, name) else {
            return;
        };
        let Some(subscription) = state.subscriptions.get_mut(name) else {
            return;
        };
        let Body::Stream(cursor) = &mut subscription.body else {
            return;
        };
        match &mut cursor.place {
            CursorPlace::Lent(loan) if loan.key == chosen => {}
            CursorPlace::Lent(loan) => {
                // The one that listens stands down; when its cursor is home we come here again.
                if !std::mem::replace(&mut loan.recalled, true) {
                    let (connection, consumer_id, key) = (loan.connection, loan.consumer_id, loan.key);
                    self.send_feed(
                        connection.shard,
                        FeedMessage::Deactivate {
                            connection,
                            consumer_id,
                            key,
                        },
                    );
                }
            }
            CursorPlace::Home(_) => self.activate_later(name.clone()),
        }
    }

    /// Hands the cursor to the chosen consumer after the configured delay, so that a flock of joins settles first.
    fn activate_later(&self, name: SubscriptionName) {
        let (Some(me), Some(shard)) = (self.me(), self.shard()) else {
            return;
        };
        let delay = shard.shared.options.failover_delay;
        spawn_local(async move {
            if !delay.is_zero() {
                tokio::time::sleep(delay).await;
            }
            me.activate(&mut me.state.borrow_mut(), &name);
        });
    }

    fn activate(&self, state: &mut State, name: &SubscriptionName) {
        let Some(chosen) = self.chosen_active(state, name) else {
            return;
        };
        let Some(consumer) = state.consumers.get(&chosen) else {
            return;
        };
        let (connection, consumer_id) = (consumer.connection, consumer.consumer_id);
        let Some(subscription) = state.subscriptions.get_mut(name) else {
            return;
        };
        if subscription.kind != Some(SubscriptionType::Failover) || subscription.fenced {
            return;
        }
        let durable = subscription.is_durable();
        let Body::Stream(cursor) = &mut subscription.body else {
            return;
        };
        let Some(lease) = lend(cursor, chosen, connection, consumer_id, durable) else {
            return;
        };
        self.lend(state, connection.shard);
        let seed = self.seed(state);
        self.send_feed(
            connection.shard,
            FeedMessage::Activate {
                connection,
                consumer_id,
                key: chosen,
                lease,
                seed,
            },
        );
        self.announce_active(state, name, chosen);
    }

    /// Announces the first active consumer, which listens already, once the delay has settled who else joins.
    pub(super) fn announce_later(&self, name: SubscriptionName, first: ConsumerKey) {
        let (Some(me), Some(shard)) = (self.me(), self.shard()) else {
            return;
        };
        let delay = shard.shared.options.failover_delay;
        spawn_local(async move {
            tokio::time::sleep(delay).await;
            let state = me.state.borrow();
            // Whoever took over meanwhile was announced when it did.
            let listens = state
                .subscriptions
                .get(&name)
                .is_some_and(|subscription| subscription.is_lent_to(first));
            if listens {
                me.announce_active(&state, &name, first);
            }
        });
    }

    /// Tells every consumer of the subscription whether it is the one.
    pub(super) fn announce_active(&self, state: &State, name: &SubscriptionName, chosen: ConsumerKey) {
        let (Some(subscription), Some(shard)) = (state.subscriptions.get(name), self.shard()) else {
            return;
        };
        for key in &subscription.consumers {
            let Some(consumer) = state.consumers.get(key) else {
                continue;
            };
            let event = OutletEvent::ActiveConsumer {
                consumer_id: consumer.consumer_id,
                key: *key,
                active: *key == chosen,
            };
            shard.tell_outlet(consumer.connection, event);
        }
    }
}
