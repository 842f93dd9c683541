//! The durable places of a topic: which numbers are in use, by whom, and what was last heard of each.

use pharos_managed_ledger::cursor::AckState;
use pharos_types::Ordinal;

use crate::feed::Moment;
use crate::ids::SlotId;

/// What is known of one place.
pub(crate) struct Slot {
    /// What was last heard; the stream consumer may be further, never behind.
    pub(crate) acks: AckState,
    /// Whether it is in the cursor log, or lives only as long as its consumer.
    pub(crate) logged: bool,
    /// Its consumer lost it: kept so that the name is known, but not counted for trimming.
    pub(crate) dropped: bool,
    /// When its mark-delete position was last heard to have moved, for stats.
    pub(crate) advanced: Moment,
}

impl Slot {
    pub(crate) fn acked_to(&self) -> Ordinal {
        self.acks.acked_to()
    }
}

/// The places of a topic, by number.
#[derive(Default)]
pub(crate) struct Slots {
    slots: Vec<Option<Slot>>,
    free: Vec<u32>,
}

impl Slots {
    /// Restores many, without walking the free list for each.
    pub(crate) fn restore_all(&mut self, slots: impl IntoIterator<Item = (SlotId, Slot)>) {
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

    pub(crate) fn add(&mut self, slot: Slot) -> SlotId {
        if let Some(index) = self.free.pop() {
            if let Some(place) = self.slots.get_mut(index as usize) {
                *place = Some(slot);
            }
            return SlotId(index);
        }
        self.slots.push(Some(slot));
        SlotId(u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX))
    }

    pub(crate) fn remove(&mut self, id: SlotId) -> Option<Slot> {
        let slot = self.slots.get_mut(id.0 as usize)?.take()?;
        self.free.push(id.0);
        Some(slot)
    }

    pub(crate) fn get(&self, id: SlotId) -> Option<&Slot> {
        self.slots.get(id.0 as usize)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, id: SlotId) -> Option<&mut Slot> {
        self.slots.get_mut(id.0 as usize)?.as_mut()
    }
}
