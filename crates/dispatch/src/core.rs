//! The dispatcher itself: its parts, and its consumers coming and going.

use pharos_managed_ledger::cursor::AckState;
use pharos_types::Ordinal;

use super::chunks::ChunkPins;
use super::consumers::{Consumer, Consumers, Slot};
use super::delayed::Delayed;
use super::key_shared::KeyShared;
use super::largest_batch::LargestBatch;
use super::ordinal_map::OrdinalMap;
use super::pending::{PendingAcks, PendingEntry};
use super::replay::{Group, Replay, ReplayPlace};
use super::round_robin::RoundRobin;
use super::types::{
    AddConsumerError, ConsumerKey, ConsumerSpec, DelayOptions, EntryRef, HashRange, Limits, Options,
};
use super::withheld::Withheld;

/// Deals the entries of one subscription to its consumers. See the module for how it is driven.
///
/// ```
/// use pharos_dispatch::*;
/// use pharos_types::Ordinal;
///
/// let mut dispatcher = Dispatcher::shared(AckState::default(), Options::default(), Limits::default());
/// let (key, tail_end, now_ms) = (ConsumerKey(1), Ordinal(1), 0);
/// let spec = ConsumerSpec { name: "a".into(), priority_level: 0, key_shared: None, window_bytes: 1 << 20 };
/// dispatcher.add_consumer(key, spec)?;
/// dispatcher.flow(key, 1000);
/// assert!(matches!(dispatcher.next(now_ms, tail_end), Next::Read { from: Ordinal(0), .. }));
///
/// let entry = EntryRef {
///     ordinal: Ordinal(0), message_count: 1, bytes: 300, key_hash: 0, deliver_at: None, chunk: None, is_marker: false,
/// };
/// let mut deliveries = Vec::new();
/// dispatcher.on_entries(now_ms, &[entry], &mut deliveries);
/// assert_eq!(deliveries[0].consumer, key);
/// dispatcher.written(key, 300);
/// assert!(dispatcher.ack(Ordinal(0)).outcome.advanced());
/// # Ok::<(), AddConsumerError>(())
/// ```
#[derive(Debug)]
pub struct Dispatcher {
    pub(super) options: Options,
    pub(super) limits: Limits,
    pub(super) mode: Mode,
    pub(super) consumers: Consumers,
    /// Acknowledgement state: the part that outlives this object.
    pub(super) acks: AckState,
    pub(super) pending: PendingAcks,
    pub(super) replay: Replay,
    pub(super) delayed: Delayed,
    /// Entries withheld until they are released or acknowledged; in no other collection.
    pub(super) withheld: Withheld,
    /// Redelivery count of each message; only of messages whose redelivery was requested, until they are
    /// acknowledged.
    pub(super) redeliveries: OrdinalMap<u32>,
    /// The next entry to read, if it is not acknowledged.
    pub(super) read_position: u64,
    /// Entries from here on have never been read, so they are in no other place.
    pub(super) fresh_from: u64,
    /// The read the topic has been asked for and has not answered.
    pub(super) reading: Option<Reading>,
    /// Consumer at which the next replay begins, so that each has its turn.
    pub(super) replay_turn: Slot,
    /// Messages delivered and not acknowledged, over all consumers.
    pub(super) unacked: u64,
    /// The subscription reached its limit of unacknowledged messages.
    pub(super) is_blocked: bool,
    /// Average messages of an entry, to turn permits into entries.
    pub(super) messages_per_entry: f64,
    /// Largest batch of the entries dispatched.
    pub(super) largest_batch: LargestBatch,
}

/// State that differs between the subscription types.
#[derive(Debug)]
pub(super) enum Mode {
    Shared { turns: RoundRobin, chunks: ChunkPins },
    KeyShared(KeyShared),
}

/// A read under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// Entries from the read position.
    New,
    /// Entries in replay.
    Replay,
    /// Asked for before everything was reset; its entries are of no use.
    Stale,
}

impl Dispatcher {
    /// A dispatcher of a Shared subscription that has acknowledged `acks`.
    #[must_use]
    pub fn shared(acks: AckState, options: Options, limits: Limits) -> Self {
        let turns = RoundRobin::new(options.round_robin_messages_max);
        let chunks = ChunkPins::default();
        Self::new(Mode::Shared { turns, chunks }, acks, options, limits)
    }

    /// A dispatcher of a Key_Shared subscription that has acknowledged `acks`.
    #[must_use]
    pub fn key_shared(acks: AckState, options: Options, limits: Limits) -> Self {
        let mode = Mode::KeyShared(KeyShared::new(options.key_shared));
        Self::new(mode, acks, options, limits)
    }

