//! A ledger with the state of one cursor in Pulsar's form, for what its node has no room for. Pulsar's brokers read parts of batches from
//! such a ledger only: the node names it, and its last entry counts.
//!
//! It is written for as long as the topic is open. What follows a crash goes to another one.

use std::sync::Arc;

use bytes::Bytes;
use pharos_ledger::{CreateOptions, LedgerEngine, LedgerWriter};

use super::commit::DurableAt;
use crate::error::CommitError;

/// Entries and bytes after which another takes its place: only the last entry is ever read.
const ENTRIES_MAX: u64 = 50_000;
const BYTES_MAX: u64 = 32 << 20;

/// One, open.
pub(super) struct NodeLedger {
    writer: Arc<dyn LedgerWriter>,
    entries: u64,
    bytes: u64,
}

impl NodeLedger {
    pub(super) async fn create(
        engine: &dyn LedgerEngine,
        options: CreateOptions,
    ) -> Result<Self, CommitError> {
        Ok(Self {
            writer: engine.create(options).await?,
            entries: 0,
            bytes: 0,
        })
    }

    pub(super) fn id(&self) -> u64 {
        self.writer.id().0
    }

    pub(super) fn is_full(&self) -> bool {
        self.entries >= ENTRIES_MAX || self.bytes >= BYTES_MAX
    }

    /// Appends a state; it is durable when this returns.
    ///
    /// # Errors
    /// [`CommitError`]: nothing more is to be appended, as whether this one is there is not known.
    pub(super) async fn append(&mut self, entry: Bytes) -> Result<(), CommitError> {
        self.bytes += entry.len() as u64;
        let id = self.writer.append(entry)?;
        self.entries = id.0 + 1;
        DurableAt::after(self.writer.tail(), self.entries).reached().await
    }

    /// Closes it, so that the next owner need not recover it.
    pub(super) async fn close(self) {
        if let Err(error) = self.writer.close().await {
            tracing::debug!(ledger = self.id(), %error, "a cursor's ledger is left open");
        }
    }
}
