//! The durable places of a topic: which numbers are in use, by whom, and what was last heard of each.

use pharos_managed_ledger::cursor::AckState;
use pharos_types::Ordinal;

use super::Moment;
use crate::ids::SlotId;

/// State of one slot.
pub struct Slot {
    /// Last reported acknowledgements; the stream consumer may be further, never behind.
    pub acks: AckState,
    /// True if it is in the cursor log; false if it lives only as long as its consumer.
    pub logged: bool,
    /// Its consumer lost it: kept so that the name is known, but not counted for trimming.
    pub dropped: bool,
    /// Time of the last reported move of its mark-delete position, for stats.
    pub advanced: Moment,
}

impl Slot {
    /// Everything before it is acknowledged.
    #[must_use]
    pub fn acked_to(&self) -> Ordinal {
        self.acks.acked_to()
    }
}

/// The places of a topic, by number.
#[derive(Default)]
pub struct Slots {
    slots: Vec<Option<Slot>>,
    free: Vec<u32>,
}

impl Slots {
    /// Restores many, without walking the free list for each.
    pub fn restore_all(&mut self, slots: impl IntoIterator<Item = (SlotId, Slot)>) {
        for (id, slot) in slots {
            let index = id.0 as usize;
            if self.slots.len() <= index {
                self.slots.resize_with(index + 1, || None);
            }
            if let Some(place) = self.slots.get_mut(index) {
                *place = Some(slot);
            }
        }
        let count = u32::try_from(self.slots.len()).unwrap_or(u32::MAX);
        self.free = (0..count)
            .rev()
            .filter(|index| self.get(SlotId(*index)).is_none())
            .collect();
    }

    /// Takes a place.
    pub fn add(&mut self, slot: Slot) -> SlotId {
        if let Some(index) = self.free.pop() {
            if let Some(place) = self.slots.get_mut(index as usize) {
                *place = Some(slot);
            }
            return SlotId(index);
        }
        self.slots.push(Some(slot));
        SlotId(u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX))
    }

    /// Gives a place back.
    pub fn remove(&mut self, id: SlotId) -> Option<Slot> {
        let slot = self.slots.get_mut(id.0 as usize)?.take()?;
        self.free.push(id.0);
        Some(slot)
    }

    /// Returns the state of a slot.
    #[must_use]
    pub fn get(&self, id: SlotId) -> Option<&Slot> {
        self.slots.get(id.0 as usize)?.as_ref()
    }

    /// Returns the state of a slot, mutably.
    pub fn get_mut(&mut self, id: SlotId) -> Option<&mut Slot> {
        self.slots.get_mut(id.0 as usize)?.as_mut()
    }
}
