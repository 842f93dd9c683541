//! Content that a store must and may hold.

use std::collections::BTreeMap;

use bytes::Bytes;

use pharos_ledger::Durability;
use pharos_types::LedgerId;

/// State of a ledger as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Exists,
    Sealed,
    /// The call that deletes it never answered.
    PerhapsDeleted,
    Deleted,
}

#[derive(Debug)]
pub(crate) struct Expected {
    pub(crate) durability: Durability,
    pub(crate) fate: Fate,
    /// Everything appended, in order.
    pub(crate) appended: Vec<Bytes>,
    /// Number of entries that must be there.
    pub(crate) kept: usize,
    /// Number of entries that must be there if only the process dies.
    pub(crate) kept_by_system: usize,
    /// Number of entries that were acknowledged since the process started.
    pub(crate) seen: usize,
}

#[derive(Debug, Default)]
pub(crate) struct Model {
    pub(crate) ledgers: BTreeMap<LedgerId, Expected>,
    /// Calls that create a ledger and never answered: so many unknown ones may turn up.
    pub(crate) unborn: usize,
}

impl Expected {
    fn new(durability: Durability) -> Self {
        Self {
            durability,
            fate: Fate::Exists,
            appended: Vec::new(),
            kept: 0,
            kept_by_system: 0,
            seen: 0,
        }
    }
}

impl Model {
    pub(crate) fn created(&mut self, id: LedgerId, durability: Durability) {
        let last = self.ledgers.last_key_value().map(|(last, _)| *last);
        assert!(Some(id) > last, "{id} was given out after {last:?}");
        self.ledgers.insert(id, Expected::new(durability));
    }

    /// The store has started with these ledgers.
    pub(crate) fn started(&mut self, listed: &[LedgerId]) {
        for id in listed {
            if !self.ledgers.contains_key(id) {
                assert!(self.unborn > 0, "ledger {id} was never created");
                self.unborn -= 1;
                self.created(*id, Durability::Sync);
            }
        }
        self.unborn = 0;
    }

    /// The tail of a ledger stands at `durable`.
    pub(crate) fn acknowledged(&mut self, id: LedgerId, durable: u64) {
        let expected = self.ledgers.get_mut(&id).expect("a ledger of the model");
        let durable = durable as usize;
        assert!(
            durable <= expected.appended.len(),
            "ledger {id} acknowledges what was never appended"
        );
        expected.seen = expected.seen.max(durable);
        if expected.durability != Durability::Bypass {
            expected.kept_by_system = expected.kept_by_system.max(durable);
        }
        if expected.durability == Durability::Sync {
            expected.kept = expected.kept.max(durable);
        }
    }

    /// Everything acknowledged has become durable: a sync of everything, a seal, a clean stop.
    pub(crate) fn settled(&mut self, id: LedgerId) {
        if let Some(expected) = self.ledgers.get_mut(&id) {
            expected.kept_by_system = expected.kept_by_system.max(expected.seen);
            expected.kept = expected.kept.max(expected.kept_by_system);
        }
    }

    /// The process died: what it had in memory only may be gone.
    pub(crate) fn process_died(&mut self) {
        for expected in self.ledgers.values_mut() {
            expected.seen = expected.kept_by_system;
        }
    }

    /// The machine lost power: what only the system had may be gone.
    pub(crate) fn machine_crashed(&mut self) {
        for expected in self.ledgers.values_mut() {
            expected.kept_by_system = expected.kept;
            expected.seen = expected.kept;
        }
    }
}
