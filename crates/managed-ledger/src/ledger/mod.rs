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

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use pharos_ledger::{BoxFuture, Durability, LedgerEngine, LedgerWriter, NewEntry, StorageFault};
use pharos_types::{EntryId, Ordinal, Position};
use tokio::sync::watch;

mod append;
mod lifecycle;
mod maintain;
mod offload;
mod offload_steps;
mod offload_view;
mod open;
mod read;
#[cfg(test)]
mod tests;
mod trim;

pub use append::Appended;
pub use lifecycle::{delete, exists, forget_cursors};
pub use maintain::{MaintenanceDone, MaintenanceError, MaintenanceEvent};
pub use offload::{OffloadAskError, OffloadStats, OffloadStatus};
pub use open::OpenMode;
pub use read::{Entry, LedgerReader, ReadTo};

use crate::cache::EntryCache;
use crate::durable::{Active, DurableWatch};
use crate::info::{InfoError, InfoHandle};
use crate::options::Options;
use crate::table::{LedgerRow, LedgerTable};
use maintain::Job;

/// Bytes that may wait for a handover.
const WAITING_BYTES_MAX: usize = 64 << 20;

/// One topic's log. See the module.
pub struct ManagedLedger {
    name: Arc<str>,
    engine: Arc<dyn LedgerEngine>,
    /// The stored info; shared with the cursor log.
    info: Arc<InfoHandle>,
    options: Options,
    /// The chain, oldest first. The last row is the one that entries are appended to.
    rows: Vec<LedgerRow>,
    /// First ordinal that is left, also when no row is.
    first: Ordinal,
    /// The chain as others see it; made anew when the chain changes, not on appends.
    table: LedgerTable,
    /// Takes the appends of the ledger whose tail counts; `None` once terminated.
    writer: Option<Arc<dyn LedgerWriter>>,
    /// Steps 2 and 3 of a rollover.
    handover: Option<Handover>,
    /// Entries that have positions in the last row's ledger but are not queued there: it waits for the one before to be
    /// closed, or the engine is full. Counted in `waiting_bytes` and bounded by [`WAITING_BYTES_MAX`].
    waiting: VecDeque<NewEntry>,
    waiting_bytes: usize,
    /// Step 1 of a rollover.
    next: Next,
    /// The ledger whose tail counts, for [`DurableWatch`].
    active: watch::Sender<Active>,
    cache: EntryCache,
    /// Steps that may be done in any order and again after a failure.
    jobs: VecDeque<Job>,
    /// Steps that failed wait until then.
    retry_at_ms: u64,
    /// The owner's clock as of its last call.
    now_ms: u64,
    /// How durable the last row's ledger makes its entries.
    durability: Durability,
    /// When the last row's ledger was opened; its age decides about rollover.
    opened_ms: u64,
    /// The end as of the last call that saw it move, and when that was.
    moved: (Ordinal, u64),
    /// The owner wants a rollover whatever the limits say.
    is_roll_asked: bool,
    end: End,
    /// Copies of closed ledgers in object stores.
    offload: offload::Offloading,
    /// Why nothing can be appended any more; the first reason stays.
    failure: Option<Failure>,
}

/// A rollover between the last append to the old ledger and the first to the new one.
struct Handover {
    writer: Arc<dyn LedgerWriter>,
    /// Whether the old ledger's close was handed out.
    is_closing: bool,
}

/// The ledger after the current one.
enum Next {
    None,
    Preparing,
    /// Named in the info, empty.
    Ready(NewLedger),
}

/// A ledger that was just created.
struct NewLedger {
    writer: Arc<dyn LedgerWriter>,
    durability: Durability,
}

/// How far termination has come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Endless,
    /// Appends are refused; the last ledger is yet to be closed.
    Asked,
    /// Its close was handed out.
    Closing,
    Terminated,
}

