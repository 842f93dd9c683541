//! What every part of a topic must know of the topic itself, and how it reaches the shard.

use std::rc::{Rc, Weak};
use std::sync::Arc;

use pharos_managed_ledger::cursor::AckState;
use pharos_managed_ledger::{Entry, ReadError};
use pharos_types::{Domain, TopicName};

use super::Topic;
use super::subscription::HandedOver;
use crate::entry::{EntryCodec, FeedEntry};
use crate::error::PublishError;
use crate::ids::{ConnectionId, ConsumerKey, ShardId, TopicId};
use crate::shard::{ConnectionEvent, FeedMessage, Message, ProducerRef, Publish, Shard};

/// Who a topic is, and where it lives. It holds nothing that changes.
pub(crate) struct TopicContext {
    pub(crate) id: TopicId,
    pub(crate) name: TopicName,
    /// Reads its entries.
    pub(crate) codec: &'static dyn EntryCodec,
    pub(super) shard: Weak<Shard>,
    /// The topic, for tasks that come back to it.
    pub(super) me: Weak<Topic>,
}

impl TopicContext {
    /// The shard. It outlives its topics, except in the last moments of a shutdown.
    pub(crate) fn shard(&self) -> Option<Rc<Shard>> {
        self.shard.upgrade()
    }

    /// The topic, for a task that comes back to it.
    pub(super) fn me(&self) -> Option<Rc<Topic>> {
        self.me.upgrade()
    }

    /// An entry of its log, to be delivered.
    pub(super) fn feed_entry(&self, entry: Entry) -> Arc<FeedEntry> {
        FeedEntry::from_log(entry, self.codec)
    }

    pub(super) fn send(&self, to: ShardId, message: Message) {
        if let Some(shard) = self.shard() {
            shard.send(to, message);
        }
    }

    pub(super) fn send_feed(&self, to: ShardId, message: FeedMessage) {
        self.send(to, Message::Feed(self.id, message));
    }

    /// Says why a send failed.
    pub(super) fn send_failed(
        &self,
        producer: (ConnectionId, ProducerRef),
        sequence: u64,
        highest: u64,
        bytes: usize,
        error: PublishError,
    ) {
        let event = ConnectionEvent::SendFailed {
            producer: producer.1,
            sequence_id: sequence.max(highest),
            bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
            error,
        };
        self.send(producer.0.shard, Message::Connection(producer.0, event));
    }

    /// Tells a connection of sends that will not be answered otherwise.
    pub(super) fn send_dropped(&self, from: ConnectionId, entries: &[Publish]) {
        let event = ConnectionEvent::dropped(entries);
        self.send(from.shard, Message::Connection(from, event));
    }

    /// Whether nothing of the topic is stored.
    pub(crate) fn is_non_persistent(&self) -> bool {
        self.name.domain() == Domain::NonPersistent
    }

    /// A key for a new consumer: unique in the process, and it rises on the shard.
    pub(super) fn consumer_key(&self) -> ConsumerKey {
        ConsumerKey(self.shard().map_or(0, |shard| shard.global_number()))
    }

    /// Asks the connection that holds something exclusive whether its peer still answers; closes it when not.
    pub(super) async fn holder_answers(&self, holder: ConnectionId) -> bool {
        let Some(shard) = self.shard() else { return true };
        let asked = shard
            .call(
                holder.shard,
                move |shard| async move { shard.probe(holder).await },
            )
            .await;
        asked.unwrap_or(false)
    }

    /// What a stream consumer has acknowledged; `None` when it is gone.
    pub(super) async fn listener_acks(&self, handed_over: HandedOver) -> Option<AckState> {
        let (shard, id) = (self.shard()?, self.id);
        let asked = shard.call(handed_over.connection.shard, move |shard| async move {
            let mut found = None;
            shard.feed_by_id(id)?.for_each_listener(|_, listener| {
                if listener.key == handed_over.key {
                    found = Some(listener.acks.clone());
                }
            });
            found
        });
        asked.await.ok()?
    }

    /// Whether a consumer that comes to an entry that answers this is moved past it.
    pub(super) fn skips(&self, error: &ReadError) -> bool {
        let shard = self.shard();
        error.is_lost() && shard.is_some_and(|shard| shard.shared.options.skip_lost_entries)
    }

    pub(super) fn count_skip(&self) {
        if let Some(shard) = self.shard() {
            shard.tally().lost_skipped();
        }
    }
}
