//! Ranges of hashes: a filter made of them, and the method that halves them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use pharos_types::hash::KEY_SLOTS;
use pharos_types::steps::step;

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

    /// True if the ranges include a key whose `murmur3_32` is `key_hash`.
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
    /// All ranges, the largest first and of several the lowest: size, and the end of the range before.
    by_size: BTreeSet<(Reverse<u32>, u32)>,
}

impl AutoSplitRanges {
    pub(super) fn add(&mut self, slot: Slot) -> Result<(), AddConsumerError> {
        step();
        let end = match self.by_size.first().copied() {
            None => {
                self.note(0, KEY_SLOTS);
                KEY_SLOTS
            }
            Some((Reverse(size), _)) if size <= 1 => {
                let count = self.by_end.len();
                return Err(AddConsumerError::Assign(format!(
                    "no more ranges can be assigned to a new consumer, {count} consumers have one"
                )));
            }
            Some((Reverse(size), start)) => {
                let (middle, end) = (start + size - (size >> 1), start + size);
                self.forget(start, end);
                self.note(start, middle);
                self.note(middle, end);
                middle
            }
        };
        self.by_end.insert(end, slot);
        self.end_of.insert(slot, end);
        Ok(())
    }

    pub(super) fn remove(&mut self, slot: Slot) {
        step();
        let Some(end) = self.end_of.remove(&slot) else {
            return;
        };
        self.by_end.remove(&end);
        let start = self.end_before(end);
        self.forget(start, end);
        // Without this entry its hashes fall to the range above. The last range has none above: the one below grows.
        if let Some((&above, _)) = self.by_end.range(end..).next() {
            self.forget(end, above);
            self.note(start, above);
        } else if let Some((_, below)) = self.by_end.pop_last() {
            let before = self.end_before(start);
            self.forget(before, start);
            self.note(before, KEY_SLOTS);
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
        let start = self.end_before(end) + 1;
        vec![HashRange { start, end }]
    }

    /// The end of the range before the one that ends at `end`; 0 if it is the first.
    fn end_before(&self, end: u32) -> u32 {
        let before = self.by_end.range(..end).next_back();
        before.map_or(0, |(&end, _)| end)
    }

    fn note(&mut self, start: u32, end: u32) {
        self.by_size.insert((Reverse(end - start), start));
    }

    fn forget(&mut self, start: u32, end: u32) {
        self.by_size.remove(&(Reverse(end - start), start));
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

    /// The largest range as (end of the one before, end), the lowest of several, by a look at all.
    fn largest(ranges: &AutoSplitRanges) -> Option<(u32, u32)> {
        let starts = std::iter::once(0).chain(ranges.by_end.keys().copied());
        let all = starts.zip(ranges.by_end.keys().copied());
        all.min_by_key(|(start, end)| Reverse(end - start))
    }

    #[test]
    fn the_largest_is_known_as_consumers_come_and_go() {
        let mut ranges = AutoSplitRanges::default();
        let mut random: u32 = 3;
        for slot in 0..2_000 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            match (random >> 16) % 3 {
                0 => ranges.remove(Slot((random >> 8) % 300)),
                _ => {
                    let slot = Slot(slot % 300);
                    ranges.remove(slot);
                    ranges.add(slot).unwrap();
                }
            }
            let known = ranges.by_size.first();
            let known = known.map(|(Reverse(size), start)| (*start, start + size));
            assert_eq!(known, largest(&ranges));
            assert_eq!(ranges.by_size.len(), ranges.by_end.len());
        }
    }

    #[test]
    fn ranges_run_out() {
        let mut ranges = AutoSplitRanges::default();
        let mut joined = 0;
        let refused = loop {
            match ranges.add(Slot(joined)) {
                Ok(()) => joined += 1,
                Err(refused) => break refused,
            }
        };
        assert_eq!(joined, KEY_SLOTS);
        assert!(matches!(refused, AddConsumerError::Assign(_)));
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
