//! One run of a topic compaction, as far as it is stored.

use std::sync::Arc;

use pharos_ledger::{AppendError, CreateOptions, Durability, LedgerEngine, LedgerWriter, StorageFault};
use pharos_metadata::MetadataLayout;
use pharos_types::{LedgerId, Ordinal};

use super::record::CompactedEntry;
use super::view::CompactedView;
use crate::error::ReadError;
use crate::info::{CompactionInfo, InfoError, InfoHandle};
use crate::ledger::ManagedLedger;

/// What is given to the engine and not durable, in bytes; beyond it a run waits.
const IN_FLIGHT_BYTES_MAX: usize = 4 << 20;

/// Why a run of topic compaction ended without a compacted ledger. What was compacted before is as it was.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CompactionError {
    /// What is compacted in the layout of Pulsar's brokers is theirs.
    #[error(
        "topic compaction is not available on a cluster, where Pulsar's brokers may own the topic as well"
    )]
    Layout,
    /// It shows the entries of another.
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
    /// What is to be compacted cannot be read.
    #[error("cannot read what is to be compacted")]
    Read(#[from] ReadError),
}

/// What a managed ledger has of compacted ledgers.
pub struct CompactedLedgers {
    engine: Arc<dyn LedgerEngine>,
    info: Arc<InfoHandle>,
    is_shadow: bool,
}

impl CompactedLedgers {
    /// Those of an open managed ledger.
    #[must_use]
    pub fn of(ledger: &ManagedLedger) -> Self {
        Self {
            engine: Arc::clone(ledger.engine()),
            info: Arc::clone(ledger.info()),
            is_shadow: ledger.is_shadow(),
        }
    }

    /// What was compacted, as stored.
    #[must_use]
    pub fn view(&self) -> Option<CompactedView> {
        CompactedView::of(&self.info.seen().compaction?, &self.engine)
    }

    /// Whether it could be compacted, whatever is in it.
    ///
    /// # Errors
    /// `Layout`, `Shadow`.
    pub fn check(&self) -> Result<(), CompactionError> {
        match (self.info.layout(), self.is_shadow) {
            (MetadataLayout::Pulsar, _) => Err(CompactionError::Layout),
            (_, true) => Err(CompactionError::Shadow),
            _ => Ok(()),
        }
    }

    /// Begins a compacted ledger. One at a time: the owner sees to it.
    ///
    /// # Errors
    /// [`CompactionError`].
    pub async fn begin(self) -> Result<CompactedWriter, CompactionError> {
        self.check()?;
        let Self { engine, info, .. } = self;
        // The info will name it: it must not be less durable.
        let options = CreateOptions {
            durability: Durability::Sync,
            is_background: true,
            ..CreateOptions::default()
        };
        let writer = engine.create(options).await?;
        let id = writer.id().0;
        let begun = info.update(|info| {
            let compaction = info.compaction.get_or_insert_default();
            // Of a run whose end the store did not confirm, and does not know of.
            let unfinished = compaction.writing.replace(id).filter(|other| *other != id);
            unfinished.into_iter().for_each(|other| info.give_up(other));
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
}

impl CompactedWriter {
    /// Writes the next entry; waits while too much is on its way. Ordinals must rise.
    ///
    /// # Errors
    /// `Append`, `Failed`.
    pub async fn push(&mut self, entry: &CompactedEntry) -> Result<(), CompactionError> {
        let encoded = entry.encode();
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
        let done = CompactionInfo {
            ledger: Some(id),
            horizon: horizon.0,
            entries: self.entries,
            bytes: self.bytes,
            at_ms: now_ms,
            writing: None,
        };
        let mut old = None;
        let name = |info: &mut crate::info::ManagedLedgerInfo| {
            let before = info.compaction.replace(done).and_then(|before| before.ledger);
            old = before.filter(|before| *before != id);
            if let Some(old) = old {
                info.give_up(old);
            }
        };
        self.info.update(name).await?;
        if let Some(old) = old {
            delete(&*self.engine, &self.info, LedgerId(old)).await;
        }
        CompactedView::of(&done, &self.engine)
            .ok_or_else(|| InfoError::Gone(self.info.name().to_owned()).into())
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
