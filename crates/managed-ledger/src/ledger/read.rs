//! Reading: from the entry cache at once, or from the engine as a future that borrows nothing.

use std::sync::Arc;

use bytes::Bytes;
use pharos_ledger::{BoxFuture, LedgerEngine};
use pharos_types::{EntryId, Ordinal, Position};

use super::ManagedLedger;
use super::offload::{Range, SharedView};
use crate::error::ReadError;
use crate::search::{Search, Seen};
use crate::table::LedgerTable;

/// An entry as read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// In the broker.
    pub ordinal: Ordinal,
    /// On the wire and on disk.
    pub position: Position,
    /// The bytes that were appended.
    pub payload: Bytes,
}

/// Upper end of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadTo {
    /// Durable entries only: what may be delivered.
    Durable,
    /// Durable entries that lie before this place.
    Before(Ordinal),
    /// Also cached entries that a crash may still lose; for the broker's own reads of the tail.
    Appended,
}

/// Entries that the cache drops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forget {
    /// Entries that were already cached two such calls ago. To be called about every ten seconds, also without
    /// traffic: otherwise entries stay until others need their space.
    Aged,
    /// All that is durable: nothing is there to read the newest entries. Wanted whenever entries became durable meanwhile.
    Durable,
}

/// Reads entries through a table, on any shard. Clones are cheap.
#[derive(Clone)]
pub struct LedgerReader {
    engine: Arc<dyn LedgerEngine>,
    table: LedgerTable,
    /// Current view of the ledgers in object stores, not the one at the creation of the reader.
    copies: SharedView,
}

impl ManagedLedger {
    /// Entries from `from` on out of the entry cache: at least one, then as many as fit in `entries_max` and `bytes_max`. `None`
    /// when the first is not cached or not there yet; then ask [`read`](Self::read).
    #[must_use]
    pub fn cached(
        &self,
        from: Ordinal,
        entries_max: usize,
        bytes_max: usize,
        to: ReadTo,
    ) -> Option<Vec<Entry>> {
        let end = match to {
            ReadTo::Durable => self.durable_end(),
            ReadTo::Before(end) => end.min(self.durable_end()),
            ReadTo::Appended => self.end(),
        };
        if from >= end || !self.cache.holds(from) {
            return None;
        }
        let found = self.cache.get(from, end, entries_max.max(1), bytes_max);
        let entry = |(ordinal, payload): (Ordinal, &Bytes)| {
            Some(Entry {
                ordinal,
                position: self.chain.table().position_of(ordinal)?,
                payload: payload.clone(),
            })
        };
        let entries: Vec<_> = found.map_while(entry).collect();
        (!entries.is_empty()).then_some(entries)
    }

    /// Lets the cache go of entries.
    pub fn forget(&mut self, what: Forget) {
        match what {
            Forget::Aged => self.cache.age(),
            Forget::Durable => self.cache.forget_before(self.durable_end()),
        }
    }

    /// Durable entries from `from` on, from the cache or the engine: at least one when there is one, then as many as fit in
    /// `entries_max` and `bytes_max`, possibly fewer (a read ends with its ledger). `from` before the first entry means the
    /// first. Empty at the durable end.
    ///
    /// # Errors
    /// [`ReadError::Trimmed`]: trimmed meanwhile; read again, from the first entry.
    ///
    /// Cancel safety: dropping the future is fine.
    pub fn read(
        &self,
        from: Ordinal,
        entries_max: usize,
        bytes_max: usize,
    ) -> BoxFuture<'static, Result<Vec<Entry>, ReadError>> {
        self.read_to(from, entries_max, bytes_max, ReadTo::Durable)
    }

    /// As [`read`](Self::read), and not beyond `to`.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    ///
    /// Cancel safety: dropping the future is fine.
    pub fn read_to(
        &self,
        from: Ordinal,
        entries_max: usize,
        bytes_max: usize,
        to: ReadTo,
    ) -> BoxFuture<'static, Result<Vec<Entry>, ReadError>> {
        let from = from.max(self.first());
        if let Some(cached) = self.cached(from, entries_max, bytes_max, to) {
            return Box::pin(std::future::ready(Ok(cached)));
        }
        let durable = self.durable_end();
        let end = match to {
            ReadTo::Durable | ReadTo::Appended => durable,
            ReadTo::Before(end) => end.min(durable),
        };
        let reader = self.reader();
        Box::pin(async move { reader.read(from, end, entries_max, bytes_max).await })
    }

    /// A reader of the chain as it is now, for other shards and for searches.
    #[must_use]
    pub fn reader(&self) -> LedgerReader {
        LedgerReader {
            engine: Arc::clone(&self.engine),
            table: self.table(),
            copies: self.offload.view.clone(),
        }
    }

    /// The first durable entry for which `is_found` holds, or the durable end. `is_found` must be false for all entries before
    /// some point and true after it, as "published at or after T" is; it is asked for about log2 of the entries. An entry that
    /// cannot be read counts as the next one that can.
    ///
    /// # Errors
    /// [`ReadError`], when it is not lasting.
    pub fn find_first(
        &self,
        is_found: impl FnMut(&Bytes) -> bool + Send + 'static,
    ) -> BoxFuture<'static, Result<Ordinal, ReadError>> {
        let (reader, end) = (self.reader(), self.durable_end());
        Box::pin(async move { reader.find_first(end, is_found).await })
    }
}

