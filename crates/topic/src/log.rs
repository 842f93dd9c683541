//! The log of a topic: what it stores, where it ends for readers, and its upkeep off the path of publishing.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use pharos_feed::FeedSeed;
use pharos_feed::entry::{EntryFacts, FeedEntry};
use pharos_feed::ids::TopicId;
use pharos_managed_ledger::{Entry, ManagedLedger, ReadError, ReadTo};
use pharos_requests::error::chain;
use pharos_runtime::{Nanos, clock, spawn_local};
use pharos_types::{Ordinal, Position};
use tokio::sync::oneshot;

use super::damage::Damage;
use super::shadow::Following;
use super::{StartAt, TopicContext};

/// Interval between checks of a log that waits for the engine. Nothing else notifies its waiters.
const CATCH_UP_INTERVAL: Duration = Duration::from_millis(200);

/// The log of a topic.
pub(crate) struct TopicLog {
    pub(crate) ledger: ManagedLedger,
    /// Entries that cannot be read any more.
    pub(super) damage: Damage,
    /// A task will look at the log again.
    comes_again: bool,
    /// Terminated for good, durably.
    pub(crate) terminated: bool,
    /// Callers that wait for the termination.
    terminating: Vec<oneshot::Sender<Option<Position>>>,
    /// Link of a shadow topic to its source.
    pub(super) following: Option<Following>,
    /// Its policies name shadows.
    is_followed: bool,
    /// The first entry of a transaction that is open.
    open_from: Option<Ordinal>,
}

impl TopicLog {
    /// A log that was just opened.
    pub(super) fn new(ledger: ManagedLedger) -> Self {
        Self {
            terminated: ledger.is_terminated(),
            ledger,
            damage: Damage::default(),
            comes_again: false,
            terminating: Vec::new(),
            following: None,
            is_followed: false,
            open_from: None,
        }
    }

    /// Readers get nothing from here on; `None`: no transaction is open.
    pub(super) fn set_open_from(&mut self, open_from: Option<Ordinal>) {
        self.open_from = open_from;
    }

    /// Sets if shadows follow the topic.
    pub(super) fn set_followed(&mut self, is_followed: bool) {
        self.is_followed = is_followed;
        self.ledger.set_followed(is_followed);
    }

    /// True if shadows follow the topic.
    pub(super) fn is_followed(&self) -> bool {
        self.is_followed
    }

    /// State that a shard needs before its first stream consumer.
    pub(super) fn seed(&self, cx: &TopicContext, feed: TopicId) -> FeedSeed {
        FeedSeed {
            topic: feed,
            name: cx.name.clone(),
            tail: self.readable_end(),
            table: self.ledger.table(),
            terminated: self.is_at_its_end(),
        }
    }

    /// True if it is terminated, and readers may have all of it: no transaction is open.
    pub(super) fn is_at_its_end(&self) -> bool {
        self.ledger.is_terminated() && self.open_from.is_none()
    }

    /// The end of what dispatchers and stream consumers get, exclusive; never behind the durable end. Nothing else decides how far
    /// they may read: as far as the log is durable, and not beyond the first entry of an open transaction. It never goes back: a
    /// transaction begins at or behind the durable end.
    pub(super) fn readable_end(&self) -> Ordinal {
        let end = self.ledger.durable_end();
        self.open_from.map_or(end, |open_from| open_from.min(end))
    }

    /// Readable entries from `from` on out of the cache; see [`ManagedLedger::cached`].
    pub(super) fn cached(&self, from: Ordinal, entries_max: usize, bytes_max: usize) -> Option<Vec<Entry>> {
        let to = ReadTo::Before(self.readable_end());
        self.ledger.cached(from, entries_max, bytes_max, to)
    }

    /// Readable entries from `from` on; see [`ManagedLedger::read`].
    pub(super) fn read(
        &self,
        from: Ordinal,
        entries_max: usize,
        bytes_max: usize,
    ) -> impl Future<Output = Result<Vec<Entry>, ReadError>> + use<> {
        let to = ReadTo::Before(self.readable_end());
        self.ledger.read_to(from, entries_max, bytes_max, to)
    }

