//! All coordinators of a broker. Each is changed by its home shard alone; topics and people look at them from any thread.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pharos_types::{SubscriptionName, TopicName, TxnId};

use crate::coordinator::Coordinator;

/// The coordinators of a broker, by number. A lock is held for one look or change, never over an await.
#[derive(Debug, Default)]
pub struct Coordinators {
    slots: Box<[Mutex<Option<Coordinator>>]>,
}

/// State of a transaction, as far as participants need it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Open or ending.
    Live,
    /// Ended, or never existed.
    Over,
    /// Its coordinator is not loaded yet.
    Unknown,
}

impl Coordinators {
    /// Creates this number of coordinators, none of them loaded.
    #[must_use]
    pub fn new(count: u32) -> Self {
        Self {
            slots: (0..count).map(|_| Mutex::default()).collect(),
        }
    }

    /// Number of coordinators.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.slots.len() as u64
    }

    /// Puts one in its place, loaded.
    pub fn open(&self, coordinator: Coordinator) {
        if let Some(mut slot) = self.slot(coordinator.id()) {
            *slot = Some(coordinator);
        }
    }

    /// Looks at or changes one; `None`: there is no such, or it is not loaded.
    pub fn with<R>(&self, id: u64, act: impl FnOnce(&mut Coordinator) -> R) -> Option<R> {
        self.slot(id)?.as_mut().map(act)
    }

    /// True if a message may be published to a topic in a transaction.
    #[must_use]
    pub fn may_publish(&self, txn: TxnId, topic: &TopicName) -> bool {
        let may = self.with(txn.most, |coordinator| coordinator.may_publish(txn, topic));
        may.unwrap_or(false)
    }

    /// True if a subscription may acknowledge in a transaction.
    #[must_use]
    pub fn may_acknowledge(&self, txn: TxnId, of: &(TopicName, SubscriptionName)) -> bool {
        let may = self.with(txn.most, |coordinator| coordinator.may_acknowledge(txn, of));
        may.unwrap_or(false)
    }

    /// State of a transaction.
    #[must_use]
    pub fn standing(&self, txn: TxnId) -> Standing {
        let Some(slot) = self.slot(txn.most) else {
            return Standing::Over;
        };
        match &*slot {
            None => Standing::Unknown,
            Some(coordinator) if coordinator.get(txn).is_some() => Standing::Live,
            Some(_) => Standing::Over,
        }
    }

    fn slot(&self, id: u64) -> Option<MutexGuard<'_, Option<Coordinator>>> {
        let slot = self.slots.get(usize::try_from(id).ok()?)?;
        // A look that panicked changed nothing by halves.
        Some(slot.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
