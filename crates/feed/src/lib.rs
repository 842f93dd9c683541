//! A topic as one shard sees it: the entries at hand, and the stream consumers on the shard's connections.
//!
//! ```text
//!   home shard ──Appended──► Feed ──┬─► Group (connection 1): cohorts of stream consumers ──► frames
//!                  ◄──Read────      ├─► Group (connection 2)
//!                  ◄──Progress──    └─► …
//! ```
//!
//! Owned by its shard; nothing here locks, waits or spawns. Acknowledgements end here: they move the stream consumer's
//! virtual cursor, and about once a second one message tells the topic's home which moved and how far.
//! Always true: a handle whose cursor moved since the last report is in `dirty`, once; while there is no stream consumer, none is.

#![forbid(unsafe_code)]

mod activity;
mod catch_up;
mod cohorts;
mod compacted;
mod dispatch_rate;
mod due;
pub mod entry;
mod group;
pub mod ids;
mod marks;
mod newest;
mod pages;
mod reads;
pub mod rivalry;
pub mod slots;
mod stream_consumer;
#[cfg(test)]
mod tests;
mod timeline;
mod window;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry as MapEntry;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use pharos_managed_ledger::cursor::{AckOutcome, AckState};
use pharos_managed_ledger::{LedgerTable, Lookup};
use pharos_runtime::{Nanos, clock};
use pharos_types::{Ordinal, Position, TopicName};

pub use activity::{Activity, Moment, StreamConsumerActivity};
pub use catch_up::{CatchUpReadBudget, Room, Waiting, retry_delay};
pub use dispatch_rate::DispatchRateLimiter;
pub use due::DueGroups;
pub use group::{ConsumerHandle, DeliverySink, Filled, Group, Recipient};
pub use marks::Marks;
pub use newest::Newest;
pub use pharos_accounts::Sent;
pub use reads::READ_ENTRIES_MAX;
pub use stream_consumer::{CursorHandoff, StreamConsumer, Withheld};
pub use timeline::FeedStages;
pub use window::Found;

use crate::entry::FeedEntry;
use crate::ids::{ConnectionId, ConsumerKey, SlotId, TopicId};
use pages::Pages;
use pharos_dispatch::LargestBatch;
use reads::{Asked, Due};
use timeline::Timeline;
use window::Window;

/// Acknowledged message id.
#[derive(Clone, Copy, Debug)]
pub struct Ack<'a> {
    /// The entry.
    pub position: Position,
    /// For a part of a batch: the indexes that remain. Empty for the whole entry.
    pub remaining: &'a [i64],
}

/// An acknowledgement that travels.
#[derive(Debug, Clone)]
pub struct OwnedAck {
    /// The entry.
    pub position: Position,
    /// For a part of a batch: the indexes that remain. Empty for the whole entry.
    pub remaining: Box<[i64]>,
}

/// State of a topic sent to a shard before the first stream consumer attaches there.
#[derive(Clone, Debug)]
pub struct FeedSeed {
    /// The topic.
    pub topic: TopicId,
    /// Its name.
    pub name: TopicName,
    /// The durable end, exclusive.
    pub tail: Ordinal,
    /// Table of ledgers and their ordinals.
    pub table: LedgerTable,
    /// True if nothing will ever be appended again.
    pub terminated: bool,
}

/// Changes since the last report, for the topic's home.
#[derive(Debug)]
pub struct Progress {
    /// The cursors that moved.
    pub moved: Vec<(SlotId, AckState)>,
}

