//! The writer of one ledger.

use std::sync::Arc;

use futures_util::FutureExt;
use tokio::sync::{oneshot, watch};

use pharos_ledger::{AppendError, BoxFuture, LedgerWriter, NewEntry, Sealed, StorageFault, Tail};
use pharos_types::{EntryId, LedgerId};

use crate::ledgers::{Ledger, LedgerState, Phase};
use crate::queue::{NotQueued, Op};
use crate::shared::Shared;

#[derive(Debug)]
pub(crate) struct Writer {
    shared: Arc<Shared>,
    ledger: Arc<Ledger>,
    tail: watch::Receiver<Tail>,
}

impl Writer {
    pub(crate) fn new(shared: Arc<Shared>, ledger: Arc<Ledger>, tail: watch::Receiver<Tail>) -> Self {
        Self { shared, ledger, tail }
    }
}

/// Queues the seal of a ledger that gets no more appends, and says how to hear of it.
pub(crate) fn queue_seal(
    shared: &Shared,
    ledger: &Arc<Ledger>,
    state: &mut LedgerState,
) -> Result<oneshot::Receiver<Result<Sealed, Arc<StorageFault>>>, Arc<StorageFault>> {
    let (answer, answered) = oneshot::channel();
    if !state.seal_queued {
        let op = Op::Seal {
            ledger: Arc::clone(ledger),
            entry_count: state.entry_next,
        };
        shared
            .journal_of(ledger)
            .queue
            .push(op)
            .map_err(|(_, fault)| fault)?;
        state.seal_queued = true;
    }
    state.seal_waiters.push(answer);
    Ok(answered)
}

impl LedgerWriter for Writer {
    fn id(&self) -> LedgerId {
        self.ledger.id
    }

    fn append_entry(&self, entry: NewEntry) -> Result<EntryId, AppendError> {
        let NewEntry { payload, crc32c } = entry;
        let ledger = self.ledger.id;
        let bytes_max = self.shared.options.entry_bytes_max;
        if payload.len() > bytes_max {
            return Err(AppendError::TooLarge {
                bytes: payload.len(),
                bytes_max,
            });
        }
        let mut state = self.ledger.lock();
        if let Some(refusal) = state.refusal(ledger) {
            return Err(refusal);
        }
        let entry = state.entry_next;
        let op = Op::Entry {
            ledger: Arc::clone(&self.ledger),
            entry,
            payload,
            crc32c,
        };
        self.shared
            .journal_of(&self.ledger)
            .queue
            .push_entry(op)
            .map_err(|refused| match refused {
                NotQueued::Poisoned(fault) => AppendError::Poisoned(fault),
                NotQueued::NoSpace => AppendError::NoSpace { ledger },
                NotQueued::Overloaded => AppendError::Overloaded {
                    ledger,
                    bytes_max: self.shared.options.queue_bytes_max,
                },
            })?;
        state.entry_next += 1;
        Ok(EntryId(entry))
    }

    fn tail(&self) -> watch::Receiver<Tail> {
        self.tail.clone()
    }

    fn close(&self) -> BoxFuture<'_, Result<(), AppendError>> {
        async {
            let ledger = self.ledger.id;
            let answered = {
                let mut state = self.ledger.lock();
                if let (Phase::Fenced | Phase::GivenUp, Some(refusal)) = (state.phase, state.refusal(ledger))
                {
                    return Err(refusal);
                }
                state.phase = Phase::Closed;
                if state.sealed.is_some() {
                    return Ok(());
                }
                queue_seal(&self.shared, &self.ledger, &mut state).map_err(AppendError::Poisoned)?
            };
            match answered.await {
                Ok(Ok(_)) => Ok(()),
                Ok(Err(_)) if self.ledger.lock().deleted => Err(AppendError::Fenced { ledger }),
                Ok(Err(fault)) if fault.is_transient() => Err(AppendError::GivenUp { ledger, fault }),
                Ok(Err(fault)) => Err(AppendError::Poisoned(fault)),
                Err(_) => Err(AppendError::Poisoned(StorageFault::new(
                    "close",
                    "storage is gone",
                ))),
            }
        }
        .boxed()
    }
}
