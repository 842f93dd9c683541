//! A topic's endless log: an ordered chain of ledgers in one engine.
//!
//! ```text
//!                    rollover
//!   ┌ closed ┐┌ closed ┐ │ ┌ open ─────────────►  next: created and named ahead
//!   first                                  │   end: appended
//!                                          └ durable end
//! ```
//!
//! A rollover in steps, so that an append never waits and a crash at any point loses nothing acknowledged:
//! 1. the next ledger is created and named in the info, ahead of need;
//! 2. the chain turns to it: from now on entries get positions there, but wait in memory;
//! 3. the old ledger is closed, so all of it is durable; only then the waiting entries go to the new one. A crash can
//!    therefore never leave a later entry without an earlier one;
//! 4. the old ledger's end is recorded in the info. Until then recovery finds it.
//!
//! Owned by exactly one task (the topic on its home shard). It spawns nothing and locks nothing over an await: its slow steps are
//! futures that the owner runs ([`ManagedLedger::take_maintenance`]) and hands back. Others see it through
//! [`LedgerReader`], [`LedgerTable`] and [`DurableWatch`].

use std::collections::BTreeMap;
use std::sync::Arc;

use pharos_ledger::{Affinity, BoxFuture, Durability, LedgerEngine, Replication};
use pharos_types::{Ordinal, Position};

mod append;
mod appending;
mod chain;
mod lifecycle;
mod maintain;
mod offload;
mod offload_steps;
mod offload_view;
mod open;
mod read;
mod rollover;
mod shadow;
mod steps;
#[cfg(test)]
mod tests;
mod trim;

pub use append::Appended;
pub use lifecycle::{delete, delete_as, exists, forget_cursors};
pub use maintain::{MaintenanceDone, MaintenanceError, MaintenanceEvent};
pub use offload::{OffloadAskError, OffloadStats, OffloadStatus, OffloadWork, Offloads};
pub use open::OpenMode;
pub use read::{Entry, Forget, LedgerReader, ReadTo};
pub use shadow::{
    FollowError, Holding, Shadow, SourceFollower, SourceNews, forget_other_shadow, held_by, open_shadow,
};

use crate::cache::EntryCache;
use crate::durable::DurableWatch;
use crate::info::{InfoError, InfoHandle};
use crate::options::Options;
use crate::table::{LedgerRow, LedgerTable};
use appending::Appending;
use chain::Chain;
use rollover::Rollover;
use steps::Steps;

/// Log of one topic. See the module.
pub struct ManagedLedger {
    name: Arc<str>,
    engine: Arc<dyn LedgerEngine>,
    /// The stored info; shared with the cursor log.
    info: Arc<InfoHandle>,
    options: Options,
    /// Ledgers, and the positions of entries in them.
    chain: Chain,
    /// Append state and durable end.
    appending: Appending,
    /// Rollover schedule of the current ledger.
    rollover: Rollover,
    cache: EntryCache,
    /// Steps that may be done in any order and again after a failure.
    steps: Steps,
    /// The owner's clock as of its last call.
    now_ms: u64,
    /// Copies of closed ledgers in object stores.
    offload: offload::Offloading,
    /// State of its source, if this is a shadow: then it appends, trims and offloads nothing.
    shadow: Option<shadow::Shown>,
}

/// Figures of a managed ledger at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LedgerStats {
    /// First ordinal that is left.
    pub first: Ordinal,
    /// After the last appended entry.
    pub end: Ordinal,
    /// After the last durable entry.
    pub durable_end: Ordinal,
    /// Payload bytes in all ledgers.
    pub bytes: u64,
    /// Ledgers in the chain.
    pub ledgers: usize,
    /// Bytes in the entry cache.
    pub cache_bytes: usize,
    /// Steps that wait for the owner to run them.
    pub maintenance_pending: usize,
}

impl ManagedLedger {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Ordinal of the first entry that is left, or of the next one when none is.
    #[must_use]
    pub fn first(&self) -> Ordinal {
        self.chain.first()
    }

    /// Ordinal of the next entry (exclusive end of what is appended).
    #[must_use]
    pub fn end(&self) -> Ordinal {
        self.chain.end()
    }

    /// Exclusive end of what is durable: entries before it may be acknowledged and delivered.
    #[must_use]
    pub fn durable_end(&self) -> Ordinal {
        self.appending.durable_end()
    }

    /// The durable end for those who do not own this.
    #[must_use]
    pub fn durable_watch(&self) -> DurableWatch {
        self.appending.durable_watch()
    }

