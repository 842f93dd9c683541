//! Reading a compacted ledger: by index, by the place in the log, from any shard.

use std::sync::Arc;

use bytes::Bytes;
use pharos_ledger::LedgerEngine;
use pharos_types::{EntryId, LedgerId, Ordinal, Position};

use super::record::{CompactedEntry, HEADER_BYTES};
use crate::error::ReadError;
use crate::info::CompactionInfo;
use crate::pulsar::compacted::{self, LedgerPlaces, NamedLedger};

/// A compacted ledger that is durable and named. Clones are cheap and see the same ledger, also when another took its place: its
/// reads fail then.
#[derive(Clone)]
pub struct CompactedView {
    engine: Arc<dyn LedgerEngine>,
    ledger: LedgerId,
    horizon: Ordinal,
    entries: u64,
    bytes: u64,
    /// Original positions of its entries, if they are in Pulsar's form.
    places: Option<LedgerPlaces>,
}

impl CompactedView {
    /// The compacted ledger that an info names; `None` if it names none.
    pub(crate) fn of(info: &CompactionInfo, engine: &Arc<dyn LedgerEngine>) -> Option<Self> {
        Some(Self {
            engine: Arc::clone(engine),
            ledger: LedgerId(info.ledger?),
            horizon: Ordinal(info.horizon),
            entries: info.entries,
            bytes: info.bytes,
            places: None,
        })
    }

    /// The compacted ledger that a node of Pulsar's layout names.
    pub(crate) fn of_named(named: NamedLedger, engine: &Arc<dyn LedgerEngine>) -> Self {
        Self {
            engine: Arc::clone(engine),
            ledger: named.ledger,
            horizon: named.horizon,
            entries: named.entries,
            bytes: named.bytes,
            places: Some(named.places),
        }
    }

    /// Its ledger.
    #[must_use]
    pub fn ledger(&self) -> LedgerId {
        self.ledger
    }

    /// Exclusive end of what it stands for: from here on the log is whole.
    #[must_use]
    pub fn horizon(&self) -> Ordinal {
        self.horizon
    }

    /// Entries in it.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// Payload bytes in it; in Pulsar's form with what says where entries were.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Its entries from `index` on, counted from 0: at least one when there is one, then as many as fit in `entries_max` and
    /// `bytes_max`.
    ///
    /// # Errors
    /// [`ReadError::Engine`], of a ledger that is gone when a newer one took its place; [`ReadError::Missing`] of what is no such
    /// entry.
    pub async fn read(
        &self,
        index: u64,
        entries_max: usize,
        bytes_max: usize,
    ) -> Result<Vec<CompactedEntry>, ReadError> {
        if index >= self.entries {
            return Ok(Vec::new());
        }
        let left = usize::try_from(self.entries - index).unwrap_or(usize::MAX);
        let entries_max = entries_max.clamp(1, left);
        let read = self.engine.read(
            self.ledger,
            EntryId(index),
            entries_max,
            bytes_max.max(HEADER_BYTES),
        );
        let found = read.await.map_err(ReadError::Engine)?;
        let missing = |entry| ReadError::Missing(Position::new(self.ledger.0, entry));
        if found.is_empty() {
            return Err(missing(index));
        }
        let found = found.into_iter().take(entries_max);
        found
            .map(|entry| self.decode(entry.payload).ok_or_else(|| missing(entry.id.0)))
            .collect()
    }

    fn decode(&self, entry: Bytes) -> Option<CompactedEntry> {
        match &self.places {
            None => CompactedEntry::decode(entry),
            Some(places) => {
                let entry = compacted::decode(entry, places)?;
                (entry.ordinal < self.horizon).then_some(entry)
            }
        }
    }

    /// The index of its first entry at or after a place in the log; [`entries`](Self::entries) when there is none. Reads about log2
    /// of its entries.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub async fn index_of(&self, place: Ordinal) -> Result<u64, ReadError> {
        match place >= self.horizon {
            true => Ok(self.entries),
            false => self.search(|entry| entry.ordinal < place).await,
        }
    }

    /// The place of its first entry; its horizon when nothing survived.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub async fn first_place(&self) -> Result<Ordinal, ReadError> {
        let found = self.read(0, 1, 1).await?;
        Ok(found.first().map_or(self.horizon, |entry| entry.ordinal))
    }

    /// The place of its first entry at or after a position of the log; its horizon when there is none.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub async fn place_of(&self, position: Position) -> Result<Ordinal, ReadError> {
        let index = self.search(|entry| entry.position < position).await?;
        let found = self.read(index, 1, 1).await?;
        Ok(found.first().map_or(self.horizon, |entry| entry.ordinal))
    }

    /// Its last entry; `None` when nothing survived.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub async fn last(&self) -> Result<Option<CompactedEntry>, ReadError> {
        let Some(last) = self.entries.checked_sub(1) else {
            return Ok(None);
        };
        Ok(self.read(last, 1, 1).await?.pop())
    }

    /// The index of the first entry for which `is_before` does not hold.
    async fn search(&self, is_before: impl Fn(&CompactedEntry) -> bool) -> Result<u64, ReadError> {
        let (mut low, mut high) = (0, self.entries);
        while low < high {
            let middle = low + (high - low) / 2;
            let found = self.read(middle, 1, 1).await?;
            match found.first().is_some_and(&is_before) {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        Ok(low)
    }
}
