//! The stream consumers of one connection on one topic, and the loop that deals entries to them.
//!
//! Stream consumers that are due the same entry stand in one *cohort*. The cohort at the tail is where nearly all stand;
//! one that fell behind (out of permits, full socket, late joiner) stands in a cohort further back, which is served
//! with entries read back from the log until it meets the next cohort and merges with it. Nothing is queued per
//! stream consumer: a connection that cannot take more bytes just stops asking, so a slow one costs no memory.
//!
//! Always true: a stream consumer stands in exactly one cohort (its `ticket` says which membership counts) or is parked
//! without permits.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use pharos_runtime::clock;
use pharos_types::Ordinal;
use pharos_types::steps::{step, walk};
use smallvec::SmallVec;

use super::cohorts::{Cohort, Cohorts, Member};
use super::due::{Bell, DueGroups};
use super::window::Found;
use super::{CursorHandoff, Feed, Moment, Sent, StreamConsumer};
use crate::entry::FeedEntry;
use crate::ids::{ConnectionId, ConsumerKey, IdMap};

/// Receiver of the messages of a connection's consumers.
pub trait DeliverySink {
    /// True if it accepts one more message now.
    fn has_room(&self) -> bool;
    /// The following messages carry this entry.
    fn begin(&mut self, entry: &Arc<FeedEntry>, partition: Option<u32>);
    /// Adds a message for one consumer. `ack_set`: batch indexes that are still to be acknowledged, empty for all.
    fn message(&mut self, to: Recipient, ack_set: &[i64]);
}

/// Consumer of a message, with the data of that delivery.
#[derive(Clone, Copy, Debug)]
pub struct Recipient {
    /// The consumer's id on its connection.
    pub consumer_id: u64,
    /// Number of earlier redeliveries.
    pub redelivery_count: u32,
    /// The consumer's epoch, if it set one.
    pub epoch: Option<u64>,
}

/// Number of stream consumers up to which one is looked for among all.
const LOOKED_THROUGH_MAX: usize = 8;

/// Reason why [`Group::fill`] stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filled {
    /// The sink is full; call again when it has room.
    Full,
    /// Nothing to deliver now; the group will be woken when there is.
    Drained,
}

/// The stream consumers of one connection on one topic.
pub struct Group {
    /// Their connection.
    pub connection: ConnectionId,
    feed: Rc<Feed>,
    bell: Bell,
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    consumers: SmallVec<[Option<StreamConsumer>; 1]>,
    free: Vec<u32>,
    count: usize,
    /// Index of each, once there were many.
    by_key: Option<Box<IdMap<ConsumerKey, u32>>>,
    cohorts: Cohorts,
    /// The place served last, so that cohorts take turns.
    served: Ordinal,
    /// Numbers every membership of a cohort, so that a void one is recognised even when its place is reused.
    ticket: u32,
    /// Consumers that reached their dispatch rate, each once.
    throttled: Vec<u32>,
    /// True if a resume of the throttled consumers is scheduled.
    is_resumed_later: bool,
}

impl Group {
    pub(super) fn new(connection: ConnectionId, feed: Rc<Feed>) -> Self {
        Self {
            connection,
            feed,
            bell: Bell::default(),
            state: RefCell::default(),
        }
    }

    /// Takes a place in its connection's turns of writing: from now on it announces itself in `due` when it may have
    /// something to deliver, beginning now.
    pub fn enlist(&self, due: &Rc<DueGroups>, place: u32) {
        if self.bell.connect(due, place) {
            self.bell.ring();
        }
    }

    /// True if it is registered for its connection's turns.
    #[must_use]
    pub fn is_enlisted(&self) -> bool {
        self.bell.is_connected()
    }

    /// As [`fill`](Self::fill), for a group whose place was just taken off the connection's list. One that filled the
    /// sink is put back at the end, so that the topics of a connection take turns.
    pub fn take_turn(&self, sink: &mut dyn DeliverySink) -> Filled {
        self.bell.rest();
        let filled = self.fill(sink);
        if filled == Filled::Full {
            self.bell.ring();
        }
        filled
    }

    /// Something may be due: entries, permits, a stream consumer, another place to read at.
    pub(super) fn ring(&self) {
        self.bell.ring();
    }

    /// The topic as this shard sees it.
    #[must_use]
    pub fn feed(&self) -> &Rc<Feed> {
        &self.feed
    }

    /// Returns the number of stream consumers.
    #[must_use]
    pub fn len(&self) -> usize {
        self.state.borrow().count
    }

