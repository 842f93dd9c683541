//! The contract of an offloader: what copies closed ledgers to an object store, reads them there and deletes them.
//!
//! A ledger is offloaded in *attempts*. Each attempt has an [`OffloadId`] of its own, made and written down by the managed
//! ledger before the first byte is sent, and its objects are named after it. So whatever a crash leaves behind can be found
//! and removed, and two attempts never touch the same object.
//!
//! The laws (checked by the tests of `pharos-offload`, and by those of `pharos-managed-ledger` over crashes):
//! 1. Once [`LedgerOffloader::offload`] returned `Ok`, both objects are durable and every entry reads back byte for byte.
//! 2. A read gives exactly what was appended or an error that names the object; never other bytes.
//! 3. Deleting an attempt that left nothing, or half of it, succeeds.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use pharos_types::{EntryId, LedgerId};

use crate::{BoxFuture, LedgerEngine, ReadEntry, ReadError};

/// Names one attempt to offload one ledger. Shown as a UUID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OffloadId(pub u128);

impl OffloadId {
    /// From the two halves in which it is stored.
    #[must_use]
    pub fn from_halves(most: u64, least: u64) -> Self {
        Self(u128::from(most) << 64 | u128::from(least))
    }

    /// The two halves, the most significant first.
    #[must_use]
    pub fn halves(self) -> (u64, u64) {
        let least = u64::try_from(self.0 & u128::from(u64::MAX)).unwrap_or_default();
        (u64::try_from(self.0 >> 64).unwrap_or_default(), least)
    }
}

impl fmt::Display for OffloadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hex = format!("{:032x}", self.0);
        let part = |range: std::ops::Range<usize>| hex.get(range).unwrap_or_default();
        write!(
            f,
            "{}-{}-{}-{}-{}",
            part(0..8),
            part(8..12),
            part(12..16),
            part(16..20),
            part(20..32)
        )
    }
}

/// Offload target of objects: a driver and the parameters to find the location again. Stored with each offloaded
/// ledger, so it never holds a secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OffloadTarget {
    /// `aws-s3`, `S3` or `filesystem`.
    pub driver: String,
    /// `bucket`, `region`, `endpoint`; or `uri`.
    pub facts: BTreeMap<String, String>,
}

impl fmt::Display for OffloadTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.driver)?;
        for (key, value) in &self.facts {
            write!(f, " {key}={value}")?;
        }
        Ok(())
    }
}

/// Offload of ledgers: when, to which target, and which copy is read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OffloadPolicy {
    /// Target of new objects; `None`: nothing is offloaded, already offloaded ledgers are kept and read.
    pub target: Option<OffloadTarget>,
    /// Bytes of closed ledgers that stay in the engine alone; the ledger that exceeds them and all older ones are offloaded. 0
    /// offloads each ledger when it is closed, `None` none for its size.
    pub bytes_kept: Option<u64>,
    /// Milliseconds after which a closed ledger is offloaded; `None`: age does not matter.
    pub age_ms_max: Option<u64>,
    /// Milliseconds after which the engine's copy of an offloaded ledger is deleted; `None`: never.
    pub deletion_lag_ms: Option<u64>,
    /// Copy that is read while there are two.
    pub read_first: ReadFirst,
}

/// Copy of an offloaded ledger that is read first. The other one is read when that fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadFirst {
    /// The object store's (`tiered-storage-first`).
    #[default]
    Tiered,
    /// The engine's (`bookkeeper-first`).
    Local,
}

/// Offload attempt: which ledger, under which id, at which target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffloadedLedger {
    /// The attempt.
    pub id: OffloadId,
    /// The ledger.
    pub ledger: LedgerId,
    /// Target of its objects.
    pub target: OffloadTarget,
}

impl OffloadedLedger {
    /// Name of the object with the entries.
    #[must_use]
    pub fn data_name(&self) -> String {
        format!("{}-ledger-{}", self.id, self.ledger)
    }

    /// Name of the object that says where in the other one they are.
    #[must_use]
    pub fn index_name(&self) -> String {
        format!("{}-index", self.data_name())
    }
}

/// The closed ledger that is to be copied.
#[derive(Clone)]
pub struct OffloadSource {
    /// The engine that holds it.
    pub engine: Arc<dyn LedgerEngine>,
    /// Its entries; at least one.
    pub entries: u64,
    /// Their payload bytes together.
    pub bytes: u64,
    /// Time at which it was closed, in milliseconds since 1970.
    pub closed_at_ms: u64,
    /// Name of the managed ledger, for a person who looks into the objects.
    pub name: Arc<str>,
}

