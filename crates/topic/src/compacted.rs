//! Compacted reads: the compacted ledger up to its horizon, then the log.
//!
//! The shards that listen treat it as a topic of its own ([`TopicId::compacted`]), whose entries are not dense.
//! Positions and ordinals are those of the log, also of entries that were trimmed from it.

use std::sync::Arc;

use pharos_feed::READ_ENTRIES_MAX;
use pharos_feed::entry::FeedEntry;
use pharos_feed::ids::{ShardId, TopicId};
use pharos_managed_ledger::{CompactedEntry, CompactedView, ReadError};
use pharos_mesh::FeedMessage;
use pharos_requests::error::{CursorError, chain};
use pharos_runtime::{Nanos, spawn_local};
use pharos_types::Ordinal;

use super::{LastMessage, StartAt, Topic, TopicContext};

/// Places in the compacted ledger that are remembered.
const FOUND_MAX: usize = 16;

impl TopicContext {
    fn compacted_entry(&self, entry: CompactedEntry) -> Arc<FeedEntry> {
        Arc::new(FeedEntry {
            ordinal: entry.ordinal,
            position: entry.position,
            facts: self.codec.facts(&entry.payload),
            payload: entry.payload,
            durable_at: Nanos(0),
        })
    }
}

/// Compacted reads of a topic.
pub(super) struct CompactedReads<'a>(pub(super) &'a Topic);

