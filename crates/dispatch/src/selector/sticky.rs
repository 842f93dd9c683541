//! Sticky ranges: every consumer says which hashes it takes. What no consumer takes waits in the backlog.

use std::collections::{BTreeMap, HashMap};

use pharos_types::hash::KEY_SLOTS;
use pharos_types::steps::step;

use crate::consumers::Slot;
use crate::types::{AddConsumerError, HashRange};

/// The ranges of all consumers.
#[derive(Debug, Default)]
pub(crate) struct Sticky {
    /// First hash of a range → last one (inclusive) and who has it. Ranges do not overlap.
    ranges: BTreeMap<u32, (u32, Slot)>,
    /// The first hashes of a consumer's ranges, rising.
    starts_of: HashMap<Slot, Box<[u32]>>,
}

impl Sticky {
    /// Adds a consumer's ranges, all or none.
    pub(super) fn add(&mut self, slot: Slot, ranges: &[HashRange]) -> Result<(), AddConsumerError> {
        validate(ranges)?;
        for range in ranges {
            if let Some(taken) = self.overlap(range) {
                return Err(AddConsumerError::Assign(format!(
                    "hash range [{}, {}] overlaps [{}, {}] of another consumer",
                    range.start, range.end, taken.start, taken.end
                )));
            }
        }
        for range in ranges {
            step();
            self.ranges.insert(range.start, (range.end, slot));
        }
        let mut starts: Vec<u32> = ranges.iter().map(|range| range.start).collect();
        starts.sort_unstable();
        self.starts_of.insert(slot, starts.into_boxed_slice());
        Ok(())
    }

    pub(super) fn remove(&mut self, slot: Slot) {
        for start in self.starts_of.remove(&slot).unwrap_or_default() {
            step();
            self.ranges.remove(&start);
        }
    }

    pub(super) fn select(&self, slot_hash: u32) -> Option<Slot> {
        let (_, &(end, slot)) = self.ranges.range(..=slot_hash).next_back()?;
        (slot_hash <= end).then_some(slot)
    }

    pub(super) fn ranges_of(&self, slot: Slot) -> Vec<HashRange> {
        let starts = self.starts_of.get(&slot).map_or(&[][..], |starts| starts);
        let range = |&start| {
            let &(end, _) = self.ranges.get(&start)?;
            Some(HashRange { start, end })
        };
        starts.iter().filter_map(range).collect()
    }

    /// A range already taken that has a hash in common with `range`.
    fn overlap(&self, range: &HashRange) -> Option<HashRange> {
        let (&start, &(end, _)) = self.ranges.range(..=range.end).next_back()?;
        (end >= range.start).then_some(HashRange { start, end })
    }
}

/// Checks the ranges of one consumer by themselves.
fn validate(ranges: &[HashRange]) -> Result<(), AddConsumerError> {
    let refuse = |text: String| Err(AddConsumerError::Assign(text));
    if ranges.is_empty() {
        return refuse("hash ranges of a sticky Key_Shared consumer must not be empty".into());
    }
    let mut sorted = ranges.to_vec();
    sorted.sort_by_key(|range| range.start);
    for range in &sorted {
        let HashRange { start, end } = range;
        if start > end {
            return refuse(format!("hash range [{start}, {end}] is reversed"));
        }
        if *end >= KEY_SLOTS {
            return refuse(format!("hash range [{start}, {end}] is not within [0, 65535]"));
        }
    }
    for pair in sorted.windows(2) {
        if let [low, high] = pair
            && low.end >= high.start
        {
            return refuse(format!(
                "hash ranges [{}, {}] and [{}, {}] overlap",
                low.start, low.end, high.start, high.end
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(ranges: &[(u32, u32)]) -> Vec<HashRange> {
        ranges
            .iter()
            .map(|&(start, end)| HashRange { start, end })
            .collect()
    }

    #[test]
    fn hashes_go_to_who_asked_for_them() {
        let mut sticky = Sticky::default();
        sticky
            .add(Slot(0), &ranges(&[(0, 99), (30_000, 65_535)]))
            .unwrap();
        sticky.add(Slot(1), &ranges(&[(100, 200)])).unwrap();
        let owner = |hash| sticky.select(hash).map(|slot| slot.0);
        assert_eq!([owner(1), owner(99), owner(65_535)], [Some(0); 3]);
        assert_eq!([owner(100), owner(200)], [Some(1); 2]);
        assert_eq!([owner(201), owner(29_999)], [None; 2]);
    }

    #[test]
    fn bad_ranges_are_refused_and_change_nothing() {
        let mut sticky = Sticky::default();
        sticky.add(Slot(0), &ranges(&[(100, 200)])).unwrap();
        for bad in [
            &[][..],
            &[(5, 4)],
            &[(0, 65_536)],
            &[(0, 10), (10, 20)],
            &[(0, 10), (200, 300)],
            &[(150, 160)],
            &[(0, 65_535)],
        ] {
            let refused = sticky.add(Slot(1), &ranges(bad));
            assert!(matches!(refused, Err(AddConsumerError::Assign(_))), "{bad:?}");
        }
        assert_eq!(sticky.ranges.len(), 1);
        sticky.remove(Slot(0));
        sticky.add(Slot(1), &ranges(&[(150, 160)])).unwrap();
    }
}
