//! Consistent hashing: every consumer has many points on a ring of hashes, and a hash belongs to the next point upwards.
//!
//! When points collide, the consumer that joined first has the point and the others queue behind it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use pharos_types::hash::{RING_SLOTS, ring_point};
use pharos_types::steps::step;

use crate::consumers::Slot;
use crate::types::HashRange;

const _: () = assert!(RING_SLOTS <= u16::MAX as u32, "a place fits 16 bits");

/// Point of a consumer. The order of the fields is the order on the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Point {
    at: u16,
    /// Number of the join; the lowest at a point has it.
    joined: u64,
    slot: Slot,
}

/// The ring.
#[derive(Debug)]
pub(crate) struct Ring {
    points_per_consumer: u32,
    points: BTreeSet<Point>,
    /// The places of points and who has each: the first of the points there.
    owners: BTreeMap<u16, Slot>,
    members: HashMap<Slot, Member>,
    /// Tells consumers of one name apart.
    name_indexes: HashMap<Arc<str>, NameIndexes>,
    /// Number of the next join.
    joined: u64,
}

#[derive(Debug)]
struct Member {
    name: Arc<str>,
    name_index: u32,
    joined: u64,
    /// The places of its points, rising, each once.
    places: Box<[u16]>,
}

/// The indexes in use by consumers of one name.
#[derive(Debug, Default)]
struct NameIndexes {
    /// None from here on is in use.
    end: u32,
    /// Those before `end` that are not.
    free: BTreeSet<u32>,
}

impl NameIndexes {
    /// Takes the lowest index that is not in use.
    fn take(&mut self) -> u32 {
        step();
        self.free.pop_first().unwrap_or_else(|| {
            self.end += 1;
            self.end - 1
        })
    }

    /// Gives an index back. Returns true if none is in use any more.
    fn give_back(&mut self, index: u32) -> bool {
        self.free.insert(index);
        while self.end > 0 && self.free.remove(&(self.end - 1)) {
            self.end -= 1;
        }
        self.end == 0
    }
}

impl Ring {
    pub(super) fn new(points_per_consumer: u32) -> Self {
        Self {
            points_per_consumer: points_per_consumer.max(1),
            points: BTreeSet::new(),
            owners: BTreeMap::new(),
            members: HashMap::new(),
            name_indexes: HashMap::new(),
            joined: 0,
        }
    }

    pub(super) fn add(&mut self, slot: Slot, name: &Arc<str>) {
        let name_index = self.name_indexes.entry(Arc::clone(name)).or_default().take();
        let joined = self.joined;
        self.joined += 1;
        let points = 0..self.points_per_consumer;
        let mut places: Vec<u16> = points
            .map(|point| ring_point(name, name_index, point) as u16)
            .collect();
        places.sort_unstable();
        places.dedup();
        for &at in &places {
            step();
            self.points.insert(Point { at, joined, slot });
            // A consumer that has the place already joined earlier.
            self.owners.entry(at).or_insert(slot);
        }
        let member = Member {
            name: Arc::clone(name),
            name_index,
            joined,
            places: places.into_boxed_slice(),
        };
        self.members.insert(slot, member);
    }

    pub(super) fn remove(&mut self, slot: Slot) {
        let Some(member) = self.members.remove(&slot) else {
            return;
        };
        if let Some(used) = self.name_indexes.get_mut(&member.name)
            && used.give_back(member.name_index)
        {
            self.name_indexes.remove(&member.name);
        }
        let joined = member.joined;
        for &at in &member.places {
            step();
            self.points.remove(&Point { at, joined, slot });
            if self.owners.get(&at) != Some(&slot) {
                continue;
            }
            let lowest = Point {
                at,
                joined: 0,
                slot: Slot(0),
            };
            match self.points.range(lowest..).next() {
                Some(next) if next.at == at => _ = self.owners.insert(at, next.slot),
                _ => _ = self.owners.remove(&at),
            }
        }
    }

