//! Questions about a topic: its last message, whether anybody uses it.

use pharos_types::{Ordinal, Position};

use super::Topic;
use crate::entry::FeedEntry;
use crate::error::CursorError;
use crate::ids::ConsumerKey;

/// The last message of a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastMessage {
    /// Its entry; `None` when the topic has none.
    pub position: Option<Position>,
    /// Messages in the entry, when it is a batch.
    pub batch_size: Option<u32>,
    /// The partition index of the topic.
    pub partition: Option<u32>,
    /// The consumer's mark-delete position as the wire has it (ledger, entry; -1 unsigned for "before the first").
    pub mark_delete: Option<(u64, u64)>,
}

impl Topic {
    /// The last message that a consumer can get: markers are passed over.
    ///
    /// # Errors
    /// `NotAllowed` where nothing is stored; `Storage`.
    ///
    /// `listening`: how far the consumer has acknowledged, when its shard knows better than we do.
    pub(crate) async fn last_message(
        &self,
        key: Option<ConsumerKey>,
        listening: Option<Ordinal>,
    ) -> Result<LastMessage, CursorError> {
        if self.is_transient() {
            let text = "getLastMessageId is not supported on non-persistent topic";
            return Err(CursorError::NotAllowed(text.to_owned()));
        }
        let mark_delete = {
            let state = self.state.borrow();
            let acked_to = listening.or_else(|| self.acked_to(&state, key?));
            acked_to
                .and_then(|acked_to| state.ledger.table().mark_delete(acked_to))
                .map(|mark_delete| {
                    (
                        mark_delete.ledger.0,
                        mark_delete.entry.map_or(u64::MAX, |entry| entry.0),
                    )
                })
        };
        let entry = self.last_entry().await?;
        Ok(LastMessage {
            position: entry.as_ref().map(|entry| entry.position),
            batch_size: entry
                .as_ref()
                .and_then(|entry| entry.message_facts()?.num_messages_in_batch)
                .map(|count| u32::try_from(count).unwrap_or(1)),
            partition: self.name.partition(),
            mark_delete,
        })
    }

    /// The last entry that is no marker.
    async fn last_entry(&self) -> Result<Option<std::sync::Arc<FeedEntry>>, CursorError> {
        let (mut end, first) = {
            let state = self.state.borrow();
            (state.ledger.durable_end(), state.ledger.first())
        };
        while end > first {
            let read = self.state.borrow().ledger.read(Ordinal(end.0 - 1), 1, usize::MAX);
            let found = read
                .await
                .map_err(|error| CursorError::Storage(super::publish::chain(&error)))?;
            let Some(entry) = found.into_iter().next().map(FeedEntry::from_log) else {
                return Ok(None);
            };
            if !entry.facts.is_marker {
                return Ok(Some(entry));
            }
            end = Ordinal(end.0 - 1);
        }
        Ok(None)
    }

    /// Whether the topic has no data, no producers and no consumers.
    pub(crate) fn is_idle(&self) -> bool {
        let state = self.state.borrow();
        state.ledger.durable_end() == Ordinal(0) && state.producers.len() == 0 && state.consumers.is_empty()
    }
}