/// Reason why an object could not be written, read or deleted. Shared by all operations: they fail in the same ways.
#[derive(Debug, Clone, thiserror::Error)]
pub enum OffloadError {
    /// There is no such driver, or the target lacks what it needs. Does not heal by trying again.
    #[error("offload target {target}: {cause}")]
    Target {
        /// The target.
        target: OffloadTarget,
        /// Fault of the target.
        cause: String,
    },
    /// The object is not there.
    #[error("offloaded object {object} is missing in {place}")]
    Missing {
        /// Its name.
        object: String,
        /// Expected location.
        place: String,
    },
    /// The object is there but is not what was written.
    #[error("offloaded object {object} in {place} is damaged at byte {byte_offset}: {cause}")]
    Damaged {
        /// Its name.
        object: String,
        /// Location of the object.
        place: String,
        /// Byte offset in the object.
        byte_offset: u64,
        /// Fault of the object.
        cause: String,
    },
    /// The store cannot be reached, refuses, or failed; try again later.
    #[error("object store {place}, object {object}: {cause}")]
    Store {
        /// The object's name.
        object: String,
        /// The store.
        place: String,
        /// The store's answer.
        cause: String,
    },
    /// The ledger to be copied cannot be read.
    #[error("cannot read the ledger to be offloaded")]
    Source(#[source] ReadError),
    /// The ledger to be copied is not as long as its owner says.
    #[error("ledger {ledger} has {found} entries where {expected} are recorded")]
    WrongLength {
        /// The ledger.
        ledger: LedgerId,
        /// Entries that were read.
        found: u64,
        /// Entries that should be there.
        expected: u64,
    },
    /// The offloader stops, or the attempt was called off.
    #[error("offloading was called off")]
    Stopped,
}

/// Copies closed ledgers to object stores, and reads and deletes the copies. One for all topics of a process.
///
/// It works on threads of its own; the futures only wait. It bounds what it does at the same time, in number and in bytes.
pub trait LedgerOffloader: Send + Sync + fmt::Debug {
    /// An id that no attempt had before.
    fn new_id(&self) -> OffloadId;

    /// Checks that objects could be stored there, as far as is known without a request to the store.
    ///
    /// # Errors
    /// [`OffloadError::Target`].
    fn check_target(&self, target: &OffloadTarget) -> Result<(), OffloadError>;

    /// Copies a closed ledger; both objects are durable when the future resolves with `Ok`.
    ///
    /// # Errors
    /// [`OffloadError`]: anything from nothing to both objects may be there; [`delete`](Self::delete) the attempt.
    ///
    /// Cancel safety: dropping the future calls the attempt off, soon but not at once; otherwise as for an error.
    fn offload(
        &self,
        object: OffloadedLedger,
        source: OffloadSource,
    ) -> BoxFuture<'static, Result<(), OffloadError>>;

    /// Checks that both objects exist, complete by their lengths, and hold `entries` entries. For a last check before
    /// the local copy is deleted. Asks the store, not a cache.
    ///
    /// # Errors
    /// [`OffloadError`].
    fn check(&self, object: OffloadedLedger, entries: u64) -> BoxFuture<'static, Result<(), OffloadError>>;

    /// Entries from `first` on, in order: at least one when `first` exists, then some more within `entries_max` and `bytes_max`.
    /// Empty when `first` is beyond the end.
    ///
    /// # Errors
    /// [`OffloadError`].
    fn read(
        &self,
        object: OffloadedLedger,
        first: EntryId,
        entries_max: usize,
        bytes_max: usize,
    ) -> BoxFuture<'static, Result<Vec<ReadEntry>, OffloadError>>;

    /// Deletes whatever an attempt left. Deleting what is gone is fine.
    ///
    /// # Errors
    /// [`OffloadError`]: some may still be there; try again.
    fn delete(&self, object: OffloadedLedger) -> BoxFuture<'static, Result<(), OffloadError>>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_shown_as_a_uuid_and_comes_back_from_its_halves() {
        let id = OffloadId(0x0123_4567_89ab_cdef_0011_2233_4455_6677);
        assert_eq!(id.to_string(), "01234567-89ab-cdef-0011-223344556677");
        let (most, least) = id.halves();
        assert_eq!((most, least), (0x0123_4567_89ab_cdef, 0x0011_2233_4455_6677));
        assert_eq!(OffloadId::from_halves(most, least), id);
        assert_eq!(OffloadId(5).to_string(), "00000000-0000-0000-0000-000000000005");
    }

    #[test]
    fn objects_are_named_after_the_attempt_and_the_ledger() {
        let object = OffloadedLedger {
            id: OffloadId(1),
            ledger: LedgerId(77),
            target: OffloadTarget::default(),
        };
        let data = "00000000-0000-0000-0000-000000000001-ledger-77";
        assert_eq!(object.data_name(), data);
        assert_eq!(object.index_name(), format!("{data}-index"));
    }
}