    /// True if there are no stream consumers.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes a stream consumer in and returns its index here.
    pub(super) fn add(&self, consumer: StreamConsumer) -> u32 {
        let mut state = self.state.borrow_mut();
        state.count += 1;
        let index = match state.free.pop() {
            Some(index) => index,
            None => {
                state.consumers.push(None);
                u32::try_from(state.consumers.len() - 1).unwrap_or(u32::MAX)
            }
        };
        let parked = consumer.permits <= 0;
        let key = consumer.key;
        if let Some(place) = state.consumers.get_mut(index as usize) {
            *place = Some(consumer);
        }
        state.note_place(key, index);
        if !parked {
            state.enqueue(index);
        }
        self.ring();
        index
    }

    /// Lets a stream consumer go and returns it.
    pub(super) fn remove(&self, index: u32) -> Option<StreamConsumer> {
        let mut state = self.state.borrow_mut();
        let consumer = state.consumers.get_mut(index as usize)?.take()?;
        if let Some(by_key) = &mut state.by_key {
            by_key.remove(&consumer.key);
        }
        state.count -= 1;
        state.free.push(index);
        if state.count == 0 {
            *state = State::default();
            // So that the connection sees that it can go.
            self.ring();
        }
        Some(consumer)
    }

    /// Changes a stream consumer; `None` when it is gone.
    pub(super) fn with<R>(&self, index: u32, change: impl FnOnce(&mut StreamConsumer) -> R) -> Option<R> {
        self.state
            .borrow_mut()
            .consumers
            .get_mut(index as usize)?
            .as_mut()
            .map(change)
    }

    /// Looks at every stream consumer.
    pub fn for_each(&self, mut look: impl FnMut(&StreamConsumer)) {
        let state = self.state.borrow();
        walk(state.consumers.iter().flatten()).for_each(&mut look);
    }

    /// Returns the index of a consumer.
    pub(super) fn index_of(&self, key: ConsumerKey) -> Option<u32> {
        let state = self.state.borrow();
        if let Some(by_key) = &state.by_key {
            step();
            return by_key.get(&key).copied();
        }
        let index = walk(state.consumers.iter())
            .position(|place| place.as_ref().is_some_and(|consumer| consumer.key == key))?;
        u32::try_from(index).ok()
    }

    /// Gives a stream consumer more permits. Returns whether it may now be due a message.
    pub(super) fn add_permits(&self, index: u32, permits: u32) -> bool {
        let mut state = self.state.borrow_mut();
        let Some(Some(consumer)) = state.consumers.get_mut(index as usize) else {
            return false;
        };
        consumer.permits = consumer.permits.saturating_add(i64::from(permits));
        consumer.flow_at_s = u32::try_from(clock::wall_ms() / 1000).unwrap_or(u32::MAX);
        if consumer.permits <= 0 || consumer.queued {
            return false;
        }
        state.enqueue(index);
        self.ring();
        true
    }

    /// Entries from `first` on that were dealt to a stream consumer were not written after all, and will be dealt again.
    fn take_back(&self, index: u32, first: Ordinal, messages: u64) {
        let next = self.with(index, |consumer| {
            consumer.permits = consumer.permits.saturating_add_unsigned(messages);
            consumer.next
        });
        if let Some(next) = next {
            self.rewind(index, first.min(next), None);
        }
    }

    /// Moves a stream consumer to another place; what it had in flight is void.
    pub(super) fn rewind(&self, index: u32, to: Ordinal, epoch: Option<u64>) {
        let mut state = self.state.borrow_mut();
        let Some(Some(consumer)) = state.consumers.get_mut(index as usize) else {
            return;
        };
        consumer.next = to;
        if epoch.is_some() {
            consumer.epoch = epoch;
        }
        consumer.queued = false;
        if consumer.permits > 0 {
            state.enqueue(index);
            self.ring();
        }
    }

    /// Entries from `place` on are at hand, or will never be: `resume` is the first that exists.
    pub(super) fn on_read(&self, place: Ordinal, resume: Ordinal) {
        self.ring();
        let mut state = self.state.borrow_mut();
        if resume <= place {
            if let Some(cohort) = state.cohorts.get_mut(place) {
                cohort.waiting = false;
            }
            return;
        }
        // What lay between was trimmed: everyone here goes on at the next entry that exists.
        let Some(mut cohort) = state.cohorts.take(place) else {
            return;
        };
        let mut passed = Vec::new();
        while let Some(member) = cohort.next() {
            if state.valid(member) {
                if let Some(Some(consumer)) = state.consumers.get_mut(member.index as usize) {
                    if self.feed.is_compacted() {
                        passed.push((member.index, consumer.next));
                    }
                    consumer.next = resume;
                }
                state.enqueue(member.index);
            }
        }
        state.cohorts.recycle(cohort);
        drop(state);
        self.feed.pass(self.connection, &passed, resume);
    }

