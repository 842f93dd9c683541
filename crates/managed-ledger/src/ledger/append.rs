//! Appending: position and ordinal at once, durability later.

use bytes::Bytes;
use pharos_ledger::NewEntry;
use pharos_types::{EntryId, Ordinal, Position};

use super::ManagedLedger;
use super::maintain::Upkeep;
use crate::error::AppendError;

/// Position of an appended entry. The entry may be acknowledged once the durable end is beyond `ordinal`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// On the wire and on disk.
    pub position: Position,
    /// In the broker.
    pub ordinal: Ordinal,
}

impl ManagedLedger {
    /// [`append_entry`](Self::append_entry) of a payload whose checksum is not known.
    ///
    /// # Errors
    /// As there.
    pub fn append(&mut self, payload: Bytes) -> Result<Appended, AppendError> {
        self.append_entry(payload.into())
    }

    /// Appends one entry. Never waits: the caller bounds what it has in flight, in bytes, before it calls.
    ///
    /// Its payload: 1 byte to `entry_bytes_max`. The cache keeps the given `Bytes` as they are: copy first if they are a small
    /// part of a large buffer.
    ///
    /// # Errors
    /// [`AppendError`]; the entry was not queued, and later ones may be after `BadSize`, `NoSpace` and `Overloaded` only.
    pub fn append_entry(&mut self, entry: NewEntry) -> Result<Appended, AppendError> {
        let payload = entry.payload.clone();
        self.check_appendable(&payload)?;
        Upkeep(self).turn_when_due();
        let place = self.chain.last().map(|row| EntryId(row.entries));
        self.appending.queue(entry, place)?;
        let Some(appended) = self.chain.add(payload.len()) else {
            return Err(AppendError::Terminated);
        };
        self.cache.push(appended.ordinal, payload);
        Ok(appended)
    }

    /// Checks that appends are accepted, apart from size and space.
    ///
    /// # Errors
    /// The error that [`append`](Self::append) would return.
    pub fn check_writable(&self) -> Result<(), AppendError> {
        self.appending.check_writable()
    }

    fn check_appendable(&self, payload: &Bytes) -> Result<(), AppendError> {
        self.check_writable()?;
        let (bytes, bytes_max) = (payload.len(), self.options.entry_bytes_max);
        // Before a position is given: an entry that waits for a handover must not be refused later.
        if bytes == 0 || bytes > bytes_max {
            return Err(AppendError::BadSize { bytes, bytes_max });
        }
        Ok(())
    }
}
