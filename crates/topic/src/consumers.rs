//! Attached consumers as their topic's home knows them, and what happens when one leaves.

use std::sync::Arc;

use pharos_feed::ids::{ConnectionId, ConsumerKey, TopicId};
use pharos_feed::{Activity, CursorHandoff};
use pharos_mesh::ConnectionEvent;
use pharos_runtime::clock;
use pharos_types::SubscriptionName;

use super::kind::Attaches as _;
use super::subscription::{Body, CursorPlace, Subscription};
use super::{Attached, ConsumerInfo, Stored, Topic, TopicContext};

/// An attached consumer.
pub(crate) struct Consumer {
    pub(crate) subscription: SubscriptionName,
    pub(crate) name: Arc<str>,
    pub(crate) connection: ConnectionId,
    pub(crate) consumer_id: u64,
    /// As the shard of its connection knows the topic.
    pub(crate) feed: TopicId,
    pub(crate) info: Arc<ConsumerInfo>,
    /// Time of the last permits that arrived here for it, in milliseconds since 1970; 0 for never. Those of a stream
    /// consumer stay with it.
    pub(crate) flow_at_ms: u64,
    /// Its subscription or its place is not durable yet, and its connection not told that it is in: it is handed no cursor, and
    /// none is asked back of it, because its connection would know of no such consumer.
    pub(crate) is_joining: bool,
    /// True if it left, and its cursor has not been returned yet.
    pub(crate) is_leaving: bool,
    /// Resolved by being dropped when the consumer is gone.
    pub(crate) leaving: Vec<tokio::sync::oneshot::Sender<()>>,
    /// Activity of the consumer; while it listens, only that before.
    pub(crate) activity: Activity,
}

impl Consumer {
    /// Tells its connection to close it.
    fn tell_closed(&self, cx: &TopicContext, key: ConsumerKey) {
        let event = ConnectionEvent::ConsumerClosed {
            consumer_id: self.consumer_id,
            key,
            next: cx.next_owner(),
        };
        cx.tell_connection(self.connection, event);
    }
}

impl Subscription {
    /// A consumer left. Returns whether it was the last.
    fn remove_consumer(&mut self, key: ConsumerKey) -> bool {
        self.consumers.remove(&key);
        self.body.kind_mut().detach(key);
        let last = self.consumers.is_empty();
        if last {
            self.sharing = None;
            self.idle_since_ms = clock::wall_ms();
            self.kind = None;
            self.failover = None;
            self.activation = None;
        } else {
            if let Some(sharing) = &mut self.sharing {
                sharing.detach(key);
            }
            if let Some(failover) = &mut self.failover {
                failover.remove(key);
            }
        }
        last
    }
}

impl Attached {
    /// A consumer left; its cursor comes along if it had it. Returns whether cursors are to be committed.
    fn detach(
        &mut self,
        cx: &TopicContext,
        stored: &mut Stored,
        key: ConsumerKey,
        handoff: Option<CursorHandoff>,
    ) -> bool {
        if handoff.is_none() && self.is_cursor_on_its_way(key) {
            return false; // Sent to it while it left: it comes back from its shard, and the consumer is gone then.
        }
        let Some(consumer) = self.consumers.remove(&key) else {
            return false;
        };
        self.consumer_hosts.remove(&consumer.info.address);
        if self.consumers.is_empty() {
            // Most topics have few, and then none for long.
            self.consumers.shrink_to_fit();
        }
        if let Some(handoff) = handoff {
            self.take_home(cx, stored, &consumer, key, handoff);
        }
        let Some(subscription) = self.subscriptions.get_mut(&consumer.subscription) else {
            return false;
        };
        let last = subscription.remove_consumer(key);
        self.settle_after_leave(cx, stored, &consumer, last);
        true
    }

    /// A consumer stays attached but gave its cursor back: it was told to stand down, or never took it. Returns whether
    /// cursors are to be committed.
    pub(super) fn take_back(
        &mut self,
        cx: &TopicContext,
        stored: &mut Stored,
        key: ConsumerKey,
        handoff: CursorHandoff,
    ) -> bool {
        if self
            .consumers
            .get(&key)
            .is_some_and(|consumer| consumer.is_leaving)
        {
            return self.detach(cx, stored, key, Some(handoff));
        }
        let Some(mut consumer) = self.consumers.remove(&key) else {
            return false;
        };
        consumer.activity.add(&handoff.activity);
        self.take_home(cx, stored, &consumer, key, handoff);
        let name = consumer.subscription.clone();
        self.consumers.insert(key, consumer);
        self.choose_active(cx, &name);
        // What it acknowledged since its shard last reported is only queued.
        true
    }

