//! The consumers of a subscription: permits, unacknowledged messages, unwritten bytes.
//!
//! A consumer is *available* when it has permits, is not blocked by unacknowledged messages, and has room in its window. The
//! sums over available consumers are kept up to date with every change, so that sizing a read does not walk them.
//!
//! Always true: the sums equal what a walk over the consumers would give; all changes go through [`Consumers::update`].

use std::collections::HashMap;

use pharos_types::steps::walk;

use super::types::{ConsumerKey, ConsumerSpec};

/// Index of a consumer; small, dense, used again after the consumer has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Slot(pub(super) u32);

impl Slot {
    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}

/// Attached consumer.
#[derive(Debug)]
pub(super) struct Consumer {
    pub(super) key: ConsumerKey,
    /// 0 is served first.
    pub(super) priority_level: i32,
    /// Most bytes handed out and not written.
    pub(super) window_bytes: u64,
    /// Messages it will still take; the last batch may take it below 0.
    pub(super) permits: i64,
    /// Permits that came while it was blocked; they count when it is free again.
    pub(super) permits_parked: i64,
    /// Messages delivered and not acknowledged.
    pub(super) unacked: u64,
    /// True if it reached the limit of unacknowledged messages.
    pub(super) blocked: bool,
    /// Bytes handed out and not written.
    pub(super) bytes_unwritten: u64,
    /// Its contribution to the sums.
    offer: Offer,
}

/// Capacity of an available consumer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Offer {
    permits: i64,
    bytes: u64,
}

impl Consumer {
    pub(super) fn is_available(&self) -> bool {
        self.permits > 0 && !self.blocked && self.bytes_unwritten < self.window_bytes
    }

    /// Lets a blocked consumer go on.
    pub(super) fn unblock(&mut self) {
        self.blocked = false;
        self.permits = self
            .permits
            .saturating_add(std::mem::take(&mut self.permits_parked));
    }

    fn offer(&self) -> Offer {
        if !self.is_available() {
            return Offer::default();
        }
        Offer {
            permits: self.permits.min(PERMITS_COUNTED_MAX),
            bytes: (self.window_bytes - self.bytes_unwritten).min(BYTES_COUNTED_MAX),
        }
    }
}

/// Bounds on what one consumer adds to the sums, so that they cannot overflow; far above any read.
const PERMITS_COUNTED_MAX: i64 = 1 << 31;
const BYTES_COUNTED_MAX: u64 = 1 << 31;

/// All consumers of a subscription.
#[derive(Debug, Default)]
pub(super) struct Consumers {
    slots: Vec<Option<Consumer>>,
    free: Vec<Slot>,
    by_key: HashMap<ConsumerKey, Slot>,
    available: usize,
    /// Sum over available consumers.
    offered: Offer,
}

impl Consumers {
    pub(super) fn len(&self) -> usize {
        self.by_key.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    pub(super) fn slot(&self, key: ConsumerKey) -> Option<Slot> {
        self.by_key.get(&key).copied()
    }

    pub(super) fn get(&self, slot: Slot) -> Option<&Consumer> {
        self.slots.get(slot.index())?.as_ref()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Slot, &Consumer)> {
        walk((0..).map(Slot).zip(&self.slots)).filter_map(|(slot, consumer)| Some((slot, consumer.as_ref()?)))
    }

    /// The slot the next [`insert`](Self::insert) will take.
    pub(super) fn next_slot(&self) -> Slot {
        self.free.last().copied().unwrap_or(Slot(self.slots.len() as u32))
    }

    /// Adds a consumer whose key is not in use.
    pub(super) fn insert(&mut self, key: ConsumerKey, spec: &ConsumerSpec) -> Slot {
        let consumer = Consumer {
            key,
            priority_level: spec.priority_level,
            window_bytes: spec.window_bytes.max(1),
            permits: 0,
            permits_parked: 0,
            unacked: 0,
            blocked: false,
            bytes_unwritten: 0,
            offer: Offer::default(),
        };
        let slot = self.next_slot();
        if self.free.pop().is_some() {
            self.slots[slot.index()] = Some(consumer);
        } else {
            self.slots.push(Some(consumer));
        }
        self.by_key.insert(key, slot);
        slot
    }

    pub(super) fn remove(&mut self, slot: Slot) -> Option<Consumer> {
        let consumer = self.slots.get_mut(slot.index())?.take()?;
        self.withdraw(consumer.offer);
        self.by_key.remove(&consumer.key);
        self.free.push(slot);
        Some(consumer)
    }

    /// Changes a consumer. Whether it is available now.
    pub(super) fn update(&mut self, slot: Slot, change: impl FnOnce(&mut Consumer)) -> bool {
        let Some(Some(consumer)) = self.slots.get_mut(slot.index()) else {
            return false;
        };
        change(consumer);
        let (old, new) = (consumer.offer, consumer.offer());
        if old != new {
            consumer.offer = new;
            self.withdraw(old);
            if new != Offer::default() {
                self.available += 1;
                self.offered.permits += new.permits;
                self.offered.bytes += new.bytes;
            }
        }
        new != Offer::default()
    }

    pub(super) fn is_available(&self, slot: Slot) -> bool {
        self.get(slot).is_some_and(Consumer::is_available)
    }

    pub(super) fn any_available(&self) -> bool {
        self.available > 0
    }

    /// Messages the available consumers would take together.
    pub(super) fn permits_offered(&self) -> u64 {
        self.offered.permits.unsigned_abs()
    }

    /// Bytes the available consumers would take together.
    pub(super) fn bytes_offered(&self) -> u64 {
        self.offered.bytes
    }

    fn withdraw(&mut self, offer: Offer) {
        if offer != Offer::default() {
            self.available -= 1;
            self.offered.permits -= offer.permits;
            self.offered.bytes -= offer.bytes;
        }
    }
}