    /// Deals what is due until the sink is full or nothing is due that is at hand.
    pub fn fill(&self, sink: &mut dyn DeliverySink) -> Filled {
        loop {
            if !sink.has_room() {
                return Filled::Full;
            }
            let due = self.state.borrow_mut().take_due(&self.feed, self.connection);
            if self.feed.has_due() {
                self.feed.begin_due();
            }
            let Some((entry, cohort)) = due else {
                return Filled::Drained;
            };
            if self.deal(&entry, cohort, sink) == Filled::Full {
                return Filled::Full;
            }
        }
    }

    /// Deals one entry to one cohort.
    fn deal(&self, entry: &Arc<FeedEntry>, mut cohort: Cohort, sink: &mut dyn DeliverySink) -> Filled {
        let mut state = self.state.borrow_mut();
        let ordinal = entry.ordinal;
        state.served = ordinal;
        let ready = Moment::at(self.feed.on_prepared(entry));
        self.feed.note_batch(entry.facts.message_count);
        if !entry.facts.is_marker {
            sink.begin(entry, self.feed.partition);
        }
        let (mut soonest, mut filled) = (None, Filled::Drained);
        let (mut gone, mut passed) = (Vec::new(), Vec::new());
        while cohort.has_next() {
            if !sink.has_room() {
                filled = Filled::Full;
                break;
            }
            let Some(member) = cohort.next() else { break };
            if !state.valid(member) {
                continue;
            }
            let Some(Some(consumer)) = state.consumers.get_mut(member.index as usize) else {
                continue;
            };
            if consumer.next < ordinal {
                // In a compacted view: what lay between is gone.
                gone.push((member.index, consumer.next));
            }
            if entry.facts.is_marker {
                passed.extend((!consumer.acks.is_acked(ordinal)).then_some((member.index, ordinal)));
            } else if consumer.wants(ordinal) {
                if consumer.permits <= 0 {
                    consumer.queued = false;
                    continue;
                }
                if !consumer.rate.is_off()
                    && let Some(wait) = consumer.rate.wait(clock::now())
                {
                    consumer.queued = false;
                    let is_new = !std::mem::replace(&mut consumer.is_throttled, true);
                    if is_new {
                        state.throttled.push(member.index);
                    }
                    soonest = Some(soonest.map_or(wait, |other: Duration| other.min(wait)));
                    continue;
                }
                send(consumer, entry, ready, sink);
            }
            consumer.next = ordinal.next();
            state.enqueue(member.index);
        }
        match filled {
            Filled::Full => state.cohorts.put_back(ordinal, cohort),
            Filled::Drained => state.cohorts.recycle(cohort),
        }
        if let Some(delay) = soonest.filter(|_| !state.is_resumed_later) {
            state.is_resumed_later = true;
            self.feed
                .host
                .resume_later(self.feed.topic, self.connection, delay);
        }
        drop(state);
        self.feed.pass(self.connection, &gone, ordinal);
        self.feed.pass(self.connection, &passed, ordinal.next());
        filled
    }

    /// Returns the throttled consumers to their cohorts.
    pub(super) fn resume(&self) {
        let mut state = self.state.borrow_mut();
        state.is_resumed_later = false;
        for index in std::mem::take(&mut state.throttled) {
            let Some(Some(consumer)) = state.consumers.get_mut(index as usize) else {
                continue;
            };
            consumer.is_throttled = false;
            if !consumer.queued && consumer.permits > 0 {
                state.enqueue(index);
            }
        }
        self.ring();
    }
}

/// Hands one entry to one stream consumer and counts it.
fn send(consumer: &mut StreamConsumer, entry: &Arc<FeedEntry>, ready: Moment, sink: &mut dyn DeliverySink) {
    let to = Recipient {
        consumer_id: consumer.consumer_id,
        redelivery_count: 0,
        epoch: consumer.epoch,
    };
    let count = entry.facts.message_count;
    let remaining = consumer.acks.remaining_batch(entry.ordinal).unwrap_or_default();
    let cost = if remaining.is_empty() {
        count
    } else {
        remaining.iter().map(|word| word.count_ones()).sum()
    };
    sink.message(to, remaining);
    consumer.permits -= i64::from(cost);
    let activity = &mut consumer.activity;
    activity.sent.add(Sent {
        messages: u64::from(cost),
        bytes: entry.payload.len() as u64,
    });
    activity.entries += 1;
    activity.sent_at = ready;
    consumer.rate.take(u64::from(cost), entry.payload.len() as u64);
}

