//! Sources from which a ledger can be read: the engine, an object store, or both.
//!
//! One view is shared by the managed ledger and all its readers, also those given out long ago: a reader must not
//! look for a ledger in the engine when that copy is gone.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use pharos_ledger::offload::{LedgerOffloader, OffloadError, OffloadedLedger, ReadFirst};
use pharos_ledger::{LedgerEngine, ReadEntry};
use pharos_types::{EntryId, LedgerId};

use crate::error::ReadError;
use crate::info::ManagedLedgerInfo;

/// The copies in object stores.
#[derive(Default)]
pub(crate) struct OffloadView {
    offloader: Option<Arc<dyn LedgerOffloader>>,
    ledgers: HashMap<LedgerId, Copied>,
    read_first: ReadFirst,
}

/// A copy in an object store.
pub(crate) struct Copied {
    pub(crate) object: OffloadedLedger,
    /// True if the engine's copy is deleted, or about to be.
    is_only: bool,
}

impl OffloadView {
    pub(crate) fn new(
        offloader: Option<Arc<dyn LedgerOffloader>>,
        info: &ManagedLedgerInfo,
        read_first: ReadFirst,
    ) -> Self {
        let complete = info.offloads.iter().filter(|row| row.is_complete());
        let copied = complete.map(|row| {
            let copied = Copied {
                object: info.object(row),
                is_only: row.local_deleted,
            };
            (LedgerId(row.ledger_id), copied)
        });
        Self {
            offloader,
            ledgers: copied.collect(),
            read_first,
        }
    }

    pub(crate) fn of(&self, ledger: LedgerId) -> Option<&Copied> {
        self.ledgers.get(&ledger)
    }

    pub(crate) fn read_first(&self) -> ReadFirst {
        self.read_first
    }

    pub(crate) fn retain(&mut self, keep: impl Fn(LedgerId) -> bool) {
        self.ledgers.retain(|ledger, _| keep(*ledger));
    }
}

/// The view, for many readers and one writer.
#[derive(Clone)]
pub(crate) struct SharedView {
    view: Arc<Mutex<Arc<OffloadView>>>,
    /// Reads that had to take the copy that was not asked first.
    fallbacks: Arc<AtomicU64>,
}

/// A range of entries to read.
#[derive(Clone, Copy)]
pub(crate) struct Range {
    pub(crate) ledger: LedgerId,
    pub(crate) first: EntryId,
    pub(crate) entries_max: usize,
    pub(crate) bytes_max: usize,
}

impl SharedView {
    pub(crate) fn new(view: OffloadView) -> Self {
        Self {
            view: Arc::new(Mutex::new(Arc::new(view))),
            fallbacks: Arc::default(),
        }
    }

    pub(crate) fn get(&self) -> Arc<OffloadView> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set(&self, view: OffloadView) {
        *self.view.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(view);
    }

    /// Reads from whichever copy there is, as the policy prefers.
    pub(crate) async fn read(
        &self,
        engine: &dyn LedgerEngine,
        range: Range,
    ) -> Result<Vec<ReadEntry>, ReadError> {
        let view = self.get();
        let Some(copied) = view.of(range.ledger) else {
            return match read_local(engine, range).await {
                // It may have been offloaded and deleted since we looked.
                Err(ReadError::Trimmed(_)) if self.get().of(range.ledger).is_some() => {
                    self.read_tiered(range).await
                }
                outcome => outcome,
            };
        };
        if copied.is_only {
            return self.read_tiered(range).await;
        }
        match view.read_first {
            ReadFirst::Tiered => match self.read_tiered(range).await {
                Err(ReadError::Offload(error)) => {
                    self.fell_back(range.ledger, "the object store", &error);
                    read_local(engine, range)
                        .await
                        .map_err(|_| ReadError::Offload(error))
                }
                outcome => outcome,
            },
            ReadFirst::Local => match read_local(engine, range).await {
                Err(error) => {
                    self.fell_back(range.ledger, "the engine", &error);
                    self.read_tiered(range).await
                }
                outcome => outcome,
            },
        }
    }

    async fn read_tiered(&self, range: Range) -> Result<Vec<ReadEntry>, ReadError> {
        let view = self.get();
        let Some(copied) = view.of(range.ledger) else {
            return Err(ReadError::Trimmed(range.ledger));
        };
        let object = copied.object.clone();
        let Some(offloader) = &view.offloader else {
            let cause = "this process has no offloader".to_owned();
            let target = object.target;
            return Err(ReadError::Offload(OffloadError::Target { target, cause }));
        };
        let read = offloader.read(object, range.first, range.entries_max, range.bytes_max);
        match read.await {
            // Trimmed while we were at it: its objects go as well.
            Err(OffloadError::Missing { .. }) if self.get().of(range.ledger).is_none() => {
                Err(ReadError::Trimmed(range.ledger))
            }
            outcome => outcome.map_err(ReadError::Offload),
        }
    }

    /// A person should know, but not once for each read.
    fn fell_back(&self, ledger: LedgerId, from: &str, error: &dyn std::error::Error) {
        let count = self.fallbacks.fetch_add(1, Ordering::Relaxed) + 1;
        if count.is_power_of_two() {
            tracing::warn!(%ledger, from, %error, count, "an offloaded ledger is read from its other copy");
        }
    }
}

async fn read_local(engine: &dyn LedgerEngine, range: Range) -> Result<Vec<ReadEntry>, ReadError> {
    let read = engine.read(range.ledger, range.first, range.entries_max, range.bytes_max);
    read.await.map_err(|error| match error {
        pharos_ledger::ReadError::NoSuchLedger(ledger) => ReadError::Trimmed(ledger),
        other => ReadError::Engine(other),
    })
}