    /// True if a cursor is being handed over to a consumer that left without one: the consumer is marked as leaving
    /// then.
    fn is_cursor_on_its_way(&mut self, key: ConsumerKey) -> bool {
        let Some(consumer) = self.consumers.get_mut(&key) else {
            return false;
        };
        let subscription = self.subscriptions.get(&consumer.subscription);
        let is_lent = subscription.is_some_and(|subscription| match &subscription.body {
            Body::Stream(cursor) => cursor
                .handed_over()
                .is_some_and(|handed_over| handed_over.key == key),
            Body::Broadcast(_) | Body::Dispatched(_) => false,
        });
        consumer.is_leaving |= is_lent;
        is_lent
    }

    /// Updates the remaining consumers after one has left.
    fn settle_after_leave(
        &mut self,
        cx: &TopicContext,
        stored: &mut Stored,
        consumer: &Consumer,
        last: bool,
    ) {
        let name = &consumer.subscription;
        if last {
            self.rest(cx, stored, name);
        }
        if let Some(body) = self.broadcast(name) {
            body.note_absence(cx, stored, &consumer.name);
        }
        self.choose_active(cx, name);
        self.run_dispatcher(cx, stored, name);
    }

    /// The last consumer left: the cursor of a dispatched subscription rests at home; a non-durable one is gone.
    pub(super) fn rest(&mut self, cx: &TopicContext, stored: &mut Stored, name: &SubscriptionName) {
        let Some(subscription) = self.subscriptions.get_mut(name) else {
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
            self.subscriptions.note_body(name);
            if let (Some(slot), true) = (slot, dirty) {
                stored.change_cursors(cx, |cursors| cursors.moved(slot, &acks));
            }
        }
        let Some(subscription) = self.subscriptions.get(name) else {
            return;
        };
        if !subscription.is_durable() && !subscription.fenced {
            self.subscriptions.remove(name);
        }
    }

    /// A handed over cursor is back.
    pub(super) fn take_home(
        &mut self,
        cx: &TopicContext,
        stored: &mut Stored,
        consumer: &Consumer,
        key: ConsumerKey,
        handoff: CursorHandoff,
    ) {
        self.links.returned(cx, consumer.connection.shard, consumer.feed);
        self.sent.add(handoff.activity.sent);
        let Some(subscription) = self.subscriptions.get_mut(&consumer.subscription) else {
            return;
        };
        subscription.activity.add(&handoff.activity);
        let Some(cursor) = subscription.handed_over_to(key, &consumer.name) else {
            return;
        };
        cursor.place = CursorPlace::Home(handoff.acks.clone());
        if let Some(slot) = handoff.slot {
            stored.change_cursors(cx, |cursors| cursors.moved(slot, &handoff.acks));
        }
    }

    /// Tells all consumers of a subscription to close and resolves when they are gone.
    pub(super) fn close_consumers(
        &mut self,
        cx: &TopicContext,
        name: &SubscriptionName,
    ) -> Vec<tokio::sync::oneshot::Receiver<()>> {
        let keys = self
            .subscriptions
            .get(name)
            .map(|subscription| subscription.consumers.clone())
            .unwrap_or_default();
        keys.into_iter()
            .filter_map(|key| self.close_and_wait(cx, key))
            .collect()
    }

    /// Tells one consumer to close; the receiver resolves (with an error, by being dropped) when it is gone.
    pub(super) fn close_and_wait(
        &mut self,
        cx: &TopicContext,
        key: ConsumerKey,
    ) -> Option<tokio::sync::oneshot::Receiver<()>> {
        let consumer = self.consumers.get_mut(&key)?;
        consumer.tell_closed(cx, key);
        let (sender, receiver) = tokio::sync::oneshot::channel();
        consumer.leaving.push(sender);
        Some(receiver)
    }
}

impl Topic {
    /// A consumer left; its cursor comes along if it had it.
    pub(super) fn on_detach(&self, key: ConsumerKey, handoff: Option<CursorHandoff>) {
        if self.with_attached(|attached, cx, stored| attached.detach(cx, stored, key, handoff)) {
            self.start_commit();
        }
    }
}
