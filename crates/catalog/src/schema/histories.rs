//! The copy of all schemas, by topic.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use tokio::sync::{Semaphore, SemaphorePermit};

use super::history::{History, SchemaEntry};

/// Schema histories of topics. Writers lock the name of a history; readers take the current value.
pub(crate) struct Histories {
    /// By schema id, the `tenant/namespace/topic` that all partitions share.
    known: RwLock<HashMap<String, Arc<History>>>,
    /// Permit to compare large schemas, one at a time.
    turn: Semaphore,
}

impl Histories {
    pub(crate) fn new(known: HashMap<String, Arc<History>>) -> Self {
        Self {
            known: RwLock::new(known),
            turn: Semaphore::new(1),
        }
    }

    /// A history; empty when there is none.
    pub(crate) fn of(&self, id: &str) -> Arc<History> {
        self.read().get(id).map(Arc::clone).unwrap_or_default()
    }

    /// All that there are.
    pub(crate) fn all(&self) -> Vec<(String, Arc<History>)> {
        let known = self.read();
        known
            .iter()
            .map(|(id, history)| (id.clone(), Arc::clone(history)))
            .collect()
    }

    /// Puts one in the place of what was there; an empty one is none.
    pub(crate) fn put(&self, id: String, history: History) {
        let is_empty = history.versions().next().is_none();
        match is_empty {
            true => _ = self.write().remove(&id),
            false => _ = self.write().insert(id, Arc::new(history)),
        }
    }

    /// Adds the next version of one.
    pub(crate) fn push(&self, id: &str, entry: SchemaEntry) {
        let mut known = self.write();
        let history = known.entry(id.to_owned()).or_default();
        Arc::make_mut(history).push(entry);
    }

    pub(crate) fn remove(&self, id: &str) {
        self.write().remove(id);
    }

    /// Waits for the turn to have large schemas compared. `None` never comes; if it did, going on without a turn is right.
    pub(crate) async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        self.turn.acquire().await.ok()
    }

    // A panic while the lock is held can only come from a bug in a line of map access; the map is whole either way.
    fn read(&self) -> RwLockReadGuard<'_, HashMap<String, Arc<History>>> {
        self.known.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, HashMap<String, Arc<History>>> {
        self.known.write().unwrap_or_else(PoisonError::into_inner)
    }
}
