//! Reads of a topic's log that wait for the store: for searches, for dispatchers, for people who look into it.

use std::cell::RefCell;

use pharos_feed::READ_ENTRIES_MAX;
use pharos_managed_ledger::{Entry, ReadError, ReadTo};
use pharos_types::Ordinal;

use super::{State, TopicContext};

/// Maximum number of times that a read fetches a newer table of ledgers.
const TRIES: usize = 10;

/// The log of a topic, to be read. A read that waits borrows nothing of the topic's state meanwhile.
pub(crate) struct LogReads<'a> {
    pub(super) cx: &'a TopicContext,
    pub(super) state: &'a RefCell<State>,
}

impl<'a> LogReads<'a> {
    pub(super) fn new(cx: &'a TopicContext, state: &'a RefCell<State>) -> Self {
        Self { cx, state }
    }

    /// Some entries from `from` on and before `end`, for who goes through the log. Ledgers may change while they are read.
    ///
    /// # Errors
    /// As [`ManagedLedger::read`](pharos_managed_ledger::ManagedLedger::read).
    pub(super) async fn go_on(
        &self,
        from: Ordinal,
        end: Ordinal,
        bytes_max: usize,
    ) -> Result<Vec<Entry>, ReadError> {
        self.go_on_with(from, end, READ_ENTRIES_MAX, bytes_max).await
    }

    /// Entries as from [`go_on`](Self::go_on), up to a maximum number.
    ///
    /// # Errors
    /// As [`go_on`](Self::go_on).
    pub(super) async fn go_on_with(
        &self,
        from: Ordinal,
        end: Ordinal,
        entries_max: usize,
        bytes_max: usize,
    ) -> Result<Vec<Entry>, ReadError> {
        let entries_max = entries_max.clamp(1, READ_ENTRIES_MAX);
        let mut tries = 1;
        loop {
            let read = {
                let ledger = &self.state.borrow().stored.log.ledger;
                ledger.read_to(from, entries_max, bytes_max, ReadTo::Before(end))
            };
            match read.await {
                Err(ReadError::StaleTable) if tries < TRIES => {
                    tries += 1;
                    tokio::task::yield_now().await;
                }
                outcome => return outcome,
            }
        }
    }
}
