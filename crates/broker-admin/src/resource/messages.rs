//! Single stored messages of a topic.

use pharos_types::{Position, SubscriptionName, TopicName};

use super::{AdminResult, ExamineFrom, StoredEntry, not_implemented};

/// Single stored messages of a topic. What is always true of such interfaces: [the module](super).
pub trait MessageAdmin: Send + Sync {
    /// The `nth` (from 1) entry of a subscription's backlog.
    fn peek(
        &self,
        topic: TopicName,
        subscription: SubscriptionName,
        nth: u64,
    ) -> AdminResult<'_, StoredEntry> {
        drop((topic, subscription, nth));
        not_implemented("peeking at messages")
    }

    /// The `nth` (from 1) message of the topic, counted from one of its ends.
    fn examine(&self, topic: TopicName, from: ExamineFrom, nth: u64) -> AdminResult<'_, StoredEntry> {
        drop((topic, from, nth));
        not_implemented("examining messages")
    }

    /// The entry at a position.
    fn entry_at(&self, topic: TopicName, position: Position) -> AdminResult<'_, StoredEntry> {
        drop((topic, position));
        not_implemented("reading messages by id")
    }
}