impl CompactedReads<'_> {
    /// Returns the current compacted view.
    fn view(&self) -> Option<CompactedView> {
        self.0.state.borrow().stored.compaction.view.clone()
    }

    /// Asks the compacted ledger. One that another took the place of meanwhile is gone: then it is asked again.
    async fn of_view<R, F: Future<Output = Result<R, ReadError>>>(
        &self,
        ask: impl Fn(CompactedView) -> F,
    ) -> Result<Option<R>, ReadError> {
        loop {
            let Some(view) = self.view() else {
                return Ok(None);
            };
            let ledger = view.ledger();
            match ask(view).await {
                Ok(answer) => return Ok(Some(answer)),
                Err(_) if self.view().map(|view| view.ledger()) != Some(ledger) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns the start of a consumer that reads compacted: also before the first entry of the log, if that is in
    /// the compacted ledger.
    pub(super) async fn start(&self, start: StartAt) -> Result<StartAt, ReadError> {
        let first = self.0.state.borrow().stored.log.start_of(StartAt::Earliest);
        if first == Ordinal(0) {
            return Ok(start);
        }
        let place = match start {
            StartAt::Earliest => {
                self.of_view(|view| async move { view.first_place().await })
                    .await?
            }
            StartAt::At(position) => {
                self.of_view(|view| async move { view.place_of(position).await })
                    .await?
            }
            StartAt::Latest | StartAt::Place(_) => None,
        };
        Ok(place.filter(|place| *place < first).map_or(start, StartAt::Place))
    }

    /// Entries of the compacted view from `from` on, none at the end.
    async fn read_compacted(
        &self,
        from: Ordinal,
        entries_max: usize,
        bytes_max: usize,
    ) -> Result<Vec<Arc<FeedEntry>>, (Ordinal, ReadError)> {
        let known = |place| {
            let state = self.0.state.borrow();
            let mut found = state.stored.compaction.found.iter();
            found.find(|(at, _)| *at == place).map(|(_, index)| *index)
        };
        let from_view = self.of_view(|view| async move {
            let index = match known(from) {
                Some(index) => index,
                None => view.index_of(from).await?,
            };
            let entries = view.read(index, entries_max, bytes_max).await?;
            Ok((view.ledger(), view.horizon(), index, entries))
        });
        let Some((ledger, horizon, index, entries)) = from_view.await.map_err(|error| (from, error))? else {
            return self.read_log(from, entries_max, bytes_max).await;
        };
        let Some(last) = entries.last().filter(|_| from < horizon) else {
            return self.read_log(from.max(horizon), entries_max, bytes_max).await;
        };
        let next = (last.ordinal.next(), index + entries.len() as u64);
        let compaction = &mut self.0.state.borrow_mut().stored.compaction;
        if compaction.view.as_ref().map(CompactedView::ledger) == Some(ledger) {
            compaction.found.retain(|(at, _)| *at != from && *at != next.0);
            compaction.found.push_back(next);
            while compaction.found.len() > FOUND_MAX {
                compaction.found.pop_front();
            }
        }
        Ok(entries
            .into_iter()
            .map(|entry| self.0.cx.compacted_entry(entry))
            .collect())
    }

    async fn read_log(
        &self,
        from: Ordinal,
        entries_max: usize,
        bytes_max: usize,
    ) -> Result<Vec<Arc<FeedEntry>>, (Ordinal, ReadError)> {
        let read = self
            .0
            .state
            .borrow()
            .stored
            .log
            .read(from, entries_max, bytes_max);
        let found = read.await.map_err(|error| (from, error))?;
        Ok(found
            .into_iter()
            .map(|entry| self.0.cx.feed_entry(entry))
            .collect())
    }

    /// A feed of the compacted view needs entries.
    pub(super) fn on_read(
        &self,
        (shard, feed): (ShardId, TopicId),
        from: Ordinal,
        entries_max: usize,
        bytes_max: usize,
    ) {
        let Some(me) = self.0.cx.me() else { return };
        spawn_local(async move {
            let read = CompactedReads(&me)
                .read_compacted(from, entries_max.min(READ_ENTRIES_MAX), bytes_max)
                .await;
            let answer = match read {
                Ok(entries) => {
                    let stored = &me.state.borrow().stored;
                    let horizon = stored.compaction.view.as_ref().map(CompactedView::horizon);
                    let begin = stored.log.ledger.first().max(horizon.unwrap_or(Ordinal(0)));
                    FeedMessage::ReadDone {
                        from,
                        resume: if entries.is_empty() { from.max(begin) } else { from },
                        entries,
                        table: stored.log.ledger.table(),
                    }
                }
                Err((place, error)) => {
                    let log = &mut me.state.borrow_mut().stored.log;
                    let marker = match error.is_lasting() {
                        true => {
                            log.note_damage(&me.cx, place, &error);
                            log.stand_in(&me.cx, place, &error)
                        }
                        false => None,
                    };
                    match marker {
                        Some(marker) => FeedMessage::ReadDone {
                            from,
                            resume: from,
                            entries: vec![marker],
                            table: log.ledger.table(),
                        },
                        None => {
                            tracing::error!(topic = %me.cx.name, %from, error = chain(&error), "cannot read what was compacted");
                            FeedMessage::ReadFailed { from }
                        }
                    }
                }
            };
            me.cx.send_feed(feed, shard, answer);
        });
    }

    /// The last message for a consumer that reads what is compacted; `last`: the last entry of the log, when that is known. What
    /// lies before the horizon is asked of the compacted ledger.
    pub(super) async fn last(
        &self,
        last: Option<Ordinal>,
        known: LastMessage,
    ) -> Result<LastMessage, CursorError> {
        let Some(view) = self.view() else {
            return Ok(known);
        };
        if last.is_some_and(|last| last >= view.horizon()) {
            return Ok(known);
        }
        let last = self.of_view(|view| async move { view.last().await }).await;
        let last = last
            .map_err(|error| CursorError::Storage(chain(&error)))?
            .flatten();
        let cx = &self.0.cx;
        let last_index = |entry: &CompactedEntry| {
            let told = entry.last_index;
            told.or_else(|| pharos_compaction::last_index(cx.codec, &entry.payload, cx.options().compaction))
        };
        Ok(LastMessage {
            position: last.as_ref().map(|entry| entry.position),
            // What is gone behind it in its batch does not count.
            batch_size: last
                .as_ref()
                .and_then(last_index)
                .map(|index| index.saturating_add(1)),
            ..known
        })
    }
}