/// Requests of a feed to its shard.
pub trait FeedHost {
    /// Entries from `from` on are needed: at least one, at most `entries_max`, and not more than `bytes_max`; answer with
    /// [`Feed::on_read`] or [`Feed::on_read_failed`].
    fn read(&self, topic: TopicId, from: Ordinal, entries_max: usize, bytes_max: usize);
    /// A read found no room in the [`CatchUpReadBudget`]: let go of what is not used, and soon.
    fn read_waits(&self);
    /// There may be room for reads that wait: give them their turn, but not from within this call.
    fn read_room(&self);
    /// A read failed; it is to be begun again after `delay`.
    fn read_later(&self, topic: TopicId, from: Ordinal, delay: Duration);
    /// Stream consumers of the connection may get more of the topic after `delay`: call [`Feed::resume`] then.
    fn resume_later(&self, topic: TopicId, connection: ConnectionId, delay: Duration);
    /// The connection may have something to write.
    fn wake(&self, connection: ConnectionId);
    /// The feed has progress to report within a second.
    fn dirty(&self, topic: TopicId);
    /// A stream consumer has acknowledged all of a topic that is terminated.
    fn end_of_topic(&self, connection: ConnectionId, consumer_id: u64);
}

/// A topic as one shard sees it.
pub struct Feed {
    /// The topic.
    pub topic: TopicId,
    /// Its name.
    pub name: TopicName,
    /// The partition index to stamp on message ids.
    pub partition: Option<u32>,
    host: Rc<dyn FeedHost>,
    backlog: Rc<CatchUpReadBudget>,
    newest: Rc<Newest>,
    /// The list of `newest` that names this topic.
    listed: Cell<u64>,
    terminated: Cell<bool>,
    window: RefCell<Window>,
    table: RefCell<LedgerTable>,
    /// In the order of connections, so that turns of writing go through memory in one direction.
    groups: RefCell<BTreeMap<ConnectionId, Rc<Group>>>,
    /// Stream consumers whose cursor moved since the last report.
    dirty: RefCell<Vec<(Rc<Group>, u32)>>,
    /// Places to read at, and who waits for that.
    asked: RefCell<BTreeMap<Ordinal, Asked>>,
    due: RefCell<Due>,
    /// Largest batch of the entries delivered here.
    largest_batch: Cell<LargestBatch>,
    timeline: RefCell<Timeline>,
    /// Ledgers that are trimmed, in a compacted view.
    trimmed: RefCell<compacted::TrimmedLedgers>,
}

impl Feed {
    /// A feed without stream consumers. `backlog` and `newest`: the accounts of all feeds of the shard.
    #[must_use]
    pub fn new(
        seed: FeedSeed,
        host: Rc<dyn FeedHost>,
        backlog: Rc<CatchUpReadBudget>,
        newest: Rc<Newest>,
    ) -> Rc<Self> {
        Rc::new(Self {
            topic: seed.topic,
            partition: seed.name.partition(),
            name: seed.name,
            host,
            backlog,
            terminated: Cell::new(seed.terminated),
            window: RefCell::new(Window::new(seed.tail, newest.clone())),
            newest,
            listed: Cell::new(0),
            table: RefCell::new(seed.table),
            groups: RefCell::default(),
            dirty: RefCell::default(),
            asked: RefCell::default(),
            due: RefCell::default(),
            largest_batch: Cell::default(),
            timeline: RefCell::default(),
            trimmed: RefCell::default(),
        })
    }

    /// Takes what a newer seed knows.
    pub fn refresh(&self, seed: &FeedSeed) {
        self.window.borrow_mut().raise_tail(seed.tail);
        self.set_table(seed.table.clone());
        if seed.terminated {
            self.terminated.set(true);
        }
    }

    /// Ledgers were added or trimmed.
    pub fn set_table(&self, table: LedgerTable) {
        let mut mine = self.table.borrow_mut();
        if table.version() >= mine.version() {
            *mine = table;
        }
    }

    /// The durable end, exclusive.
    #[must_use]
    pub fn tail(&self) -> Ordinal {
        self.window.borrow().tail()
    }

    /// Returns the ordinal of the entry at a position, if there is one.
    #[must_use]
    pub fn ordinal_of(&self, position: Position) -> Option<Ordinal> {
        match self.table.borrow().ordinal_of(position, self.tail()) {
            Lookup::Exact(ordinal) => Some(ordinal),
            _ => self.trimmed.borrow().ordinal_of(position),
        }
    }

    /// True if an entry is in memory here, for whatever reason.
    #[must_use]
    pub fn is_at_hand(&self, ordinal: Ordinal) -> bool {
        ordinal < self.tail() && !self.window.borrow().is_elsewhere(ordinal)
    }

