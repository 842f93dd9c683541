//! Mapping of key hashes to consumers.
//!
//! A *slot hash* here is a key's hash reduced to the range of the method: 1 to 65535 in all of them.

mod ranges;
mod ring;
mod sticky;

pub use ranges::HashRanges;

use std::sync::Arc;

use pharos_types::hash::{KEY_SLOTS, RING_SLOTS};

use super::consumers::Slot;
use super::types::{AddConsumerError, HashRange, KeySharedMode, KeySharedOptions};
use ranges::AutoSplitRanges;
use ring::Ring;
use sticky::Sticky;

/// The methods of assigning hashes to consumers.
#[derive(Debug)]
pub(super) enum Selector {
    /// Auto-split by consistent hashing.
    Ring(Ring),
    /// Auto-split by halving ranges.
    Ranges(AutoSplitRanges),
    /// The consumers said.
    Sticky(Sticky),
}

impl Selector {
    /// The method for consumers that ask for `mode`; no consumer is assigned anything yet.
    pub(super) fn new(mode: &KeySharedMode, options: &KeySharedOptions) -> Self {
        match mode {
            KeySharedMode::AutoSplit if options.consistent_hashing => {
                Self::Ring(Ring::new(options.ring_points))
            }
            KeySharedMode::AutoSplit => Self::Ranges(AutoSplitRanges::default()),
            KeySharedMode::Sticky(_) => Self::Sticky(Sticky::default()),
        }
    }

    /// The name of the mode, as the protocol has it.
    pub(super) fn mode_name(&self) -> &'static str {
        match self {
            Self::Ring(_) | Self::Ranges(_) => "AUTO_SPLIT",
            Self::Sticky(_) => "STICKY",
        }
    }

    /// Assigns hashes to a consumer.
    ///
    /// # Errors
    /// `Assign`: the ranges asked for are missing, reversed or taken, or no range is left to split. Nothing changed.
    pub(super) fn add(
        &mut self,
        slot: Slot,
        name: &Arc<str>,
        mode: &KeySharedMode,
    ) -> Result<(), AddConsumerError> {
        match (self, mode) {
            (Self::Ring(ring), _) => {
                ring.add(slot, name);
                Ok(())
            }
            (Self::Ranges(ranges), _) => ranges.add(slot),
            (Self::Sticky(sticky), KeySharedMode::Sticky(ranges)) => sticky.add(slot, ranges),
            (Self::Sticky(sticky), KeySharedMode::AutoSplit) => sticky.add(slot, &[]),
        }
    }

    /// Takes a consumer's hashes away.
    pub(super) fn remove(&mut self, slot: Slot) {
        match self {
            Self::Ring(ring) => ring.remove(slot),
            Self::Ranges(ranges) => ranges.remove(slot),
            Self::Sticky(sticky) => sticky.remove(slot),
        }
    }

    /// The slot hash of a key whose `murmur3_32` is `key_hash`.
    pub(super) fn slot_hash(&self, key_hash: u32) -> u32 {
        match self {
            Self::Ring(_) => key_hash % RING_SLOTS + 1,
            Self::Ranges(_) | Self::Sticky(_) => range_slot(key_hash),
        }
    }

    /// The consumer a slot hash belongs to; `None` when no consumer covers it.
    pub(super) fn select(&self, slot_hash: u32) -> Option<Slot> {
        match self {
            Self::Ring(ring) => ring.select(slot_hash),
            Self::Ranges(ranges) => ranges.select(slot_hash),
            Self::Sticky(sticky) => sticky.select(slot_hash),
        }
    }

    /// Hash ranges of a consumer, ascending.
    pub(super) fn ranges_of(&self, slot: Slot) -> Vec<HashRange> {
        match self {
            Self::Ring(ring) => ring.ranges_of(slot),
            Self::Ranges(ranges) => ranges.ranges_of(slot),
            Self::Sticky(sticky) => sticky.ranges_of(slot),
        }
    }
}

/// The slot of a key hash in ranges. 0 stands for "not computed" in the protocol's reference, so it is never used.
fn range_slot(key_hash: u32) -> u32 {
    (key_hash % KEY_SLOTS).max(1)
}
