//! Messages that a transaction has acknowledged and that may come back: no consumer has them, and none gets them meanwhile.
//!
//! They outlive a rewind: that the last consumer left does not end a transaction.

use std::collections::BTreeMap;

use pharos_types::Ordinal;

use super::core::Dispatcher;
use super::replay::Group;

/// Withheld entries. The group of an entry that was not read since is unknown.
#[derive(Debug, Default)]
pub(super) struct Withheld(BTreeMap<u64, Option<Group>>);

impl Withheld {
    /// An entry was read. Whether it is withheld; then its group is known from now on.
    #[inline]
    pub(super) fn note(&mut self, ordinal: u64, group: Option<Group>) -> bool {
        if self.0.is_empty() {
            return false;
        }
        match self.0.get_mut(&ordinal) {
            Some(known) => {
                *known = group;
                true
            }
            None => false,
        }
    }

    pub(super) fn remove(&mut self, ordinal: u64) {
        self.0.remove(&ordinal);
    }

    pub(super) fn drop_before(&mut self, end: u64) {
        if !self.0.is_empty() {
            self.0 = self.0.split_off(&end);
        }
    }
}

impl Dispatcher {
    /// These entries are not delivered any more until they are [`release`](Self::release_withheld)d or acknowledged. Their consumers have
    /// done with them: they count against no consumer. What is acknowledged stays so.
    pub fn withhold(&mut self, ordinals: &[Ordinal]) {
        for &ordinal in ordinals {
            if self.acks.is_acked(ordinal) {
                continue;
            }
            let ordinal = ordinal.0;
            let group = match self.release(ordinal) {
                Some(entry) => entry.group,
                None => {
                    let group = self.replay.group_of(ordinal);
                    if !self.replay.remove(ordinal) {
                        self.delayed.remove(ordinal);
                    }
                    group
                }
            };
            self.withheld.0.entry(ordinal).or_insert(group);
        }
    }

    /// These entries are delivered again, before anything new and with a count one higher. Those that are not withheld stay where they
    /// are.
    pub fn release_withheld(&mut self, ordinals: &[Ordinal]) {
        for &Ordinal(ordinal) in ordinals {
            let Some(group) = self.withheld.0.remove(&ordinal) else {
                continue;
            };
            let count = self.redeliveries.entry(ordinal).or_insert(0);
            *count = count.saturating_add(1);
            // What was not read since the last rewind is read as new.
            if ordinal < self.fresh_from {
                self.put_in_replay(ordinal, group);
            }
        }
    }
}