    /// True if there is no stream consumer.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.groups.borrow().is_empty()
    }

    /// All groups, for stats.
    pub fn for_each_consumer(&self, mut look: impl FnMut(ConnectionId, &StreamConsumer)) {
        for (connection, group) in self.groups.borrow().iter() {
            group.for_each(|consumer| look(*connection, consumer));
        }
    }

    /// Looks at what a stream consumer has acknowledged; `None` if it is not here.
    pub fn look_at_acks<R>(
        &self,
        connection: ConnectionId,
        key: ConsumerKey,
        look: impl FnOnce(&AckState) -> R,
    ) -> Option<R> {
        let (group, index) = self.place_of(connection, key)?;
        group.with(index, |consumer| look(&consumer.acks))
    }

    /// Takes in a consumer of `connection`, with the cursor that its topic's home hands over.
    pub fn join(
        self: &Rc<Self>,
        connection: ConnectionId,
        consumer: (u64, ConsumerKey),
        handoff: CursorHandoff,
        permits: i64,
        epoch: Option<u64>,
    ) -> ConsumerHandle {
        let group = match self.groups.borrow_mut().entry(connection) {
            MapEntry::Occupied(entry) => entry.get().clone(),
            MapEntry::Vacant(entry) => entry
                .insert(Rc::new(Group::new(connection, self.clone())))
                .clone(),
        };
        let index = group.add(StreamConsumer::new(
            consumer.0, consumer.1, handoff, permits, epoch,
        ));
        ConsumerHandle::new(group, index)
    }

    fn leave(&self, group: &Rc<Group>, index: u32) -> Option<CursorHandoff> {
        let consumer = group.remove(index)?;
        if group.is_empty() {
            let mut groups = self.groups.borrow_mut();
            groups.remove(&group.connection);
            let is_last = groups.is_empty();
            drop(groups);
            if is_last {
                // Who moved has taken the cursor along. A group that stays noted would hold the feed, which holds it.
                self.dirty.take();
                self.with_pages(Pages::clear);
            }
        }
        Some(consumer.into_handoff())
    }

    /// New entries are durable. Wakes every connection that listens.
    pub fn on_appended(&self, entries: Vec<Arc<FeedEntry>>) {
        let now = clock::now();
        let mut bytes = 0;
        {
            let mut window = self.window.borrow_mut();
            let mut timeline = self.timeline.borrow_mut();
            for entry in entries {
                bytes += window::cost(&entry);
                timeline.arrived(&entry, now);
                window.push(entry);
            }
        }
        let listed = self.newest.note(self.topic, self.listed.get(), bytes, now);
        self.listed.set(listed);
        self.wake_all();
    }

    /// More is readable that was durable before: stream consumers that are due read it from the topic's home.
    pub fn on_readable(&self, end: Ordinal) {
        self.window.borrow_mut().raise_tail(end);
        self.wake_all();
    }

    /// These entries of a stream consumer are acknowledged in a transaction; those `before` are, too.
    pub fn withhold(&self, connection: ConnectionId, key: ConsumerKey, before: Ordinal, entries: &[Ordinal]) {
        if let Some((group, index)) = self.place_of(connection, key) {
            group.with(index, |consumer| {
                let withheld = consumer.withheld.get_or_insert_default();
                withheld.before = withheld.before.max(before);
                withheld.entries.extend(entries);
            });
        }
    }

    /// A transaction ended: this is what others withhold of a stream consumer. `again`: the lowest entry that comes again.
    pub fn release(
        &self,
        connection: ConnectionId,
        key: ConsumerKey,
        withheld: Option<Box<Withheld>>,
        again: Option<Ordinal>,
    ) {
        let Some((group, index)) = self.place_of(connection, key) else {
            return;
        };
        let places = group.with(index, |consumer| {
            consumer.withheld = withheld;
            (consumer.next, consumer.acks.acked_to())
        });
        // What it has acknowledged may be all that is kept, and is not read again.
        if let (Some((next, acked_to)), Some(again)) = (places, again)
            && let again = again.max(acked_to)
            && again < next
        {
            group.rewind(index, again, None);
            self.host.wake(group.connection);
        }
    }

    /// Lets go of the newest entries that were durable until then. Who still wants one reads it from the topic's home.
    pub fn forget_until(&self, until: Nanos) {
        let mut window = self.window.borrow_mut();
        window.forget_until(until);
        self.timeline.borrow_mut().forget_before(window.at_hand());
    }

    /// Nothing will be appended any more.
    pub fn on_terminated(&self) {
        self.terminated.set(true);
        let tail = self.tail();
        self.for_each_consumer(|connection, consumer| {
            if consumer.acks.acked_to() >= tail {
                self.host.end_of_topic(connection, consumer.consumer_id);
            }
        });
    }

    /// Counts messages of a live entry as handed to sockets.
    pub fn on_written(&self, entry: &FeedEntry, messages: u64, now: Nanos) {
        self.timeline.borrow_mut().written(entry, messages, now);
    }

    /// The stage histograms since the feed was made. They only grow, so that several may ask.
    #[must_use]
    pub fn stages(&self) -> FeedStages {
        self.timeline.borrow().stages()
    }

    /// Takes what moved since the last report.
    #[must_use]
    pub fn take_progress(&self) -> Progress {
        self.drop_passed();
        let dirty = std::mem::take(&mut *self.dirty.borrow_mut());
        let moved = dirty
            .iter()
            .filter_map(|(group, index)| {
                group.with(*index, |consumer| {
                    consumer.dirty = false;
                    Some((consumer.slot?, consumer.acks.clone()))
                })?
            })
            .collect();
        Progress { moved }
    }

    /// Acknowledges messages of one stream consumer. Ids that do not exist (trimmed, never written) change nothing, nor do sets of batch
    /// indexes that are longer than any batch delivered here; returns how many of those there were.
    fn ack(
        &self,
        group: &Rc<Group>,
        index: u32,
        acks: &mut dyn Iterator<Item = Ack<'_>>,
        cumulative: bool,
        now: Nanos,
    ) -> usize {
        let tail = self.tail();
        let table = self.table.borrow();
        let trimmed = self.trimmed.borrow();
        let mut timeline = self.timeline.borrow_mut();
        let (largest_batch, mut too_long) = (self.largest_batch.get(), 0);
        let mut acked = 0;
        self.change(group, index, |state| {
            for ack in acks {
                let place = trimmed.ordinal_of(ack.position);
                let Some(ordinal) = place.or_else(|| existing(&table, ack.position, tail, cumulative)) else {
                    continue;
                };
                if !largest_batch.allows(ack.remaining.len()) {
                    too_long += 1;
                    continue;
                }
                timeline.acknowledged(ordinal, now);
                acked += match cumulative {
                    false => u64::from(acknowledge(state, ordinal, ack.remaining)),
                    true => acknowledge_all(state, ordinal, ack.remaining, tail),
                };
            }
        });
        if acked > 0 {
            group.with(index, |consumer| {
                consumer.activity.acked += acked;
                consumer.activity.acked_at = Moment::at(now);
            });
        }
        too_long
    }

    /// An entry of so many messages is delivered.
    pub(crate) fn note_batch(&self, messages: u32) {
        let mut largest = self.largest_batch.get();
        largest.note(messages);
        self.largest_batch.set(largest);
    }

    /// As [`ConsumerHandle::skip_to`], for the topic's home, which knows consumers by key.
    pub fn skip_consumer(&self, connection: ConnectionId, key: ConsumerKey, to: Ordinal) {
        if let Some((group, index)) = self.place_of(connection, key) {
            self.skip_to(&group, index, to);
        }
    }

    /// Acknowledgements for a stream consumer that came by way of the topic's home.
    pub fn ack_consumer(
        &self,
        connection: ConnectionId,
        key: ConsumerKey,
        acks: &[OwnedAck],
        cumulative: bool,
    ) {
        if let Some((group, index)) = self.place_of(connection, key) {
            let mut acks = acks.iter().map(|ack| Ack {
                position: ack.position,
                remaining: &ack.remaining,
            });
            let _ = self.ack(&group, index, &mut acks, cumulative, clock::now());
        }
    }

    fn place_of(&self, connection: ConnectionId, key: ConsumerKey) -> Option<(Rc<Group>, u32)> {
        let group = self.groups.borrow().get(&connection).cloned()?;
        let index = group.index_of(key)?;
        Some((group, index))
    }

    fn skip_to(&self, group: &Rc<Group>, index: u32, to: Ordinal) {
        self.change(group, index, |state| {
            state.raise_to(to);
        });
        let next = group.with(index, |consumer| consumer.next);
        if next.is_some_and(|next| next < to) {
            group.rewind(index, to, None);
            self.host.wake(group.connection);
        }
    }

    /// Changes a stream consumer's cursor and keeps the marks, the dirty list and the end of topic right.
    fn change(&self, group: &Rc<Group>, index: u32, change: impl FnOnce(&mut AckState)) {
        let tail = self.tail();
        let outcome = group.with(index, |consumer| {
            let before = consumer.acks.acked_to();
            change(&mut consumer.acks);
            let after = consumer.acks.acked_to();
            let newly_dirty = !std::mem::replace(&mut consumer.dirty, true);
            (newly_dirty, after >= tail && before < after, consumer.consumer_id)
        });
        let Some((newly_dirty, caught_up, consumer_id)) = outcome else {
            return;
        };
        if newly_dirty {
            self.dirty.borrow_mut().push((group.clone(), index));
            self.host.dirty(self.topic);
        }
        if caught_up && self.terminated.get() {
            self.host.end_of_topic(group.connection, consumer_id);
        }
    }

    /// Markers and what a compacted view has no more are not for consumers: those of the connection that came by acknowledge them,
    /// each from its place on to `end`.
    fn pass(&self, connection: ConnectionId, passed: &[(u32, Ordinal)], end: Ordinal) {
        if passed.is_empty() {
            return;
        }
        let group = self.groups.borrow().get(&connection).cloned();
        let Some(group) = group else { return };
        for (index, from) in passed {
            self.change(&group, *index, |acks| acks.ack_range(*from, end));
        }
    }

    /// An entry is about to be dealt to a connection; when it was ready for that.
    fn on_prepared(&self, entry: &FeedEntry) -> Nanos {
        self.timeline.borrow_mut().prepared(entry)
    }

    /// Stream consumers of the connection that were delivered as fast as they may be go on.
    pub fn resume(&self, connection: ConnectionId) {
        let group = self.groups.borrow().get(&connection).cloned();
        if let Some(group) = group {
            group.resume();
            self.host.wake(connection);
        }
    }

    fn wake_all(&self) {
        for (connection, group) in self.groups.borrow().iter() {
            group.ring();
            self.host.wake(*connection);
        }
    }
}

