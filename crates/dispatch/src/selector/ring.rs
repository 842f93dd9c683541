//! Consistent hashing: every consumer has many points on a ring of hashes, and a hash belongs to the next point upwards.
//!
//! When points collide, the consumer that joined first has the point and the others queue behind it.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use pharos_types::hash::{RING_SLOTS, ring_point};

use crate::consumers::Slot;
use crate::types::HashRange;

const _: () = assert!(RING_SLOTS <= u16::MAX as u32, "a place fits 16 bits");

/// One point of one consumer. The order of the fields is the order on the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Point {
    at: u32,
    /// Number of the join; the lowest at a point has it.
    joined: u64,
    slot: Slot,
}

/// The ring.
#[derive(Debug)]
pub(crate) struct Ring {
    points_per_consumer: u32,
    /// Sorted.
    points: Vec<Point>,
    /// The distinct places of points, rising, and who has each: `points` once more, in the shape that searches fast.
    places: Vec<u16>,
    owners: Vec<Slot>,
    members: HashMap<Slot, Member>,
    /// Indexes in use by each name; tells consumers of one name apart.
    name_indexes: HashMap<Arc<str>, BTreeSet<u32>>,
    /// Number of the next join.
    joined: u64,
}

#[derive(Debug)]
struct Member {
    name: Arc<str>,
    name_index: u32,
}

impl Ring {
    pub(super) fn new(points_per_consumer: u32) -> Self {
        Self {
            points_per_consumer: points_per_consumer.max(1),
            points: Vec::new(),
            places: Vec::new(),
            owners: Vec::new(),
            members: HashMap::new(),
            name_indexes: HashMap::new(),
            joined: 0,
        }
    }

    pub(super) fn add(&mut self, slot: Slot, name: &Arc<str>) {
        let used = self.name_indexes.entry(Arc::clone(name)).or_default();
        let name_index = (0..).find(|index| !used.contains(index)).unwrap_or(u32::MAX);
        used.insert(name_index);
        let joined = self.joined;
        self.joined += 1;
        for point in 0..self.points_per_consumer {
            let at = ring_point(name, name_index, point);
            self.points.push(Point { at, joined, slot });
        }
        // The old part is sorted already, which this sort makes use of.
        self.points.sort();
        self.index();
        let name = Arc::clone(name);
        self.members.insert(slot, Member { name, name_index });
    }

    pub(super) fn remove(&mut self, slot: Slot) {
        let Some(member) = self.members.remove(&slot) else {
            return;
        };
        if let Some(used) = self.name_indexes.get_mut(&member.name) {
            used.remove(&member.name_index);
            if used.is_empty() {
                self.name_indexes.remove(&member.name);
            }
        }
        self.points.retain(|point| point.slot != slot);
        self.index();
    }

    /// Derives what is searched from the points.
    fn index(&mut self) {
        self.places.clear();
        self.owners.clear();
        for point in &self.points {
            let place = point.at as u16;
            if self.places.last() != Some(&place) {
                self.places.push(place);
                self.owners.push(point.slot);
            }
        }
    }

    pub(super) fn select(&self, slot_hash: u32) -> Option<Slot> {
        let next = self.places.partition_point(|&place| u32::from(place) < slot_hash);
        self.owners.get(next).or(self.owners.first()).copied()
    }

    pub(super) fn ranges_of(&self, slot: Slot) -> Vec<HashRange> {
        let mut ranges = Vec::new();
        let mut start = 1;
        for (&place, &owner) in self.places.iter().zip(&self.owners) {
            let end = u32::from(place);
            if owner == slot {
                push_joined(&mut ranges, start, end);
            }
            start = end + 1;
        }
        if start <= RING_SLOTS && self.owners.first() == Some(&slot) {
            push_joined(&mut ranges, start, RING_SLOTS);
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
