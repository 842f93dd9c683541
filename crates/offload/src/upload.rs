//! Copying one ledger: block by block, the index last.
//!
//! In memory: the block that is being sent and the one that is being filled from the engine's next read. The index is the last
//! thing written, so an attempt without one is an attempt that did not finish.

use bytes::Bytes;
use pharos_ledger::offload::{OffloadError, OffloadSource, OffloadedLedger};
use pharos_runtime::clock;
use pharos_types::EntryId;

use crate::format::{Block, BlockBuilder, Index};
use crate::stats::Counters;
use crate::store::{ObjectWriter, Store, WriteFailure};

/// Entries that one read of the engine brings.
const READ_ENTRIES: usize = 4096;
/// Bytes that one read of the engine brings.
const READ_BYTES: usize = 4 << 20;

/// Copies the ledger.
///
/// Cancel safety: dropping it leaves whatever was sent, parts of an unfinished upload included. Call [`Upload::abort`] instead where
/// that is possible.
pub(crate) struct Upload<'a> {
    store: &'a Store,
    object: &'a OffloadedLedger,
    counters: &'a Counters,
    /// Once there is a second block.
    parts: Option<ObjectWriter>,
    /// The first block, until it is known whether it is the only one.
    held: Option<Block>,
    index: Index,
}

impl<'a> Upload<'a> {
    pub(crate) fn new(store: &'a Store, object: &'a OffloadedLedger, counters: &'a Counters) -> Self {
        Self {
            store,
            object,
            counters,
            parts: None,
            held: None,
            index: Index::new(),
        }
    }

    /// Sends everything; both objects are durable afterwards.
    pub(crate) async fn run(
        &mut self,
        source: &OffloadSource,
        block_bytes: usize,
    ) -> Result<(), OffloadError> {
        let mut builder = BlockBuilder::new(block_bytes);
        let mut next = EntryId(0);
        while next.0 < source.entries {
            let began = clock::now();
            let read = source
                .engine
                .read(self.object.ledger, next, READ_ENTRIES, READ_BYTES)
                .await;
            self.counters.ledger_read(clock::now().since(began));
            let entries = read.map_err(OffloadError::Source)?;
            if entries.is_empty() {
                break;
            }
            for entry in &entries {
                if entry.id != next {
                    return Err(self.wrong_length(next.0, source.entries));
                }
                if let Some(block) = builder.push(entry) {
                    self.send(block).await?;
                }
                next = EntryId(next.0 + 1);
            }
        }
        if next.0 != source.entries {
            return Err(self.wrong_length(next.0, source.entries));
        }
        if let Some(block) = builder.finish() {
            self.send(block).await?;
        }
        self.finish(source).await
    }

    /// Gives up what was sent of the data object, as far as the store can be told.
    pub(crate) async fn abort(&mut self) {
        if let Some(mut parts) = self.parts.take() {
            // The managed ledger deletes the attempt's objects whatever comes of this.
            let _ = parts.abort().await;
        }
    }

    async fn send(&mut self, block: Block) -> Result<(), OffloadError> {
        self.index.push(&block);
        let Some(first) = self.held.take() else {
            if self.parts.is_some() {
                return self.send_part(block).await;
            }
            self.held = Some(block);
            return Ok(());
        };
        self.parts = Some(self.store.begin(&self.object.data_name()).await?);
        self.send_part(first).await?;
        self.send_part(block).await
    }

    async fn send_part(&mut self, block: Block) -> Result<(), OffloadError> {
        let Some(parts) = &mut self.parts else {
            return Err(OffloadError::Stopped);
        };
        let sent = parts.push(block.pieces).await;
        sent.map_err(|error| self.write_failed(&self.object.data_name(), &error))?;
        self.counters.uploaded(block.length);
        Ok(())
    }

    async fn finish(&mut self, source: &OffloadSource) -> Result<(), OffloadError> {
        let data = self.object.data_name();
        if let Some(only) = self.held.take() {
            let put = self.store.put(&data, only.pieces).await;
            put.inspect_err(|_| self.counters.write_error())?;
            self.counters.uploaded(only.length);
        }
        if let Some(parts) = &mut self.parts {
            let completed = parts.complete().await;
            completed.map_err(|error| self.write_failed(&data, &error))?;
            self.parts = None;
        }
        let index: Bytes = self.index.encode(source.bytes, source.closed_at_ms, &source.name);
        let put = self.store.put(&self.object.index_name(), vec![index]).await;
        put.inspect_err(|_| self.counters.write_error())
    }

    fn write_failed(&self, object: &str, error: &WriteFailure) -> OffloadError {
        self.counters.write_error();
        self.store.failed(object, error)
    }

    fn wrong_length(&self, found: u64, expected: u64) -> OffloadError {
        OffloadError::WrongLength {
            ledger: self.object.ledger,
            found,
            expected,
        }
    }
}
