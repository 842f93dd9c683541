//! What goes on on a topic, and what it is made of.

use pharos_admin_api::{ManagedLedgerInfo, PersistentTopicInternalStats, TopicStats};
use pharos_types::TopicName;

use super::{AdminResult, LastMessage, Place, StatsFlags, not_implemented};

/// Numbers and contents of a topic. What is always true of such interfaces: [the module](super).
pub trait StatsAdmin: Send + Sync {
    /// Stats of a topic; loads it when it exists and is not loaded.
    ///
    /// # Errors
    /// `NotFound`.
    fn stats(&self, topic: TopicName, flags: StatsFlags) -> AdminResult<'_, TopicStats>;

    /// Ledgers and cursors; loads the topic. `metadata`: with the engine's own description of each ledger.
    fn internal_stats(
        &self,
        topic: TopicName,
        metadata: bool,
    ) -> AdminResult<'_, PersistentTopicInternalStats>;

    /// Ledgers and cursors as stored; does not load the topic.
    fn internal_info(&self, topic: TopicName) -> AdminResult<'_, ManagedLedgerInfo>;

    /// The last message.
    ///
    /// # Errors
    /// `NotAllowed` on a non-persistent topic; `NotFound`.
    fn last_message(&self, topic: TopicName) -> AdminResult<'_, LastMessage>;

    /// The first message published at or after a time in milliseconds since 1970.
    fn message_at_time(&self, topic: TopicName, timestamp_ms: u64) -> AdminResult<'_, LastMessage> {
        drop((topic, timestamp_ms));
        not_implemented("finding messages by time")
    }

    /// Bytes from a place to the end of the topic.
    fn backlog_bytes(&self, topic: TopicName, from: Place) -> AdminResult<'_, u64> {
        drop((topic, from));
        not_implemented("backlog size")
    }
}
