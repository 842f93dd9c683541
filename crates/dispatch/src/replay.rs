//! Entries that wait to be delivered: asked for again, left behind by a consumer, held back, or due after a delay.
//!
//! Entries that must go to one consumer together form a *group* (Key_Shared: one hash; Shared: one chunked message). All
//! entries of a group are in the same place, so a change of mind about a group moves it as a whole:
//! ```text
//!   Any           one with permits          entries without a group
//!   Consumer(c)   only c                    a group assigned to c
//!   Held          no consumer now           hash that is draining, or that no consumer covers
//! ```
//! Each place is ordered by ordinal, so finding what can go now costs nothing for what cannot.
//!
//! Always true: an entry is in the queue of its place (`Held` has none), and in its group if it has one.

use std::collections::BTreeSet;

use pharos_types::steps::walk;

use super::consumers::Slot;
use super::ordinal_map::{OrdinalMap, shrink_if_empty};

/// Entries that go to the same consumer, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Group(pub(super) u64);

/// Consumers that may get an entry now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReplayPlace {
    /// Any consumer.
    Any,
    /// This one only.
    Consumer(Slot),
    /// No consumer for now.
    Held,
}

#[derive(Debug)]
struct Members {
    ordinals: BTreeSet<u64>,
    place: ReplayPlace,
}

/// All entries in replay.
#[derive(Debug, Default)]
pub(super) struct Replay {
    items: OrdinalMap<Option<Group>>,
    groups: OrdinalMap<Members>,
    /// The keys of `groups`, so that a range of them is found.
    group_order: BTreeSet<u64>,
    any: BTreeSet<u64>,
    /// By slot.
    of_consumer: Vec<BTreeSet<u64>>,
    /// Slots whose queue is not empty.
    occupied: BTreeSet<Slot>,
}

impl Replay {
    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    pub(super) fn contains(&self, ordinal: u64) -> bool {
        self.items.contains_key(&ordinal)
    }

    /// The group of an entry in replay.
    pub(super) fn group_of(&self, ordinal: u64) -> Option<Group> {
        self.items.get(&ordinal).copied().flatten()
    }

    /// The lowest entry of a group, if any is in replay.
    pub(super) fn first_of(&self, group: Group) -> Option<u64> {
        self.groups.get(&group.0)?.ordinals.first().copied()
    }

    /// Adds an entry. `place` is where its whole group belongs now; without a group it is `Any`.
    pub(super) fn insert(&mut self, ordinal: u64, group: Option<Group>, place: ReplayPlace) {
        if self.items.insert(ordinal, group).is_some() {
            debug_assert!(false, "{ordinal} is in replay twice");
            return;
        }
        if let Some(group) = group {
            self.move_group(group, place);
            let group_order = &mut self.group_order;
            let members = self.groups.entry(group.0).or_insert_with(|| {
                group_order.insert(group.0);
                Members {
                    ordinals: BTreeSet::new(),
                    place,
                }
            });
            members.ordinals.insert(ordinal);
        }
        self.enqueue(ordinal, place);
    }

    /// Removes an entry; whether it was there.
    pub(super) fn remove(&mut self, ordinal: u64) -> bool {
        let Some(group) = self.items.remove(&ordinal) else {
            return false;
        };
        let mut place = ReplayPlace::Any;
        if let Some(group) = group
            && let Some(members) = self.groups.get_mut(&group.0)
        {
            place = members.place;
            members.ordinals.remove(&ordinal);
            if members.ordinals.is_empty() {
                self.groups.remove(&group.0);
                self.group_order.remove(&group.0);
            }
        }
        self.dequeue(ordinal, place);
        shrink_if_empty(&mut self.items);
        shrink_if_empty(&mut self.groups);
        true
    }

    /// Puts a whole group in another place.
    pub(super) fn move_group(&mut self, group: Group, place: ReplayPlace) {
        let Some(members) = self.groups.get_mut(&group.0) else {
            return;
        };
        let old = std::mem::replace(&mut members.place, place);
        if old == place {
            return;
        }
        let ordinals = std::mem::take(&mut members.ordinals);
        for &ordinal in &ordinals {
            self.dequeue(ordinal, old);
            self.enqueue(ordinal, place);
        }
        if let Some(members) = self.groups.get_mut(&group.0) {
            members.ordinals = ordinals;
        }
    }

    /// The groups from `first` to `last`, both inclusive.
    pub(super) fn groups_within(&self, first: Group, last: Group) -> Vec<Group> {
        let groups = self.group_order.range(first.0..=last.0);
        walk(groups).map(|&group| Group(group)).collect()
    }

    /// The groups that wait for one consumer.
    pub(super) fn groups_at(&self, slot: Slot) -> BTreeSet<Group> {
        walk(self.of(slot))
            .filter_map(|ordinal| self.group_of(ordinal))
            .collect()
    }

    /// Entries for anyone, rising.
    pub(super) fn any(&self) -> impl Iterator<Item = u64> + '_ {
        self.any.iter().copied()
    }

    /// Entries for one consumer, rising.
    pub(super) fn of(&self, slot: Slot) -> impl Iterator<Item = u64> + '_ {
        self.of_consumer.get(slot.index()).into_iter().flatten().copied()
    }

    /// Consumers that have entries waiting, beginning at or after `from` and going round once.
    pub(super) fn occupied_from(&self, from: Slot) -> impl Iterator<Item = Slot> + '_ {
        self.occupied
            .range(from..)
            .chain(self.occupied.range(..from))
            .copied()
    }

    /// The entries before `end`, in no order. Walks all of them.
    pub(super) fn before(&self, end: u64) -> Vec<u64> {
        self.items.keys().copied().filter(|&at| at < end).collect()
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    fn enqueue(&mut self, ordinal: u64, place: ReplayPlace) {
        match place {
            ReplayPlace::Any => {
                self.any.insert(ordinal);
            }
            ReplayPlace::Consumer(slot) => {
                if self.of_consumer.len() <= slot.index() {
                    self.of_consumer.resize_with(slot.index() + 1, BTreeSet::new);
                }
                self.of_consumer[slot.index()].insert(ordinal);
                self.occupied.insert(slot);
            }
            ReplayPlace::Held => {}
        }
    }

    fn dequeue(&mut self, ordinal: u64, place: ReplayPlace) {
        match place {
            ReplayPlace::Any => {
                self.any.remove(&ordinal);
            }
            ReplayPlace::Consumer(slot) => {
                if let Some(queue) = self.of_consumer.get_mut(slot.index()) {
                    queue.remove(&ordinal);
                    if queue.is_empty() {
                        self.occupied.remove(&slot);
                    }
                }
            }
            ReplayPlace::Held => {}
        }
    }
}
