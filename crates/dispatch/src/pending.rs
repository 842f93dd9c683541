//! Messages that were handed to a consumer and are not acknowledged.
//!
//! A map finds an entry by ordinal; a list per consumer, threaded through the same nodes, finds all of one consumer's. Every
//! operation on one entry is O(1), so an ack never looks at the pending entries of others.
//!
//! Always true: a node is in the map and in exactly one consumer's list, or in the free list.

use super::consumers::Slot;
use super::ordinal_map::{OrdinalMap, shrink_if_empty};
use super::replay::Group;

/// End of a list.
const END: u32 = u32::MAX;

/// Record of a delivered entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PendingEntry {
    /// Consumer that has it.
    pub(super) owner: Slot,
    /// Messages of it not yet acknowledged; counts against the owner.
    pub(super) messages: u32,
    /// Group that must stay together with it on redelivery.
    pub(super) group: Option<Group>,
}

#[derive(Debug)]
struct Node {
    ordinal: u64,
    entry: PendingEntry,
    previous: u32,
    /// The next one of the same owner, or the next free node.
    next: u32,
}

/// All pending entries of a subscription.
#[derive(Debug)]
pub(super) struct PendingAcks {
    index: OrdinalMap<u32>,
    nodes: Vec<Node>,
    free: u32,
    /// First node of each consumer's list, by slot.
    heads: Vec<u32>,
}

impl PendingAcks {
    pub(super) fn new() -> Self {
        Self {
            index: OrdinalMap::default(),
            nodes: Vec::new(),
            free: END,
            heads: Vec::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    pub(super) fn contains(&self, ordinal: u64) -> bool {
        self.index.contains_key(&ordinal)
    }

    pub(super) fn get(&self, ordinal: u64) -> Option<&PendingEntry> {
        let node = *self.index.get(&ordinal)?;
        Some(&self.nodes[node as usize].entry)
    }

    pub(super) fn get_mut(&mut self, ordinal: u64) -> Option<&mut PendingEntry> {
        let node = *self.index.get(&ordinal)?;
        Some(&mut self.nodes[node as usize].entry)
    }

    /// Adds an entry that is not pending yet.
    pub(super) fn insert(&mut self, ordinal: u64, entry: PendingEntry) {
        debug_assert!(!self.contains(ordinal), "{ordinal} is pending twice");
        let owner = entry.owner.index();
        if self.heads.len() <= owner {
            self.heads.resize(owner + 1, END);
        }
        let node = Node {
            ordinal,
            entry,
            previous: END,
            next: self.heads[owner],
        };
        let place = if self.free == END {
            // 2^32 nodes of 40 bytes do not fit a machine before the unacked limits stop them.
            let place = self.nodes.len() as u32;
            self.nodes.push(node);
            place
        } else {
            let place = self.free;
            self.free = self.nodes[place as usize].next;
            self.nodes[place as usize] = node;
            place
        };
        let second = std::mem::replace(&mut self.heads[owner], place);
        if second != END {
            self.nodes[second as usize].previous = place;
        }
        self.index.insert(ordinal, place);
    }

    pub(super) fn remove(&mut self, ordinal: u64) -> Option<PendingEntry> {
        let place = self.index.remove(&ordinal)?;
        let (entry, previous, next) = {
            let node = &self.nodes[place as usize];
            (node.entry, node.previous, node.next)
        };
        match previous {
            END => self.heads[entry.owner.index()] = next,
            previous => self.nodes[previous as usize].next = next,
        }
        if next != END {
            self.nodes[next as usize].previous = previous;
        }
        self.nodes[place as usize].next = self.free;
        self.free = place;
        if self.index.is_empty() {
            self.reset_nodes();
        }
        Some(entry)
    }

    /// Takes one entry of `owner`, the one delivered last.
    pub(super) fn pop_of(&mut self, owner: Slot) -> Option<(u64, PendingEntry)> {
        let head = *self.heads.get(owner.index())?;
        let ordinal = self.nodes.get(head as usize)?.ordinal;
        Some((ordinal, self.remove(ordinal)?))
    }

    /// The entries of `owner`, the one delivered last first.
    pub(super) fn of(&self, owner: Slot) -> impl Iterator<Item = u64> + '_ {
        let mut place = self.heads.get(owner.index()).copied().unwrap_or(END);
        std::iter::from_fn(move || {
            let node = self.nodes.get(place as usize)?;
            place = node.next;
            Some(node.ordinal)
        })
    }

    /// The entries before `end`, in no order. Walks all of them.
    pub(super) fn before(&self, end: u64) -> Vec<u64> {
        self.index.keys().copied().filter(|&at| at < end).collect()
    }

    pub(super) fn clear(&mut self) {
        self.index.clear();
        self.heads.clear();
        self.reset_nodes();
    }

    /// Forgets all nodes once none is in use, so that they are dense again and a burst's memory is given back.
    fn reset_nodes(&mut self) {
        const KEPT_CAPACITY: usize = 4096;
        self.nodes.clear();
        self.nodes.shrink_to(KEPT_CAPACITY);
        self.free = END;
        self.heads.fill(END);
        shrink_if_empty(&mut self.index);
    }
}
