//! Assignment of keys to consumers, and the condition under which a consumer may get a key.
//!
//! When a consumer joins or leaves, hashes move. A hash that moved from A to B while A still has unacknowledged
//! messages of it is *draining*: B gets nothing of it until A has acknowledged or lost the last. This needs no list
//! of moved hashes: a hash with pending messages knows its owner, and only that consumer may get more.
//!
//! Always true (unless out of order delivery is allowed): all pending messages of a hash are at one consumer.

use pharos_types::steps::walk;

use super::consumers::Slot;
use super::ordinal_map::{OrdinalMap, shrink_if_empty};
use super::replay::{Group, ReplayPlace};
use super::selector::Selector;
use super::types::{
    AddConsumerError, ConsumerSpec, HashRange, KeySharedMode, KeySharedOptions, KeySharedSpec,
};

/// The state of Key_Shared.
#[derive(Debug)]
pub(super) struct KeyShared {
    options: KeySharedOptions,
    /// `None` while no consumer is attached: the next one chooses the mode.
    active: Option<Active>,
}

#[derive(Debug)]
struct Active {
    selector: Selector,
    allow_out_of_order: bool,
    /// By slot hash: who has its pending messages. Not kept when order does not matter.
    holders: OrdinalMap<Holder>,
}

#[derive(Clone, Copy, Debug)]
struct Holder {
    slot: Slot,
    entries: u32,
}

impl KeyShared {
    pub(super) fn new(options: KeySharedOptions) -> Self {
        Self {
            options,
            active: None,
        }
    }

    /// Returns the side that assigns hashes; `None` while no consumer is attached.
    pub(super) fn mode_name(&self) -> Option<&'static str> {
        self.active.as_ref().map(|active| active.selector.mode_name())
    }

    /// Gives hashes to a joining consumer. After an error nothing has changed.
    pub(super) fn add(&mut self, slot: Slot, spec: &ConsumerSpec) -> Result<(), AddConsumerError> {
        let default = KeySharedSpec {
            mode: KeySharedMode::AutoSplit,
            allow_out_of_order: false,
        };
        let asked = spec.key_shared.as_ref().unwrap_or(&default);
        if let Some(active) = &mut self.active {
            let wanted = match asked.mode {
                KeySharedMode::AutoSplit => "AUTO_SPLIT",
                KeySharedMode::Sticky(_) => "STICKY",
            };
            if active.selector.mode_name() != wanted {
                return Err(AddConsumerError::ModeMismatch {
                    active: active.selector.mode_name(),
                    asked: wanted,
                });
            }
            if active.allow_out_of_order != asked.allow_out_of_order {
                return Err(AddConsumerError::OrderMismatch {
                    active: active.allow_out_of_order,
                });
            }
            return active.selector.add(slot, &spec.name, &asked.mode);
        }
        let mut selector = Selector::new(&asked.mode, &self.options);
        selector.add(slot, &spec.name, &asked.mode)?;
        self.active = Some(Active {
            selector,
            allow_out_of_order: asked.allow_out_of_order,
            holders: OrdinalMap::default(),
        });
        Ok(())
    }

    /// Takes a leaving consumer's hashes away.
    pub(super) fn remove(&mut self, slot: Slot) {
        if let Some(active) = &mut self.active {
            active.selector.remove(slot);
        }
    }

    /// Forgets all assignments, after the last consumer has left.
    pub(super) fn clear(&mut self) {
        self.active = None;
    }

    /// Forgets who has what, when nothing is pending any more.
    pub(super) fn clear_holders(&mut self) {
        if let Some(active) = &mut self.active {
            active.holders.clear();
        }
    }

    /// The group of a key: its slot hash.
    pub(super) fn group(&self, key_hash: u32) -> Group {
        let slot_hash = self
            .active
            .as_ref()
            .map_or(key_hash, |active| active.selector.slot_hash(key_hash));
        Group(u64::from(slot_hash))
    }

    /// Returns the consumers that may get messages of a group now.
    pub(super) fn place(&self, group: Group) -> ReplayPlace {
        let Some(active) = &self.active else {
            return ReplayPlace::Held;
        };
        let Some(owner) = active.selector.select(group.0 as u32) else {
            return ReplayPlace::Held;
        };
        match active.holders.get(&group.0) {
            Some(holder) if holder.slot != owner => ReplayPlace::Held,
            _ => ReplayPlace::Consumer(owner),
        }
    }

    /// True if a message may overtake earlier ones of its hash.
    pub(super) fn allows_out_of_order(&self) -> bool {
        self.active
            .as_ref()
            .is_some_and(|active| active.allow_out_of_order)
    }

    /// `slot` got a message of the group.
    pub(super) fn on_delivered(&mut self, group: Group, slot: Slot) {
        if let Some(active) = &mut self.active
            && !active.allow_out_of_order
        {
            let holder = active
                .holders
                .entry(group.0)
                .or_insert(Holder { slot, entries: 0 });
            debug_assert_eq!(holder.slot, slot, "one key pending at two consumers");
            holder.entries += 1;
        }
    }

    /// A message of the group stopped being pending. Whether the group may have to move now.
    pub(super) fn on_released(&mut self, group: Group) -> bool {
        let Some(active) = &mut self.active else {
            return false;
        };
        let Some(holder) = active.holders.get_mut(&group.0) else {
            return false;
        };
        holder.entries -= 1;
        if holder.entries > 0 {
            return false;
        }
        active.holders.remove(&group.0);
        shrink_if_empty(&mut active.holders);
        true
    }

    /// The hashes of a consumer, rising.
    pub(super) fn ranges_of(&self, slot: Slot) -> Vec<HashRange> {
        self.active
            .as_ref()
            .map(|active| active.selector.ranges_of(slot))
            .unwrap_or_default()
    }

    /// Hashes whose pending messages are not at the consumer they belong to. For stats; walks the holders.
    pub(super) fn draining(&self) -> usize {
        let Some(active) = &self.active else { return 0 };
        let is_draining =
            |(hash, holder): &(&u64, &Holder)| active.selector.select(**hash as u32) != Some(holder.slot);
        walk(active.holders.iter()).filter(is_draining).count()
    }
}
