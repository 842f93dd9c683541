//! Assignment of the pieces of a chunked message to a consumer (Shared subscriptions).
//!
//! The first piece delivered decides; the last one delivered ends it. A message whose end never arrives would be
//! remembered for ever, so the oldest are forgotten beyond a bound: their later pieces may then go elsewhere, where
//! the client gives up on the message and it is delivered again.

use std::collections::{BTreeSet, VecDeque};

use pharos_types::steps::walk;

use super::consumers::Slot;
use super::ordinal_map::OrdinalMap;
use super::replay::Group;

/// Most chunked messages under way in one subscription.
const PINS_MAX: usize = 10_000;

/// The chunked messages under way and who gets them.
#[derive(Debug, Default)]
pub(super) struct ChunkPins {
    pins: OrdinalMap<Pin>,
    /// The messages of each consumer.
    by_slot: BTreeSet<(Slot, Group)>,
    /// Oldest first; may hold pins that are gone, told apart by their number.
    order: VecDeque<(Group, u64)>,
    /// Number of the next pin.
    next: u64,
}

#[derive(Clone, Copy, Debug)]
struct Pin {
    slot: Slot,
    number: u64,
}

impl ChunkPins {
    pub(super) fn get(&self, message: Group) -> Option<Slot> {
        Some(self.pins.get(&message.0)?.slot)
    }

    /// All pieces of this message go to `slot` from now on.
    pub(super) fn pin(&mut self, message: Group, slot: Slot) {
        if self.get(message) == Some(slot) {
            return;
        }
        let number = self.next;
        self.next += 1;
        self.forget(message);
        self.pins.insert(message.0, Pin { slot, number });
        self.by_slot.insert((slot, message));
        self.order.push_back((message, number));
        while self.pins.len() > PINS_MAX || self.order.len() > 2 * PINS_MAX {
            let Some((oldest, number)) = self.order.pop_front() else {
                break;
            };
            if self.pins.get(&oldest.0).is_some_and(|pin| pin.number == number) {
                self.forget(oldest);
            }
        }
    }

    pub(super) fn unpin(&mut self, message: Group) {
        self.forget(message);
        // The usual case is one message after the other; keep no trace of those.
        if self.pins.is_empty() {
            self.order.clear();
        }
    }

    /// Forgets a consumer that has left.
    pub(super) fn drop_consumer(&mut self, slot: Slot) {
        let own = self.by_slot.range((slot, Group(0))..=(slot, Group(u64::MAX)));
        let own: Vec<Group> = walk(own).map(|(_, message)| *message).collect();
        for message in own {
            self.forget(message);
        }
    }

    fn forget(&mut self, message: Group) {
        if let Some(pin) = self.pins.remove(&message.0) {
            self.by_slot.remove(&(pin.slot, message));
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}