#[derive(Clone)]
enum Failure {
    Fenced,
    Fault(Arc<StorageFault>),
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
        self.first
    }

    /// Ordinal of the next entry (exclusive end of what is appended).
    #[must_use]
    pub fn end(&self) -> Ordinal {
        self.rows.last().map_or(self.first, LedgerRow::end)
    }

    /// Exclusive end of what is durable: entries before it may be acknowledged and delivered.
    #[must_use]
    pub fn durable_end(&self) -> Ordinal {
        self.active.borrow().state().0
    }

    /// The durable end for those who do not own this.
    #[must_use]
    pub fn durable_watch(&self) -> DurableWatch {
        DurableWatch::new(self.active.subscribe())
    }

    /// Position of the last appended entry; `None` when none is left.
    #[must_use]
    pub fn last_position(&self) -> Option<Position> {
        let row = self.rows.iter().rev().find(|row| row.entries > 0)?;
        Some(Position {
            ledger: row.id,
            entry: EntryId(row.entries - 1),
        })
    }

    /// The chain as others may hold it. Compare [`LedgerTable::version`] to see whether theirs is old.
    #[must_use]
    pub fn table(&self) -> LedgerTable {
        self.table.clone()
    }

    /// The ledgers with their counts as of now, oldest first; the last takes the appends unless terminated.
    #[must_use]
    pub fn ledgers(&self) -> &[LedgerRow] {
        &self.rows
    }

    /// The position of an entry; `None` when it is trimmed or not appended yet.
    #[must_use]
    pub fn position_of(&self, ordinal: Ordinal) -> Option<Position> {
        if ordinal < self.end() {
            self.table.position_of(ordinal)
        } else {
            None
        }
    }

    /// Where `position` lies among the appended entries.
    #[must_use]
    pub fn ordinal_of(&self, position: Position) -> crate::Lookup {
        self.table.ordinal_of(position, self.end())
    }

    /// Whether no entry can ever be appended again.
    #[must_use]
    pub fn is_terminated(&self) -> bool {
        self.end != End::Endless
    }

    /// How durable entries are made from the next ledger on. When that differs from what the current ledger does, the next
    /// one is begun at once, whatever the limits say.
    pub fn set_durability(&mut self, durability: Durability) {
        self.options.durability = durability;
    }

    /// How durable the ledger that takes the appends makes them.
    #[must_use]
    pub fn durability(&self) -> Durability {
        self.durability
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

    /// When it was created, in milliseconds since 1970.
    #[must_use]
    pub fn created_ms(&self) -> u64 {
        self.info.seen().created_ms
    }

    /// Figures as of now.
    #[must_use]
    pub fn stats(&self) -> LedgerStats {
        LedgerStats {
            first: self.first,
            end: self.end(),
            durable_end: self.durable_end(),
            bytes: self.rows.iter().map(|row| row.bytes).sum(),
            ledgers: self.rows.len(),
            cache_bytes: self.cache.bytes(),
            maintenance_pending: self.jobs.len() + usize::from(self.handover.is_some()),
        }
    }

    pub(crate) fn engine(&self) -> &Arc<dyn LedgerEngine> {
        &self.engine
    }

    pub(crate) fn info(&self) -> &Arc<InfoHandle> {
        &self.info
    }

    /// Makes the table anew after the chain changed.
    fn rebuild_table(&mut self) {
        let is_open = self.writer.is_some() || self.handover.is_some();
        let version = self.table.version() + 1;
        self.table = LedgerTable::new(&self.rows, self.first, is_open, version);
    }

    /// Nothing more can be appended; watchers are told after what is durable.
    fn fail(&mut self, failure: Failure) {
        if self.failure.is_none() {
            let fault = match &failure {
                Failure::Fenced => StorageFault::transient("managed ledger", "another owner took over"),
                Failure::Fault(fault) => Arc::clone(fault),
            };
            self.failure = Some(failure);
            self.active.send_modify(|active| active.failed = Some(fault));
        }
    }
}
