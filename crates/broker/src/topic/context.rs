//! What every part of a topic must know of the topic itself, and how it reaches the shard.

use std::rc::{Rc, Weak};
use std::sync::Arc;

use pharos_managed_ledger::Entry;
use pharos_types::TopicName;

use super::Topic;
use crate::entry::{EntryCodec, FeedEntry};
use crate::ids::{ShardId, TopicId};
use crate::shard::{FeedMessage, Message, Shard};

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
}
