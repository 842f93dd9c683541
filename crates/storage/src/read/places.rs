//! Ends of a directory's reads, so that the reader continues there.
//!
//! A run has a point for one entry in every 128 KiB or so. To begin at such a point and walk to the wanted entry
//! takes the piece of log before it, which may have to be read again for nothing else.
//!
//! Always true: a returned position is the start of that entry's record; the number is bounded, and later ones
//! replace earlier ones.

use std::sync::PoisonError;

use pharos_runtime::sync::Mutex;
use pharos_types::LedgerId;

/// Places that are remembered: 128 KiB at most.
const PLACES: usize = 4096;

/// Start of an entry's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EntryStart {
    pub(crate) ledger: LedgerId,
    pub(crate) entry: u64,
    pub(crate) log: u32,
    pub(crate) at: u32,
}

/// The places of a directory. A place has one slot that it can be in, by its ledger and entry.
#[derive(Debug, Default)]
pub(crate) struct Places {
    /// Empty until the first is remembered.
    slots: Mutex<Vec<Option<EntryStart>>>,
}

impl Places {
    /// Remembers where a read that goes on will begin.
    pub(crate) fn put(&self, place: EntryStart) {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.resize(PLACES, None);
        if let Some(slot) = slots.get_mut(slot_of(place.ledger, place.entry)) {
            *slot = Some(place);
        }
    }

    /// Returns the start of an entry's record in this log, if it is remembered.
    pub(crate) fn get(&self, ledger: LedgerId, entry: u64, log: u32) -> Option<u32> {
        let slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let place = slots.get(slot_of(ledger, entry)).copied().flatten()?;
        let is_it = (place.ledger, place.entry, place.log) == (ledger, entry, log);
        is_it.then_some(place.at)
    }
}

fn slot_of(ledger: LedgerId, entry: u64) -> usize {
    // Neighbours are far from each other: any odd number of many bits does it.
    let mixed = (ledger.0.rotate_left(32) ^ entry).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 32) as usize % PLACES
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(ledger: u64, entry: u64) -> EntryStart {
        EntryStart {
            ledger: LedgerId(ledger),
            entry,
            log: 3,
            at: (ledger * 1000 + entry) as u32,
        }
    }

    #[test]
    fn most_of_what_was_put_last_is_remembered() {
        let places = Places::default();
        assert_eq!(places.get(LedgerId(1), 2, 3), None);
        for ledger in 0..100 {
            for entry in 0..100 {
                places.put(place(ledger, entry));
            }
        }
        assert_eq!(places.get(LedgerId(99), 99, 3), Some(99_099));
        assert_eq!(places.get(LedgerId(99), 99, 4), None);
        let known = |ledger: &u64| places.get(LedgerId(*ledger), 99, 3) == Some((ledger * 1000 + 99) as u32);
        assert!((50..100).filter(known).count() > 20);
        assert_eq!(places.slots.lock().unwrap().len(), PLACES);
    }
}