impl LedgerReader {
    /// The table it reads through.
    #[must_use]
    pub fn table(&self) -> &LedgerTable {
        &self.table
    }

    /// Entries of `from..end`, as [`ManagedLedger::read`] but without its cache. `end`: at most the durable end.
    ///
    /// # Errors
    /// [`ReadError::StaleTable`]: the chain went on beyond this reader's table; take a new reader.
    pub async fn read(
        &self,
        from: Ordinal,
        end: Ordinal,
        entries_max: usize,
        bytes_max: usize,
    ) -> Result<Vec<Entry>, ReadError> {
        let from = from.max(self.table.first());
        if from >= end {
            return Ok(Vec::new());
        }
        let Some((index, row)) = self.table.row_of(from) else {
            return Err(ReadError::StaleTable);
        };
        let is_open = self.table.is_open_row(index);
        let row_end = if is_open { end } else { row.end().min(end) };
        if from >= row_end {
            return Err(ReadError::StaleTable);
        }
        let entries_max = entries_max.clamp(1, usize::try_from(from.count_to(row_end)).unwrap_or(usize::MAX));
        let first = EntryId(row.first.count_to(from));
        let range = Range {
            ledger: row.id,
            first,
            entries_max,
            bytes_max,
        };
        let found = self.copies.read(&*self.engine, range).await?;
        let mut entries = Vec::with_capacity(found.len());
        // Engines may give more than asked for when entries are small; never beyond the durable end.
        for (index, read) in found.into_iter().take(entries_max).enumerate() {
            let position = Position {
                ledger: row.id,
                entry: EntryId(first.0 + index as u64),
            };
            if read.id != position.entry {
                return Err(ReadError::Missing(position));
            }
            entries.push(Entry {
                ordinal: from.plus(index as u64),
                position,
                payload: read.payload,
            });
        }
        match entries.is_empty() {
            false => Ok(entries),
            true if is_open => Err(ReadError::StaleTable),
            true => Err(ReadError::Missing(Position {
                ledger: row.id,
                entry: first,
            })),
        }
    }

    /// As [`ManagedLedger::find_first`], before `end`.
    ///
    /// # Errors
    /// [`ReadError`], when it is not lasting.
    pub async fn find_first(
        &self,
        end: Ordinal,
        mut is_found: impl FnMut(&Bytes) -> bool,
    ) -> Result<Ordinal, ReadError> {
        let first = self.table.first();
        let middle = first.plus(first.0.abs_diff(end.0) / 2);
        let mut search = Search::new(first, end, middle);
        while let Some(at) = search.look() {
            search.note(match self.read(at, end, 1, 1).await {
                Ok(entries) if entries.first().is_some_and(|entry| is_found(&entry.payload)) => Seen::Found,
                // What is trimmed meanwhile lies before everything that is left.
                Ok(_) | Err(ReadError::Trimmed(_)) => Seen::Before,
                Err(error) if error.is_lasting() => Seen::Unreadable,
                Err(error) => return Err(error),
            });
        }
        Ok(search.found())
    }
}
