//! Attached consumers as their topic's home knows them, and what happens when one leaves.

use std::sync::Arc;

use pharos_runtime::clock;
use pharos_types::SubscriptionName;

use super::subscription::{Body, CursorPlace};
use super::{State, Topic};
use crate::feed::{Activity, CursorHandoff};
use crate::ids::{ConnectionId, ConsumerKey};
use crate::shard::ConnectionEvent;

/// What a connection tells of a consumer, for stats.
#[derive(Clone, Debug, Default)]
pub struct ConsumerInfo {
    /// The peer's address.
    pub address: Arc<str>,
    /// What the client says it is.
    pub client_version: Arc<str>,
    /// When it connected, in milliseconds since 1970.
    pub connected_since_ms: u64,
    /// Key and value pairs that the client gave.
    pub metadata: Vec<(String, String)>,
}

/// An attached consumer.
pub(crate) struct Consumer {
    pub(crate) subscription: SubscriptionName,
    pub(crate) name: Arc<str>,
    pub(crate) connection: ConnectionId,
    pub(crate) consumer_id: u64,
    pub(crate) priority_level: i32,
    pub(crate) info: Arc<ConsumerInfo>,
    /// When permits last came here for it, in milliseconds since 1970; 0 for never. Those of a stream consumer stay with it.
    pub(crate) flow_at_ms: u64,
    /// It left, and its cursor is not home yet.
    pub(crate) is_leaving: bool,
    /// Resolved by being dropped when the consumer is gone.
    pub(crate) leaving: Vec<tokio::sync::oneshot::Sender<()>>,
    /// What went on with it; while it listens, only what did before.
    pub(crate) activity: Activity,
}

impl Topic {
    /// A consumer left; its cursor comes along if it had it.
    pub(super) fn on_detach(&self, key: ConsumerKey, lease: Option<CursorHandoff>) {
        let mut state = self.state.borrow_mut();
        if lease.is_none() && self.is_cursor_on_its_way(&mut state, key) {
            return; // Sent to it while it left: it comes back from its shard, and the consumer is gone then.
        }
        let Some(consumer) = state.attached.consumers.remove(&key) else {
            return;
        };
        if state.attached.consumers.is_empty() {
            // Most topics have few, and then none for long.
            state.attached.consumers.shrink_to_fit();
        }
        if let Some(lease) = lease {
            self.take_home(&mut state, &consumer, key, lease);
        }
        let Some(subscription) = state.attached.subscriptions.get_mut(&consumer.subscription) else {
            return;
        };
        subscription.consumers.retain(|other| *other != key);
        if let Body::Dispatched(body) = &mut subscription.body {
            body.dispatcher
                .remove_consumer(pharos_dispatch::ConsumerKey(key.0));
        }
        let last = subscription.consumers.is_empty();
        if last {
            subscription.sharing = None;
        } else if let Some(sharing) = &mut subscription.sharing {
            sharing.remove(key);
        }
        if last {
            subscription.idle_since_ms = clock::wall_ms();
            subscription.kind = None;
            subscription.activation = None;
        }
        self.settle_after_leave(&mut state, &consumer, last);
        drop(state);
        self.start_commit();
    }

    /// Whether a consumer that left without a cursor is handed over one: it is marked as leaving then.
    fn is_cursor_on_its_way(&self, state: &mut State, key: ConsumerKey) -> bool {
        let Some(consumer) = state.attached.consumers.get_mut(&key) else {
            return false;
        };
        let subscription = state.attached.subscriptions.get(&consumer.subscription);
        let is_lent = subscription.is_some_and(|subscription| match &subscription.body {
            Body::Stream(cursor) => cursor
                .handed_over()
                .is_some_and(|handed_over| handed_over.key == key),
            Body::Broadcast(_) | Body::Dispatched(_) => false,
        });
        consumer.is_leaving |= is_lent;
        is_lent
    }

    /// What a leaving consumer means for those who stay.
    fn settle_after_leave(&self, state: &mut State, consumer: &Consumer, last: bool) {
        let name = &consumer.subscription;
        if last {
            self.rest(state, name);
        }
        self.note_absence(state, consumer);
        self.choose_active(state, name);
        self.run_dispatcher(state, name);
    }

