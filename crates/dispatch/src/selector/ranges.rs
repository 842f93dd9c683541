//! Ranges of hashes: a filter made of them, and the method that halves them.

use std::collections::{BTreeMap, HashMap};

use pharos_types::hash::KEY_SLOTS;

use super::range_slot;
use crate::consumers::Slot;
use crate::types::{AddConsumerError, HashRange};

/// The keys an Exclusive consumer with sticky ranges wants; others are not delivered to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HashRanges(Box<[HashRange]>);

impl HashRanges {
    /// A filter of these ranges, in any order; one that is reversed matches nothing.
    #[must_use]
    pub fn new(ranges: Vec<HashRange>) -> Self {
        Self(ranges.into_boxed_slice())
    }

    /// Whether a key whose `murmur3_32` is `key_hash` is wanted.
    #[must_use]
    pub fn contains_key_hash(&self, key_hash: u32) -> bool {
        let slot = range_slot(key_hash);
        self.0
            .iter()
            .any(|range| range.start <= slot && slot <= range.end)
    }
}

/// Auto-split by ranges: a joiner gets the lower half of the largest range, a leaver's range goes to its neighbour.
#[derive(Debug, Default)]
pub(crate) struct AutoSplitRanges {
    /// Last hash of a range (inclusive) → who has it. A range begins after the one before. The last ends at 65536.
    by_end: BTreeMap<u32, Slot>,
    end_of: HashMap<Slot, u32>,
}

impl AutoSplitRanges {
    pub(super) fn add(&mut self, slot: Slot) -> Result<(), AddConsumerError> {
        let end = match self.largest() {
            None => KEY_SLOTS,
            Some((start, end)) if end - start <= 1 => {
                let count = self.by_end.len();
                return Err(AddConsumerError::Assign(format!(
                    "no more ranges can be assigned to a new consumer, {count} consumers have one"
                )));
            }
            Some((start, end)) => end - ((end - start) >> 1),
        };
        self.by_end.insert(end, slot);
        self.end_of.insert(slot, end);
        Ok(())
    }

    pub(super) fn remove(&mut self, slot: Slot) {
        let Some(end) = self.end_of.remove(&slot) else {
            return;
        };
        self.by_end.remove(&end);
        // Without this entry its hashes fall to the range above. The last range has none above: the one below grows.
        if end == KEY_SLOTS
            && let Some((_, below)) = self.by_end.pop_last()
        {
            self.by_end.insert(KEY_SLOTS, below);
            self.end_of.insert(below, KEY_SLOTS);
        }
    }

    pub(super) fn select(&self, slot_hash: u32) -> Option<Slot> {
        Some(*self.by_end.range(slot_hash..).next()?.1)
    }

    pub(super) fn ranges_of(&self, slot: Slot) -> Vec<HashRange> {
        let Some(&end) = self.end_of.get(&slot) else {
            return Vec::new();
        };
        let before = self.by_end.range(..end).next_back();
        let start = before.map_or(0, |(&end, _)| end) + 1;
        vec![HashRange { start, end }]
    }

    /// The largest range as (end of the one before, end); the lowest of several.
    fn largest(&self) -> Option<(u32, u32)> {
        let mut largest: Option<(u32, u32)> = None;
        let mut start = 0;
        for &end in self.by_end.keys() {
            if largest.is_none_or(|(low, high)| end - start > high - low) {
                largest = Some((start, end));
            }
            start = end;
        }
        largest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(ranges: &AutoSplitRanges) -> Vec<(u32, u32)> {
        ranges.by_end.iter().map(|(&end, slot)| (end, slot.0)).collect()
    }

    #[test]
    fn a_joiner_takes_the_lower_half_of_the_largest() {
        let mut ranges = AutoSplitRanges::default();
        for slot in 0..4 {
            ranges.add(Slot(slot)).unwrap();
        }
        assert_eq!(shape(&ranges), [(16384, 2), (32768, 1), (49152, 3), (65536, 0)]);
        assert_eq!(ranges.select(1), Some(Slot(2)));
        assert_eq!(ranges.select(16384), Some(Slot(2)));
        assert_eq!(ranges.select(16385), Some(Slot(1)));
        assert_eq!(ranges.select(65535), Some(Slot(0)));
    }

    #[test]
    fn a_leaver_gives_its_range_to_the_neighbour() {
        let mut ranges = AutoSplitRanges::default();
        for slot in 0..4 {
            ranges.add(Slot(slot)).unwrap();
        }
        ranges.remove(Slot(1));
        assert_eq!(shape(&ranges), [(16384, 2), (49152, 3), (65536, 0)]);
        ranges.remove(Slot(0));
        assert_eq!(shape(&ranges), [(16384, 2), (65536, 3)]);
        assert_eq!(
            ranges.ranges_of(Slot(3)),
            [HashRange {
                start: 16385,
                end: 65536
            }]
        );
        ranges.remove(Slot(3));
        ranges.remove(Slot(2));
        assert_eq!(ranges.select(5), None);
    }

    #[test]
    fn ranges_run_out() {
        let mut ranges = AutoSplitRanges::default();
        let mut joined = 0;
        while ranges.by_end.len() < 200 {
            ranges.add(Slot(joined)).unwrap();
            joined += 1;
        }
        ranges.by_end = (1..=KEY_SLOTS).map(|end| (end, Slot(end))).collect();
        assert!(matches!(ranges.add(Slot(0)), Err(AddConsumerError::Assign(_))));
    }

    #[test]
    fn an_exclusive_filter_knows_its_keys() {
        let filter = HashRanges::new(vec![
            HashRange { start: 100, end: 200 },
            HashRange { start: 1, end: 1 },
        ]);
        assert!(filter.contains_key_hash(0), "hash 0 counts as slot 1");
        assert!(filter.contains_key_hash(65536 + 100) && filter.contains_key_hash(200));
        assert!(!filter.contains_key_hash(99) && !filter.contains_key_hash(201));
    }
}
