//! Appending: position and ordinal at once, durability later.

use bytes::Bytes;
use pharos_ledger::NewEntry;
use pharos_types::{EntryId, Ordinal, Position};

use super::{End, Failure, ManagedLedger, Next, WAITING_BYTES_MAX};
use crate::error::{AppendError, fault_of};

/// Where an appended entry is. It may be acknowledged once the durable end is beyond `ordinal`.
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
        if self.handover.is_none() && matches!(self.next, Next::Ready(_)) && self.is_roll_due() {
            self.begin_handover();
        }
        self.queue(entry)?;
        let Some(row) = self.rows.last_mut() else {
            return Err(AppendError::Terminated);
        };
        let position = Position {
            ledger: row.id,
            entry: EntryId(row.entries),
        };
        let ordinal = row.end();
        row.entries += 1;
        row.bytes += payload.len() as u64;
        self.cache.push(ordinal, payload);
        Ok(Appended { position, ordinal })
    }

    /// Whether appends would be taken, apart from size and space.
    ///
    /// # Errors
    /// What [`append`](Self::append) would say.
    pub fn check_writable(&self) -> Result<(), AppendError> {
        match &self.failure {
            Some(Failure::Fenced) => return Err(AppendError::Fenced),
            Some(Failure::Fault(fault)) => return Err(AppendError::Failed(fault.clone())),
            None => {}
        }
        if self.end == End::Endless {
            Ok(())
        } else {
            Err(AppendError::Terminated)
        }
    }

    /// Hands the entry to the engine, or lets it wait behind those that wait.
    fn queue(&mut self, entry: NewEntry) -> Result<(), AppendError> {
        self.flush_waiting();
        self.check_writable()?;
        if self.handover.is_some() || !self.waiting.is_empty() {
            let bytes = entry.payload.len();
            if self.waiting_bytes + bytes > WAITING_BYTES_MAX {
                return Err(AppendError::Overloaded);
            }
            self.waiting_bytes += bytes;
            self.waiting.push_back(entry);
            return Ok(());
        }
        let writer = self.writer.as_ref().ok_or(AppendError::Terminated)?;
        let entry = writer
            .append_entry(entry)
            .map_err(|error| self.on_refused(&error))?;
        let expected = self.rows.last().map(|row| EntryId(row.entries));
        assert_eq!(Some(entry), expected, "the engine's entry ids are dense");
        Ok(())
    }

    /// Queues what waits, as far as the engine takes it. Those entries have positions, so a refusal that is not for the
    /// moment is final.
    pub(super) fn flush_waiting(&mut self) {
        while self.handover.is_none()
            && self.failure.is_none()
            && let (Some(writer), Some(entry)) = (&self.writer, self.waiting.front())
        {
            use pharos_ledger::AppendError as Refused;
            let bytes = entry.payload.len();
            match writer.append_entry(entry.clone()) {
                Ok(_) => {
                    self.waiting.pop_front();
                    self.waiting_bytes -= bytes;
                }
                Err(Refused::Overloaded { .. } | Refused::NoSpace { .. }) => return,
                Err(error) => {
                    self.on_refused(&error);
                    self.fail(Failure::Fault(fault_of("append to the next ledger", &error)));
                }
            }
        }
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

    /// Takes note of the engine's refusal.
    pub(super) fn on_refused(&mut self, error: &pharos_ledger::AppendError) -> AppendError {
        use pharos_ledger::AppendError as Refused;
        match error {
            Refused::NoSpace { .. } => return AppendError::NoSpace,
            Refused::Overloaded { .. } => return AppendError::Overloaded,
            Refused::TooLarge { bytes, bytes_max } => {
                return AppendError::BadSize {
                    bytes: *bytes,
                    bytes_max: *bytes_max,
                };
            }
            // No other closes our ledger: a closed one was recovered by another owner.
            Refused::Fenced { .. } | Refused::Closed { .. } => self.fail(Failure::Fenced),
            Refused::Poisoned(fault) | Refused::GivenUp { fault, .. } => {
                self.fail(Failure::Fault(fault.clone()));
            }
        }
        match &self.failure {
            Some(Failure::Fault(fault)) => AppendError::Failed(fault.clone()),
            _ => AppendError::Fenced,
        }
    }
}