    /// The last consumer left: the cursor of a dispatched subscription rests at home; a non-durable one is gone.
    pub(super) fn rest(&self, state: &mut State, name: &SubscriptionName) {
        let Some(subscription) = state.attached.subscriptions.get_mut(name) else {
            return;
        };
        if let Body::Dispatched(body) = &subscription.body {
            let acks = body.dispatcher.acks().clone();
            let slot = body.slot;
            let dirty = body.dirty;
            subscription.generation += 1;
            subscription.body = Body::Stream(super::subscription::Cursor {
                slot,
                place: CursorPlace::Home(acks.clone()),
            });
            if let (Some(slot), true) = (slot, dirty) {
                state
                    .stored
                    .change_cursors(&self.cx, |cursors| cursors.moved(slot, &acks));
            }
        }
        let Some(subscription) = state.attached.subscriptions.get(name) else {
            return;
        };
        if !subscription.is_durable() && !subscription.fenced {
            state.attached.subscriptions.remove(name);
        }
    }

    /// A handed over cursor is back.
    pub(super) fn take_home(
        &self,
        state: &mut State,
        consumer: &Consumer,
        key: ConsumerKey,
        lease: CursorHandoff,
    ) {
        state.attached.links.returned(&self.cx, consumer.connection.shard);
        state.stored.publishing.counters.sent.add(lease.activity.sent);
        let Some(subscription) = state.attached.subscriptions.get_mut(&consumer.subscription) else {
            return;
        };
        subscription.activity.add(&lease.activity);
        let Some(cursor) = subscription.lent_to(key, &consumer.name) else {
            return;
        };
        cursor.place = CursorPlace::Home(lease.acks.clone());
        if let Some(slot) = lease.slot {
            state
                .stored
                .change_cursors(&self.cx, |cursors| cursors.moved(slot, &lease.acks));
        }
    }

    /// A consumer stays attached but gave its cursor back: it was told to stand down, or never took it.
    pub(super) fn on_returned(&self, key: ConsumerKey, lease: CursorHandoff) {
        let mut state = self.state.borrow_mut();
        if state
            .attached
            .consumers
            .get(&key)
            .is_some_and(|consumer| consumer.is_leaving)
        {
            drop(state);
            return self.on_detach(key, Some(lease));
        }
        let Some(mut consumer) = state.attached.consumers.remove(&key) else {
            return;
        };
        consumer.activity.add(&lease.activity);
        self.take_home(&mut state, &consumer, key, lease);
        let name = consumer.subscription.clone();
        state.attached.consumers.insert(key, consumer);
        self.choose_active(&mut state, &name);
        drop(state);
        // What it acknowledged since its shard last reported is only queued.
        self.start_commit();
    }

    /// Tells a consumer's connection to close it.
    pub(super) fn close_consumer(&self, state: &State, key: ConsumerKey) {
        let Some(consumer) = state.attached.consumers.get(&key) else {
            return;
        };
        let Some(shard) = self.cx.shard() else { return };
        shard.tell_connection(
            consumer.connection,
            ConnectionEvent::ConsumerClosed {
                consumer_id: consumer.consumer_id,
                key,
            },
        );
    }

    /// Tells all consumers of a subscription to close and resolves when they are gone.
    pub(super) fn close_consumers(
        &self,
        state: &mut State,
        name: &SubscriptionName,
    ) -> Vec<tokio::sync::oneshot::Receiver<()>> {
        let keys = state
            .attached
            .subscriptions
            .get(name)
            .map(|subscription| subscription.consumers.clone())
            .unwrap_or_default();
        keys.into_iter()
            .filter_map(|key| self.close_and_wait(state, key))
            .collect()
    }

    /// Tells one consumer to close; the receiver resolves (with an error, by being dropped) when it is gone.
    pub(super) fn close_and_wait(
        &self,
        state: &mut State,
        key: ConsumerKey,
    ) -> Option<tokio::sync::oneshot::Receiver<()>> {
        self.close_consumer(state, key);
        let consumer = state.attached.consumers.get_mut(&key)?;
        let (sender, receiver) = tokio::sync::oneshot::channel();
        consumer.leaving.push(sender);
        Some(receiver)
    }
}
