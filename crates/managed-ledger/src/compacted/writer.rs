//! Stored part of one topic compaction run.

use std::collections::BTreeMap;
use std::sync::Arc;

use pharos_ledger::{
    Affinity, AppendError, CreateOptions, Durability, LedgerEngine, LedgerWriter, Replication, StorageFault,
};
use pharos_metadata::MetadataLayout;
use pharos_types::{LedgerId, Ordinal};

use super::record::CompactedEntry;
use super::view::CompactedView;
use crate::cursor::AckState;
use crate::error::ReadError;
use crate::info::{CompactionInfo, InfoError, InfoHandle, ManagedLedgerInfo};
use crate::ledger::ManagedLedger;
use crate::pulsar::compacted::{self, LedgerPlaces, NamedLedger};
use crate::pulsar::compaction;
use crate::pulsar::cursor::{CursorState, state_of};
use crate::table::LedgerTable;

/// Limit of bytes given to the engine and not yet durable; above it a run waits.
const IN_FLIGHT_BYTES_MAX: usize = 4 << 20;

/// Reason why a topic compaction run ended without a compacted ledger. The earlier compacted ledger is unchanged.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CompactionError {
    /// The managed ledger is a shadow: it shows the entries of another.
    #[error("a shadow topic has nothing of its own to compact")]
    Shadow,
    /// No ledger can be created.
    #[error("cannot create a compacted ledger")]
    Create(#[from] pharos_ledger::CreateError),
    /// The engine refused an entry.
    #[error("cannot append to the compacted ledger")]
    Append(#[from] AppendError),
    /// The compacted ledger failed.
    #[error("the compacted ledger has failed")]
    Failed(#[source] Arc<StorageFault>),
    /// The compacted ledger cannot be named. Whether it is named is known at the next opening, if the store did not say.
    #[error("cannot name the compacted ledger")]
    Info(#[from] InfoError),
    /// The entries to compact cannot be read.
    #[error("cannot read what is to be compacted")]
    Read(#[from] ReadError),
}

/// Compacted ledgers of a managed ledger.
pub struct CompactedLedgers {
    engine: Arc<dyn LedgerEngine>,
    info: Arc<InfoHandle>,
    is_shadow: bool,
    table: LedgerTable,
    durable_end: Ordinal,
    replication: Option<Replication>,
    affinity: Option<Arc<Affinity>>,
}

impl CompactedLedgers {
    /// The compacted ledgers of an open managed ledger, whose cursors are open too.
    #[must_use]
    pub fn of(ledger: &ManagedLedger) -> Self {
        Self {
            engine: Arc::clone(ledger.engine()),
            info: Arc::clone(ledger.info()),
            is_shadow: ledger.is_shadow(),
            table: ledger.table(),
            durable_end: ledger.durable_end(),
            replication: ledger.replication(),
            affinity: ledger.affinity(),
        }
    }

    /// The stored compacted view.
    #[must_use]
    pub fn view(&self) -> Option<CompactedView> {
        match self.info.layout() {
            MetadataLayout::Pharos => CompactedView::of(&self.info.seen().compaction?, &self.engine),
            MetadataLayout::Pulsar => Some(CompactedView::of_named(self.info.compacted()?, &self.engine)),
        }
    }

    /// Checks that the managed ledger can be compacted, whatever its entries.
    ///
    /// # Errors
    /// `Shadow`.
    pub fn check(&self) -> Result<(), CompactionError> {
        match self.is_shadow {
            true => Err(CompactionError::Shadow),
            false => Ok(()),
        }
    }

    /// Begins a compacted ledger. One at a time: the owner sees to it.
    ///
    /// # Errors
    /// [`CompactionError`].
    pub async fn begin(self) -> Result<CompactedWriter, CompactionError> {
        self.check()?;
        let pulsar = match self.info.layout() {
            MetadataLayout::Pharos => None,
            MetadataLayout::Pulsar => Some(PulsarForm::of(&self)),
        };
        // The info will name it: it must not be less durable.
        let options = CreateOptions {
            durability: Durability::Sync,
            is_background: true,
            replication: self.replication,
            affinity: self.affinity.as_deref().cloned(),
            custom: match &pulsar {
                None => BTreeMap::new(),
                Some(_) => {
                    let last = self.durable_end.0.checked_sub(1);
                    let last = last.and_then(|last| self.table.position_of(Ordinal(last)));
                    compacted::custom(self.info.name(), last)
                }
            },
            ..CreateOptions::default()
        };
        let Self { engine, info, .. } = self;
        // Of a run whose end the store did not confirm. In Pulsar's layout the node may name it all the same.
        let is_unconfirmed = info.seen().compaction.is_some_and(|it| it.writing.is_some());
        let named = match is_unconfirmed && pulsar.is_some() {
            true => compaction::named(&info).await?,
            false => None,
        };
        let writer = engine.create(options).await?;
        let id = writer.id().0;
        let begun = info.update(|info| {
            let compaction = info.compaction.get_or_insert_default();
            let unfinished = compaction.writing.replace(id).filter(|other| *other != id);
            let unnamed = match unfinished {
                // The one before it is read as long as the topic is loaded, and deleted by the next opening.
                Some(other) if named == Some(other) => compaction.ledger.replace(other),
                other => other,
            };
            unnamed.into_iter().for_each(|other| info.give_up(other));
        });
        // On an error it is empty, and given up at the next opening if it was named.
        begun.await?;
        Ok(CompactedWriter {
            engine,
            info,
            writer,
            in_flight: 0,
            entries: 0,
            bytes: 0,
            pulsar,
        })
    }

    /// Gives up what was compacted: the topic is as if it never was. What was trimmed from the log is gone then. Durable when it
    /// resolves.
    ///
    /// # Errors
    /// [`InfoError`].
    pub async fn forget(self) -> Result<(), InfoError> {
        let Self { engine, info, .. } = self;
        let named = info.seen().compaction.and_then(|compaction| compaction.ledger);
        if info.layout() == MetadataLayout::Pulsar {
            compaction::forget(&info).await?;
            info.set_compacted(None, None);
        }
        let forget = info.update(|info| {
            for ledger in info.compaction.take().into_iter().flat_map(|it| it.ledgers()) {
                info.give_up(ledger);
            }
        });
        forget.await?;
        if let Some(ledger) = named {
            delete(&*engine, &info, LedgerId(ledger)).await;
        }
        Ok(())
    }
}

/// A compacted ledger that is being written. Dropping it leaves it to the next opening, which deletes it.
pub struct CompactedWriter {
    engine: Arc<dyn LedgerEngine>,
    info: Arc<InfoHandle>,
    writer: Arc<dyn LedgerWriter>,
    in_flight: usize,
    entries: u64,
    bytes: u64,
    /// In Pulsar's layout.
    pulsar: Option<PulsarForm>,
}

/// State of a run in Pulsar's format.
struct PulsarForm {
    /// The log as it was when the run began.
    table: LedgerTable,
    /// First ordinals of the ledgers that it may read.
    places: LedgerPlaces,
    /// The ledgers of those that it wrote, rising.
    used: Vec<LedgerId>,
    partition: Option<i32>,
}

impl PulsarForm {
    fn of(ledgers: &CompactedLedgers) -> Self {
        let before = ledgers.info.compacted();
        let before = before.as_ref().map_or(&[][..], |before| before.places.rows());
        Self {
            table: ledgers.table.clone(),
            places: LedgerPlaces::along(before, &ledgers.table),
            used: Vec::new(),
            partition: compacted::partition_of(ledgers.info.name()),
        }
    }

    /// The place of a horizon as a cursor has it.
    fn mark(&self, horizon: Ordinal) -> CursorState {
        let nowhere = CursorState {
            mark_delete: (-1, -1),
            ..CursorState::default()
        };
        state_of(&AckState::new(horizon), &self.table).unwrap_or(nowhere)
    }
}

impl CompactedWriter {
    /// Writes the next entry; waits while too much is on its way. Ordinals must rise.
    ///
    /// # Errors
    /// `Append`, `Failed`.
    pub async fn push(&mut self, entry: &CompactedEntry) -> Result<(), CompactionError> {
        let encoded = match &mut self.pulsar {
            None => entry.encode(),
            Some(form) => {
                if form.used.last() != Some(&entry.position.ledger) {
                    form.used.push(entry.position.ledger);
                }
                compacted::encode(entry, form.partition)
            }
        };
        self.in_flight += encoded.len();
        self.bytes += entry.payload.len() as u64;
        self.writer.append(encoded)?;
        self.entries += 1;
        if self.in_flight >= IN_FLIGHT_BYTES_MAX {
            self.in_flight = 0;
            let entries = self.entries;
            let mut tail = self.writer.tail();
            let reached = tail.wait_for(|tail| tail.durable >= entries || tail.failed.is_some());
            if let Ok(Some(fault)) = reached.await.map(|tail| tail.failed.clone()) {
                return Err(CompactionError::Failed(fault));
            }
        }
        Ok(())
    }

    /// All of it is durable; then it takes the place of the one before it, as what is left of everything before `horizon`.
    ///
    /// # Errors
    /// [`CompactionError`].
    pub async fn finish(self, horizon: Ordinal, now_ms: u64) -> Result<CompactedView, CompactionError> {
        self.writer.close().await?;
        let id = self.writer.id().0;
        let mut done = CompactionInfo {
            ledger: Some(id),
            ..CompactionInfo::default()
        };
        let named = match &self.pulsar {
            Some(form) => {
                let set = compaction::set_name(&self.info, id, &form.mark(horizon), now_ms).await;
                if let Err(refused) = set {
                    if refused.is_certain {
                        // Nothing names it; that it was written is noted until the next run or opening.
                        let _ = self.engine.delete(LedgerId(id)).await;
                    }
                    return Err(refused.error.into());
                }
                Some(NamedLedger {
                    ledger: LedgerId(id),
                    horizon,
                    entries: self.entries,
                    bytes: self.bytes,
                    places: form.places.of(&form.used),
                })
            }
            None => {
                done.horizon = horizon.0;
                (done.entries, done.bytes, done.at_ms) = (self.entries, self.bytes, now_ms);
                None
            }
        };
        let mut old = None;
        let name = |info: &mut ManagedLedgerInfo| {
            let before = info.compaction.replace(done).and_then(|before| before.ledger);
            old = before.filter(|before| *before != id);
            if let Some(old) = old {
                info.give_up(old);
            }
        };
        self.info.update(name).await?;
        let view = match named {
            Some(named) => {
                self.info.set_compacted(Some(named.clone()), None);
                Some(CompactedView::of_named(named, &self.engine))
            }
            None => CompactedView::of(&done, &self.engine),
        };
        if let Some(old) = old {
            delete(&*self.engine, &self.info, LedgerId(old)).await;
        }
        view.ok_or_else(|| InfoError::Gone(self.info.name().to_owned()).into())
    }

    /// Gives it up.
    pub async fn abandon(self) {
        let id = self.writer.id();
        let forget = self.info.update(|info| {
            if let Some(compaction) = &mut info.compaction {
                compaction.writing = None;
            }
            info.give_up(id.0);
        });
        // What cannot be stored now the next opening does.
        if forget.await.is_ok() {
            delete(&*self.engine, &self.info, id).await;
        }
    }
}

/// Deletes a ledger that was given up. What fails the next opening does.
async fn delete(engine: &dyn LedgerEngine, info: &InfoHandle, ledger: LedgerId) {
    if engine.delete(ledger).await.is_ok() {
        info.note_deleted(ledger);
    }
}