    pub(super) fn select(&self, slot_hash: u32) -> Option<Slot> {
        let next = u16::try_from(slot_hash)
            .ok()
            .and_then(|hash| self.owners.range(hash..).next());
        let (_, slot) = next.or_else(|| self.owners.first_key_value())?;
        Some(*slot)
    }

    pub(super) fn ranges_of(&self, slot: Slot) -> Vec<HashRange> {
        let mut ranges = Vec::new();
        let places = self.members.get(&slot).map_or(&[][..], |member| &member.places);
        let mut owned = places
            .iter()
            .filter(|at| self.owners.get(at) == Some(&slot))
            .peekable();
        let has_first = owned.peek().copied() == self.owners.first_key_value().map(|(at, _)| at);
        for &at in owned {
            step();
            let before = self.owners.range(..at).next_back();
            push_joined(
                &mut ranges,
                before.map_or(1, |(&at, _)| u32::from(at) + 1),
                u32::from(at),
            );
        }
        // What lies above the last place belongs to the first.
        if let Some((&last, _)) = self.owners.last_key_value()
            && has_first
            && u32::from(last) < RING_SLOTS
        {
            push_joined(&mut ranges, u32::from(last) + 1, RING_SLOTS);
        }
        ranges
    }
}

/// Adds `start..=end`, joined to the last range when they touch.
fn push_joined(ranges: &mut Vec<HashRange>, start: u32, end: u32) {
    match ranges.last_mut() {
        Some(last) if last.end + 1 == start => last.end = end,
        _ => ranges.push(HashRange { start, end }),
    }
}

#[cfg(test)]
mod tests {
    use pharos_types::hash::ring_slot;

    use super::*;

    fn ring(names: &[&str]) -> Ring {
        let mut ring = Ring::new(100);
        for (slot, name) in (0..).map(Slot).zip(names) {
            ring.add(slot, &Arc::from(*name));
        }
        ring
    }

    fn owner(ring: &Ring, key: &str) -> u32 {
        ring.select(ring_slot(key.as_bytes())).unwrap().0
    }

    #[test]
    fn keys_go_where_the_reference_sends_them() {
        let ring = ring(&["c1", "c2"]);
        for (key, slot) in [
            ("key-0", 0),
            ("key-1", 1),
            ("key-2", 0),
            ("hello", 0),
            ("order-42", 0),
            ("a", 1),
        ] {
            assert_eq!(owner(&ring, key), slot, "{key}");
        }
    }

    #[test]
    fn a_leaver_moves_only_its_own_keys() {
        let mut ring = ring(&["c1", "c2", "c3"]);
        let before: Vec<_> = (1..=RING_SLOTS).map(|hash| ring.select(hash).unwrap()).collect();
        ring.remove(Slot(1));
        for (hash, before) in (1..=RING_SLOTS).zip(before) {
            let after = ring.select(hash).unwrap();
            assert_ne!(after, Slot(1));
            assert!(before == Slot(1) || after == before);
        }
    }

    #[test]
    fn consumers_of_one_name_share_and_reuse_its_indexes() {
        let mut ring = ring(&["same", "same"]);
        let with_both: Vec<_> = ring.points.iter().map(|point| point.at).collect();
        ring.remove(Slot(0));
        assert_eq!(ring.points.len(), 100);
        ring.add(Slot(0), &Arc::from("same"));
        assert_eq!(
            ring.points.iter().map(|point| point.at).collect::<Vec<_>>(),
            with_both
        );
    }

    #[test]
    fn the_ranges_of_stats_say_what_select_does() {
        let ring = ring(&["c1", "c2", "c3"]);
        let mut covered = 0;
        for slot in (0..3).map(Slot) {
            for range in ring.ranges_of(slot) {
                for hash in range.start..=range.end {
                    assert_eq!(ring.select(hash), Some(slot));
                    covered += 1;
                }
            }
        }
        assert_eq!(covered, RING_SLOTS);
    }
}