    /// The ordinal at which a new cursor starts.
    pub(crate) fn start_of(&self, start: StartAt) -> Ordinal {
        match start {
            StartAt::Latest => self.ledger.durable_end(),
            StartAt::Earliest => self.ledger.first(),
            StartAt::Place(place) => place.min(self.ledger.durable_end()),
            StartAt::At(position) => {
                let end = self.ledger.durable_end();
                self.ledger.table().ordinal_of(position, end).at_or_after(end)
            }
        }
    }

    /// Starts whatever the log wants done (rolling over, deleting what was trimmed), off the path of publishing, and comes again
    /// while it waits for the engine, also when the topic is closing.
    pub(super) fn maintain(&mut self, cx: &TopicContext) {
        while let Some(work) = self.ledger.take_maintenance(clock::wall_ms()) {
            let Some(me) = cx.me() else { return };
            spawn_local(async move {
                let done = work.await;
                me.state.borrow_mut().on_maintained(&me.cx, done);
            });
        }
        if self.ledger.is_behind() && !std::mem::replace(&mut self.comes_again, true) {
            let me = cx.me.clone();
            spawn_local(async move {
                tokio::time::sleep(CATCH_UP_INTERVAL).await;
                if let Some(me) = me.upgrade() {
                    let mut state = me.state.borrow_mut();
                    state.stored.log.comes_again = false;
                    state.stored.log.maintain(&me.cx);
                }
            });
        }
    }

    /// Terminates the log, unless that was done. The receiver resolves with the last position when that is durable.
    pub(super) fn terminate(
        &mut self,
        cx: &TopicContext,
    ) -> Result<oneshot::Receiver<Option<Position>>, Option<Position>> {
        if self.terminated {
            return Err(self.ledger.last_position());
        }
        let (sender, receiver) = oneshot::channel();
        self.terminating.push(sender);
        self.ledger.terminate();
        self.maintain(cx);
        Ok(receiver)
    }

    /// The log is terminated, durably.
    pub(super) fn on_terminated(&mut self, last: Option<Position>) {
        self.terminated = true;
        for waiting in self.terminating.drain(..) {
            // A caller that no longer waits does not mind.
            let _ = waiting.send(last);
        }
    }

    /// True if a caller waits for the termination of the log.
    pub(super) fn is_terminating(&self) -> bool {
        !self.terminating.is_empty()
    }

    /// Marker that stream consumers get in place of a lost entry that is skipped; each of them acknowledges it when
    /// it reaches it.
    pub(super) fn stand_in(
        &self,
        cx: &TopicContext,
        place: Ordinal,
        error: &ReadError,
    ) -> Option<Arc<FeedEntry>> {
        if !cx.skips(error) {
            return None;
        }
        let position = self.ledger.position_of(place)?;
        cx.count_skip();
        Some(Arc::new(FeedEntry {
            ordinal: place,
            position,
            payload: Bytes::new(),
            facts: EntryFacts {
                message_count: 1,
                is_marker: true,
                ..EntryFacts::default()
            },
            durable_at: Nanos(0),
        }))
    }

    /// Tells of an entry that cannot be read any more, once.
    pub(super) fn note_damage(&mut self, cx: &TopicContext, place: Ordinal, error: &ReadError) {
        let first = self.ledger.first();
        let is_new = self.damage.note(place, first);
        let position = self.ledger.position_of(place).map(|at| at.to_string());
        if !is_new {
            return;
        }
        cx.shard.tally.entry_unreadable();
        tracing::error!(
            topic = %cx.name,
            position = position.unwrap_or_default(),
            error = chain(error),
            are_moved = cx.skips(error),
            "an entry cannot be read: its consumers are moved past it or wait in front of it"
        );
    }
}