impl State {
    /// Notes where a newcomer sits, if there are many.
    fn note_place(&mut self, key: ConsumerKey, index: u32) {
        if let Some(by_key) = &mut self.by_key {
            by_key.insert(key, index);
        } else if self.count > LOOKED_THROUGH_MAX {
            let places = (0..).zip(&self.consumers);
            let places = places.filter_map(|(index, place)| Some((place.as_ref()?.key, index)));
            self.by_key = Some(Box::new(places.collect()));
        }
    }

    fn valid(&self, member: Member) -> bool {
        matches!(self.consumers.get(member.index as usize),
            Some(Some(consumer)) if consumer.queued && consumer.ticket == member.ticket)
    }

    /// Stands a stream consumer into the cohort of its next entry.
    fn enqueue(&mut self, index: u32) {
        let Some(Some(consumer)) = self.consumers.get_mut(index as usize) else {
            return;
        };
        self.ticket = self.ticket.wrapping_add(1);
        consumer.ticket = self.ticket;
        consumer.queued = true;
        let member = Member {
            index,
            ticket: consumer.ticket,
        };
        self.cohorts.join(consumer.next, member);
    }

    /// The next cohort, in turn, whose entry is at hand; asks for reads of those whose entry is not.
    fn take_due(&mut self, feed: &Rc<Feed>, connection: ConnectionId) -> Option<(Arc<FeedEntry>, Cohort)> {
        let mut due = None;
        let mut asks = Vec::new();
        for (place, cohort) in self.cohorts.in_turn(self.served) {
            if cohort.waiting {
                continue;
            }
            match feed.find(place) {
                Found::Entry(entry) => {
                    due = Some((entry, place));
                    break;
                }
                Found::AtTail => {}
                Found::Elsewhere => asks.push(place),
            }
        }
        for place in asks {
            if let Some(cohort) = self.cohorts.get_mut(place) {
                cohort.waiting = true;
                feed.ask(place, connection);
            }
        }
        let (entry, place) = due?;
        let cohort = self.cohorts.take(place)?;
        Some((entry, cohort))
    }
}

/// A stream consumer in its group: what a connection keeps per consumer.
pub struct ConsumerHandle {
    group: Rc<Group>,
    index: u32,
}

impl ConsumerHandle {
    pub(super) fn new(group: Rc<Group>, index: u32) -> Self {
        Self { group, index }
    }

    /// The group.
    #[must_use]
    pub fn group(&self) -> &Rc<Group> {
        &self.group
    }

    /// More permits. Returns whether the connection should be pumped.
    pub fn flow(&self, permits: u32) -> bool {
        self.group.add_permits(self.index, permits)
    }

    /// Acknowledgements. Returns how many were ignored because they name more messages than any batch delivered here has.
    pub fn ack(
        &self,
        acks: &mut dyn Iterator<Item = super::Ack<'_>>,
        cumulative: bool,
        now: pharos_runtime::Nanos,
    ) -> usize {
        self.group
            .feed
            .ack(&self.group, self.index, acks, cumulative, now)
    }

    /// Delivers again from the first entry that is not acknowledged.
    pub fn redeliver(&self, epoch: Option<u64>) {
        let first = self.group.with(self.index, |consumer| {
            consumer.activity.redelivered += consumer.acks.backlog(consumer.next);
            consumer.acks.acked_to()
        });
        if let Some(first) = first {
            self.group.rewind(self.index, first, epoch);
        }
    }

    /// Sets the epoch to stamp on its messages, as its connection knows it.
    pub fn set_epoch(&self, epoch: Option<u64>) {
        self.group.with(self.index, |consumer| consumer.epoch = epoch);
    }

    /// Entries from `first` on, of so many messages, were dealt and not written: they are dealt again, in their order.
    pub fn take_back(&self, first: Ordinal, messages: u64) {
        self.group.take_back(self.index, first, messages);
    }

    /// Looks at the stream consumer.
    pub fn with<R>(&self, look: impl FnOnce(&StreamConsumer) -> R) -> Option<R> {
        self.group.with(self.index, |consumer| look(consumer))
    }

    /// Leaves the group and gives the cursor back.
    #[must_use]
    pub fn leave(self) -> Option<CursorHandoff> {
        self.group.feed.leave(&self.group, self.index)
    }

    /// Marks everything before `to` as acknowledged and goes on there.
    pub fn skip_to(&self, to: Ordinal) {
        self.group.feed.skip_to(&self.group, self.index, to);
    }
}