/// Acknowledges one entry, or part of one. Whether all of it is acknowledged now and was not before.
fn acknowledge(state: &mut AckState, ordinal: Ordinal, remaining: &[i64]) -> bool {
    let outcome = match remaining {
        [] => state.ack(ordinal),
        words => state.ack_batch(ordinal, words),
    };
    matches!(outcome, AckOutcome::Recorded | AckOutcome::Advanced)
}

/// Acknowledges everything up to an entry. How many entries were not before.
fn acknowledge_all(state: &mut AckState, ordinal: Ordinal, remaining: &[i64], tail: Ordinal) -> u64 {
    // Without holes, as nearly always, the backlog is a difference.
    let before = state.backlog(tail);
    match remaining {
        [] => state.ack_cumulative(ordinal),
        words => state.ack_cumulative_batch(ordinal, words),
    };
    before.saturating_sub(state.backlog(tail))
}

/// The ordinal of a position that a client acknowledges. A cumulative one may name a place between entries.
fn existing(table: &LedgerTable, position: Position, tail: Ordinal, cumulative: bool) -> Option<Ordinal> {
    match table.ordinal_of(position, tail) {
        Lookup::Exact(ordinal) => Some(ordinal),
        Lookup::Between(next) if cumulative && next.0 > 0 => Some(Ordinal(next.0 - 1)),
        _ => None,
    }
}