    fn new(mode: Mode, acks: AckState, options: Options, limits: Limits) -> Self {
        Self {
            options,
            limits,
            mode,
            consumers: Consumers::default(),
            pending: PendingAcks::new(),
            replay: Replay::default(),
            delayed: Delayed::new(options.delay),
            withheld: Withheld::default(),
            redeliveries: OrdinalMap::default(),
            read_position: acks.acked_to().0,
            fresh_from: acks.acked_to().0,
            reading: None,
            replay_turn: Slot(0),
            unacked: 0,
            is_blocked: false,
            messages_per_entry: 1.0,
            largest_batch: LargestBatch::default(),
            acks,
        }
    }

    /// Returns the acknowledgement state, for persisting and for counting the backlog.
    #[must_use]
    pub fn acks(&self) -> &AckState {
        &self.acks
    }

    /// True if no consumer is attached.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.consumers.is_empty()
    }

    /// A consumer joins, with no permits yet.
    ///
    /// # Errors
    /// `ModeMismatch`, `OrderMismatch`: answer `ConsumerBusy`. `Assign`: answer `ConsumerAssignError`. `DuplicateKey` is a bug of
    /// the caller. After an error nothing has changed.
    pub fn add_consumer(&mut self, key: ConsumerKey, spec: ConsumerSpec) -> Result<(), AddConsumerError> {
        if self.consumers.slot(key).is_some() {
            return Err(AddConsumerError::DuplicateKey(key));
        }
        if let Mode::KeyShared(keys) = &mut self.mode {
            keys.add(self.consumers.next_slot(), &spec)?;
        }
        let slot = self.consumers.insert(key, &spec);
        if let Mode::KeyShared(keys) = &self.mode {
            let gained = keys.ranges_of(slot);
            self.reassign(self.groups_in(&gained));
        }
        Ok(())
    }

    /// A consumer leaves. What was pending at it is delivered to others, before anything new; that is no redelivery, so the
    /// counts stay. When the last one leaves, delivery will begin again at the first unacknowledged entry.
    ///
    /// Returns whether it was there.
    pub fn remove_consumer(&mut self, key: ConsumerKey) -> bool {
        let Some(slot) = self.consumers.slot(key) else {
            return false;
        };
        let Some(consumer) = self.consumers.remove(slot) else {
            return false;
        };
        let mut moving: Vec<Group> = self.replay.groups_at(slot).into_iter().collect();
        match &mut self.mode {
            Mode::Shared { turns, chunks } => {
                turns.remove(slot, consumer.priority_level);
                chunks.drop_consumer(slot);
            }
            Mode::KeyShared(keys) => {
                let lost = keys.ranges_of(slot);
                keys.remove(slot);
                moving.extend(self.groups_in(&lost));
            }
        }
        if self.consumers.is_empty() {
            self.rewind();
            if let Mode::KeyShared(keys) = &mut self.mode {
                keys.clear();
            }
            return true;
        }
        self.reassign(moving);
        while let Some((ordinal, entry)) = self.pending.pop_of(slot) {
            self.on_released(&entry);
            self.put_in_replay(ordinal, entry.group);
        }
        self.unblock_subscription();
        true
    }

    /// The consumer will take `permits` more messages. Unknown consumers are ignored.
    pub fn flow(&mut self, key: ConsumerKey, permits: u32) {
        self.update(key, |consumer| {
            let to = match consumer.blocked {
                true => &mut consumer.permits_parked,
                false => &mut consumer.permits,
            };
            *to = to.saturating_add(i64::from(permits));
        });
    }

    /// `bytes` that were handed to the consumer have gone to its socket. Unknown consumers are ignored.
    pub fn written(&mut self, key: ConsumerKey, bytes: u64) {
        self.update(key, |consumer| {
            consumer.bytes_unwritten = consumer.bytes_unwritten.saturating_sub(bytes);
        });
    }

    /// Changes the limits; consumers that are below the new ones go on.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
        let slots: Vec<Slot> = self.consumers.iter().map(|(slot, _)| slot).collect();
        for slot in slots {
            self.release_from(slot, 0);
        }
        self.unblock_subscription();
    }

    /// Changes how messages are delayed. Those that wait are looked at anew: without options they are all due.
    pub fn set_delay(&mut self, delay: Option<DelayOptions>) {
        self.options.delay = delay;
        self.delayed.set_options(delay);
    }

    /// Forgets all but what is acknowledged, so that everything else is read and delivered again.
    pub(super) fn rewind(&mut self) {
        self.pending.clear();
        self.replay.clear();
        self.delayed.clear();
        match &mut self.mode {
            Mode::Shared { chunks, .. } => chunks.clear(),
            Mode::KeyShared(keys) => keys.clear_holders(),
        }
        self.unacked = 0;
        self.is_blocked = false;
        let slots: Vec<Slot> = self.consumers.iter().map(|(slot, _)| slot).collect();
        for slot in slots {
            let unacked = self.consumers.get(slot).map_or(0, |consumer| consumer.unacked);
            self.release_from(slot, unacked);
        }
        self.read_position = self.acks.acked_to().0;
        self.fresh_from = self.read_position;
        if self.reading.is_some() {
            self.reading = Some(Reading::Stale);
        }
    }

    /// Changes a consumer, and gives it its turn if it is available then.
    fn update(&mut self, key: ConsumerKey, change: impl FnOnce(&mut Consumer)) {
        if let Some(slot) = self.consumers.slot(key) {
            self.update_slot(slot, change);
        }
    }

    pub(super) fn update_slot(&mut self, slot: Slot, change: impl FnOnce(&mut Consumer)) {
        let is_available = self.consumers.update(slot, change);
        if is_available
            && let Mode::Shared { turns, .. } = &mut self.mode
            && let Some(consumer) = self.consumers.get(slot)
        {
            turns.offer(slot, consumer.priority_level);
        }
    }

    /// Takes `messages` off what a consumer has not acknowledged, and lets it go on when that is at most half of the limit.
    pub(super) fn release_from(&mut self, slot: Slot, messages: u64) {
        let limit = u64::from(self.limits.unacked_per_consumer_max);
        self.update_slot(slot, |consumer| {
            consumer.unacked = consumer.unacked.saturating_sub(messages);
            if consumer.blocked && (limit == 0 || consumer.unacked <= limit / 2) {
                consumer.unblock();
            }
        });
    }

    /// Lets new reads go on when what is unacknowledged is below half of the limit.
    pub(super) fn unblock_subscription(&mut self) {
        let limit = u64::from(self.limits.unacked_per_subscription_max);
        if limit == 0 || self.unacked < limit / 2 || self.unacked == 0 {
            self.is_blocked = false;
        }
    }

    /// Takes an entry out of pending and off its owner's counters.
    pub(super) fn release(&mut self, ordinal: u64) -> Option<PendingEntry> {
        let entry = self.pending.remove(ordinal)?;
        self.release_from(entry.owner, u64::from(entry.messages));
        self.on_released(&entry);
        self.unblock_subscription();
        Some(entry)
    }

    /// An entry stopped being pending: the subscription's counters, and the key that may have drained.
    fn on_released(&mut self, entry: &PendingEntry) {
        self.unacked -= u64::from(entry.messages);
        if let Mode::KeyShared(keys) = &mut self.mode
            && let Some(group) = entry.group
            && keys.on_released(group)
            && self.replay.first_of(group).is_some()
        {
            let place = keys.place(group);
            self.replay.move_group(group, place);
        }
    }

    /// Puts an entry, which is nowhere else, in replay.
    pub(super) fn put_in_replay(&mut self, ordinal: u64, group: Option<Group>) {
        let place = self.place(group);
        self.replay.insert(ordinal, group, place);
    }

    /// Moves groups in replay to where they belong after a consumer has come or gone.
    fn reassign(&mut self, groups: Vec<Group>) {
        for group in groups {
            let place = place_in(&self.mode, Some(group));
            self.replay.move_group(group, place);
        }
    }

    /// The groups in replay whose hash is in one of these ranges.
    fn groups_in(&self, ranges: &[HashRange]) -> Vec<Group> {
        let within = |range: &HashRange| {
            let (first, last) = (Group(u64::from(range.start)), Group(u64::from(range.end)));
            self.replay.groups_within(first, last)
        };
        ranges.iter().flat_map(within).collect()
    }

    /// Returns the group that an entry must stay together with.
    pub(super) fn group(&self, entry: &EntryRef) -> Option<Group> {
        match &self.mode {
            Mode::Shared { .. } => entry.chunk.map(|chunk| Group(chunk.uuid_hash)),
            Mode::KeyShared(keys) => Some(keys.group(entry.key_hash)),
        }
    }

    /// Returns the consumers that may get entries of a group now.
    pub(super) fn place(&self, group: Option<Group>) -> ReplayPlace {
        place_in(&self.mode, group)
    }

    /// Returns the position before which everything is acknowledged.
    #[must_use]
    pub fn acked_to(&self) -> Ordinal {
        self.acks.acked_to()
    }
}

fn place_in(mode: &Mode, group: Option<Group>) -> ReplayPlace {
    let Some(group) = group else {
        return ReplayPlace::Any;
    };
    match mode {
        Mode::Shared { chunks, .. } => chunks.get(group).map_or(ReplayPlace::Any, ReplayPlace::Consumer),
        Mode::KeyShared(keys) => keys.place(group),
    }
}
