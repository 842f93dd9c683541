//! Questions about a topic: its last message, whether it is used.

use std::sync::Arc;

use pharos_feed::entry::FeedEntry;
use pharos_feed::ids::ConsumerKey;
use pharos_requests::error::{CursorError, chain};
use pharos_types::{Ordinal, Position};

use super::compacted::CompactedReads;
use super::reads::LogReads;
use super::{State, Topic};

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

/// Last entry of a topic.
enum Last {
    Entry(Arc<FeedEntry>),
    /// An entry that cannot be read any more, and that consumers wait for.
    Unreadable(Position),
    Nothing,
}

impl State {
    /// True if the topic has no data, no producers and no consumers.
    pub(crate) fn is_idle(&self) -> bool {
        self.stored.log.ledger.durable_end() == Ordinal(0)
            && self.stored.publishing.producers.len() == 0
            && self.attached.consumers.is_empty()
    }
}

impl LogReads<'_> {
    /// The last entry that is no marker. One that cannot be read any more is the last where consumers wait in front of it, and is
    /// passed over where they are moved past it.
    async fn last_entry(&self) -> Result<Last, CursorError> {
        let (mut end, first) = {
            let state = self.state.borrow();
            (state.stored.log.readable_end(), state.stored.log.ledger.first())
        };
        while end > first {
            end = Ordinal(end.0 - 1);
            let (read, position) = {
                let state = self.state.borrow();
                (
                    state.stored.log.ledger.read(end, 1, usize::MAX),
                    state.stored.log.ledger.position_of(end),
                )
            };
            let found = match read.await {
                Ok(found) => found,
                Err(_) if end < self.state.borrow().stored.log.ledger.first() => return Ok(Last::Nothing),
                Err(error) if error.is_lasting() => {
                    self.state
                        .borrow_mut()
                        .stored
                        .log
                        .note_damage(self.cx, end, &error);
                    match position.filter(|_| !self.cx.skips(&error)) {
                        Some(position) => return Ok(Last::Unreadable(position)),
                        None => continue,
                    }
                }
                Err(error) => return Err(CursorError::Storage(chain(&error))),
            };
            let Some(entry) = found.into_iter().next().map(|entry| self.cx.feed_entry(entry)) else {
                return Ok(Last::Nothing);
            };
            if !entry.facts.is_marker {
                return Ok(Last::Entry(entry));
            }
        }
        Ok(Last::Nothing)
    }
}

impl Topic {
    /// The last message that a consumer can get: markers are passed over. Where that cannot be read any more, its place without the
    /// size of its batch.
    ///
    /// # Errors
    /// `NotAllowed` where nothing is stored; `Storage`.
    ///
    /// `listening`: how far the consumer has acknowledged, when its shard knows better than we do.
    pub async fn last_message(
        &self,
        key: Option<ConsumerKey>,
        listening: Option<Ordinal>,
    ) -> Result<LastMessage, CursorError> {
        if self.cx.is_non_persistent() {
            let text = "getLastMessageId is not supported on non-persistent topic";
            return Err(CursorError::NotAllowed(text.to_owned()));
        }
        let mark_delete = {
            let state = self.state.borrow();
            let acked_to = listening.or_else(|| state.attached.acked_to(&state.stored, key?));
            acked_to
                .and_then(|acked_to| state.stored.log.ledger.table().mark_delete(acked_to))
                .map(|mark_delete| {
                    (
                        mark_delete.ledger.0,
                        mark_delete.entry.map_or(u64::MAX, |entry| entry.0),
                    )
                })
        };
        let is_compacted = key.is_some_and(|key| {
            let state = self.state.borrow();
            state
                .attached
                .consumers
                .get(&key)
                .is_some_and(|consumer| consumer.feed.is_compacted())
        });
        let last = self.reads().last_entry().await?;
        let batch_size = match &last {
            Last::Entry(entry) => entry.facts.batch_size(),
            Last::Unreadable(_) | Last::Nothing => None,
        };
        let place = match &last {
            Last::Entry(entry) => Some(entry.ordinal),
            // Consumers wait in front of it, whatever they read.
            Last::Unreadable(_) => Some(Ordinal(u64::MAX)),
            Last::Nothing => None,
        };
        let known = LastMessage {
            position: match last {
                Last::Entry(entry) => Some(entry.position),
                Last::Unreadable(position) => Some(position),
                Last::Nothing => None,
            },
            batch_size,
            partition: self.cx.name.partition(),
            mark_delete,
        };
        match is_compacted {
            true => CompactedReads(self).last(place, known).await,
            false => Ok(known),
        }
    }
}
