//! Durable end of a managed ledger, for waiters that do not own it.
//!
//! A managed ledger has one ledger at a time whose durable tail counts; when that ledger is closed (so: durable to
//! its end) the next one replaces it here. Waiters watch both the current ledger and its tail.

use std::sync::Arc;

use pharos_ledger::{StorageFault, Tail};
use pharos_types::Ordinal;
use tokio::sync::watch;

use crate::error::DurableError;

/// The ledger whose tail counts now.
#[derive(Clone, Debug)]
pub(crate) struct Active {
    /// Ordinal of its entry 0.
    pub(crate) first: Ordinal,
    /// Its tail; `None` when nothing can be appended any more and everything before `first` is durable.
    pub(crate) tail: Option<watch::Receiver<Tail>>,
    /// A failure of the managed ledger itself.
    pub(crate) failed: Option<Arc<StorageFault>>,
}

impl Active {
    /// The durable end, and why it will not move any more.
    pub(crate) fn state(&self) -> (Ordinal, Option<Arc<StorageFault>>) {
        let Some(tail) = &self.tail else {
            return (self.first, self.failed.clone());
        };
        let tail = tail.borrow();
        let failed = self.failed.clone().or_else(|| tail.failed.clone());
        (self.first.plus(tail.durable), failed)
    }
}

/// A view of the durable end that does not borrow the managed ledger. Clone it freely.
#[derive(Clone, Debug)]
pub struct DurableWatch {
    active: watch::Receiver<Active>,
    /// Last value returned by [`changed`](Self::changed).
    reported: Ordinal,
}

impl DurableWatch {
    pub(crate) fn new(active: watch::Receiver<Active>) -> Self {
        let reported = active.borrow().state().0;
        Self { active, reported }
    }

    /// The durable end now (exclusive).
    #[must_use]
    pub fn end(&self) -> Ordinal {
        self.active.borrow().state().0
    }

    /// Waits until the durable end is beyond what this watch reported last (or was created at) and returns it.
    /// Coalescing: one call covers any number of entries.
    ///
    /// # Errors
    /// [`DurableError`]: it will not move any more. Everything durable was reported before.
    ///
    /// Cancel safety: nothing is lost when the future is dropped.
    pub async fn changed(&mut self) -> Result<Ordinal, DurableError> {
        loop {
            let mut active = self.active.borrow_and_update().clone();
            // Seen before it is read: a change after this line wakes us.
            if let Some(tail) = &mut active.tail {
                tail.mark_unchanged();
            }
            let (end, failed) = active.state();
            if end > self.reported {
                self.reported = end;
                return Ok(end);
            }
            if let Some(fault) = failed {
                return Err(DurableError::Failed(fault));
            }
            let Some(tail) = &mut active.tail else {
                self.active.changed().await.map_err(|_| DurableError::Closed)?;
                continue;
            };
            tokio::select! {
                biased;
                place = self.active.changed() => place.map_err(|_| DurableError::Closed)?,
                moved = tail.changed() => {
                    // A ledger that ended was closed: its place is about to be taken.
                    if moved.is_err() {
                        self.active.changed().await.map_err(|_| DurableError::Closed)?;
                    }
                }
            }
        }
    }

    /// Waits until the entry at `ordinal` is durable.
    ///
    /// # Errors
    /// As for [`changed`](Self::changed).
    ///
    /// Cancel safety: as for [`changed`](Self::changed).
    pub async fn reaches(&mut self, ordinal: Ordinal) -> Result<(), DurableError> {
        while self.reported <= ordinal {
            self.changed().await?;
        }
        Ok(())
    }
}