    /// Position of the last appended entry; `None` when none is left.
    #[must_use]
    pub fn last_position(&self) -> Option<Position> {
        self.chain.last_position()
    }

    /// The chain as others may hold it. Compare [`LedgerTable::version`] to see whether theirs is old.
    #[must_use]
    pub fn table(&self) -> LedgerTable {
        self.chain.table().clone()
    }

    /// The ledgers with their counts as of now, oldest first; the last takes the appends unless terminated.
    #[must_use]
    pub fn ledgers(&self) -> &[LedgerRow] {
        self.chain.rows()
    }

    /// The position of an entry; `None` when it is trimmed or not appended yet.
    #[must_use]
    pub fn position_of(&self, ordinal: Ordinal) -> Option<Position> {
        if ordinal < self.end() {
            self.chain.table().position_of(ordinal)
        } else {
            None
        }
    }

    /// Looks up `position` among the appended entries.
    #[must_use]
    pub fn ordinal_of(&self, position: Position) -> crate::Lookup {
        self.chain.table().ordinal_of(position, self.end())
    }

    /// True if no entry can ever be appended again.
    #[must_use]
    pub fn is_terminated(&self) -> bool {
        self.appending.is_terminated()
    }

    /// Sets the durability of entries from the next ledger on. If it differs from that of the current ledger, the
    /// next one is begun at once, whatever the limits say.
    pub fn set_durability(&mut self, durability: Durability) {
        self.options.durability = durability;
    }

    /// On how many machines and on which entries are kept from the next ledger on; begins one as
    /// [`set_durability`](Self::set_durability) does.
    pub fn set_copies(&mut self, replication: Option<Replication>, affinity: Option<Arc<Affinity>>) {
        self.options.replication = replication;
        self.options.affinity = affinity;
    }

    /// Sets whether shadows follow it; begins a ledger as [`set_durability`](Self::set_durability) does.
    pub fn set_followed(&mut self, is_followed: bool) {
        self.options.is_followed = is_followed;
    }

    /// On how many machines entries are to be kept.
    #[must_use]
    pub fn replication(&self) -> Option<Replication> {
        self.options.replication
    }

    /// Machines that keep its entries.
    #[must_use]
    pub fn affinity(&self) -> Option<Arc<Affinity>> {
        self.options.affinity.clone()
    }

    /// Durability of the ledger that takes the appends.
    #[must_use]
    pub fn durability(&self) -> Durability {
        self.rollover.durability()
    }

    /// Offloaded ledgers and the progress of offloading.
    #[must_use]
    pub fn offloads(&self) -> Offloads<'_> {
        Offloads(self)
    }

    /// The topic's facts, as stored.
    #[must_use]
    pub fn properties(&self) -> BTreeMap<String, String> {
        self.info.seen().properties
    }

    /// Sets (`Some`) and removes (`None`) properties; durable when the future resolves. The owner runs it.
    ///
    /// # Errors
    /// [`InfoError`]: whether they were stored is unknown, unless it is `Fenced` or `Gone`.
    pub fn set_properties(
        &self,
        changes: Vec<(String, Option<String>)>,
    ) -> BoxFuture<'static, Result<(), InfoError>> {
        let info = Arc::clone(&self.info);
        Box::pin(async move {
            let change = |info: &mut crate::info::ManagedLedgerInfo| {
                for (key, value) in &changes {
                    match value {
                        Some(value) => info.properties.insert(key.clone(), value.clone()),
                        None => info.properties.remove(key),
                    };
                }
            };
            info.update(change).await
        })
    }

    /// Creation time, in milliseconds since 1970.
    #[must_use]
    pub fn created_ms(&self) -> u64 {
        self.info.seen().created_ms
    }

    /// Figures as of now.
    #[must_use]
    pub fn stats(&self) -> LedgerStats {
        LedgerStats {
            first: self.first(),
            end: self.end(),
            durable_end: self.durable_end(),
            bytes: self.ledgers().iter().map(|row| row.bytes).sum(),
            ledgers: self.ledgers().len(),
            cache_bytes: self.cache.bytes(),
            maintenance_pending: self.steps.waiting() + usize::from(self.appending.is_turning()),
        }
    }

    pub(crate) fn engine(&self) -> &Arc<dyn LedgerEngine> {
        &self.engine
    }

    pub(crate) fn info(&self) -> &Arc<InfoHandle> {
        &self.info
    }
}
