//! The contract of a ledger engine.
//!
//! A ledger is a single-writer, append-only run of entries. An engine can create, append, read, recover, close and
//! delete; cursors, batches, topics and time are not its business. Two engines stand behind this contract: the
//! embedded log and Apache BookKeeper.
//!
//! ```text
//!   ids   0 1 2 3 4 5 6 7
//!         ──────────┬───┬──►
//!                   │   └ tail pushed: appended, not yet durable
//!                   └ tail durable (exclusive): everything before it survives a crash and may be acknowledged
//! ```
//!
//! The laws (checked by the conformance suite on every engine):
//! 1. Entry ids are dense from 0 in the order of `append` calls.
//! 2. The durable tail only grows, and an entry before it reads back byte for byte, also after a crash.
//! 3. After a crash a recovered ledger is a prefix of what was appended that holds at least the durable tail.
//!    Ledgers of [`Durability::Bypass`] are the exception to the last words of 2 and 3 until they are sealed: a crash may
//!    leave a shorter prefix.
//! 4. Once [`LedgerEngine::recover`] returned, the old writer's appends are never acknowledged (fencing).
//! 5. A failed sync is final: the tail never moves again and `failed` says why; reads go on.
//! 6. A deleted ledger never comes back, also after a crash.
//! 7. A ledger exists from the answer of `create` on, also after a crash and also without entries.
//! 8. What is sealed is durable, whatever the ledger's durability.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::watch;

use pharos_types::{EntryId, LedgerId};

#[cfg(feature = "test-util")]
pub mod conformance;
mod error;
pub mod memory;
pub mod offload;

pub use error::{AppendError, CreateError, DeleteError, FaultKind, OpenError, ReadError, StorageFault};

/// A future that engines hand out through `dyn` traits.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Durability that a ledger's appends reach before they count as durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Durability {
    /// Synced to the device.
    #[default]
    Sync,
    /// Handed to the operating system; a crash of the machine (not of the process) may lose the last moments.
    Async,
    /// In the engine's memory; the engine writes it to its device later. A crash of the process may lose the last
    /// minutes, and leaves a prefix. Sealing waits until everything is on the device.
    Bypass,
}

/// Options of a new ledger.
#[derive(Clone, Debug, Default)]
pub struct CreateOptions {
    /// Durability at which an append counts as durable.
    pub durability: Durability,
    /// Its appends are not urgent: an engine need not hold up other work for them.
    pub is_background: bool,
    /// On how many machines entries are kept; `None`: as the engine's settings say. An engine of one machine keeps one copy.
    pub replication: Option<Replication>,
    /// Bookie affinity of its entries; `None`: any machines.
    pub affinity: Option<Affinity>,
    /// Readers in other processes follow it ([`LedgerEngine::follow`]) and are to hear of its last entry at once, not with the next
    /// one. That costs an engine of many machines a further message to each of them whenever the writer pauses.
    pub is_followed: bool,
    /// Custom metadata of the ledger in the metadata store of a cluster, for people and for other programs. An engine
    /// of one machine has no place for it and ignores it.
    pub custom: BTreeMap<String, Bytes>,
}

/// On how many machines entries are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replication {
    /// Machines that share the ledger's entries among them.
    pub ensemble: usize,
    /// Copies of each entry.
    pub write_quorum: usize,
    /// Copies that are there when an entry counts as durable.
    pub ack_quorum: usize,
}

/// The machines that take a ledger's entries, by the groups that operators put them into. An engine of one machine has no groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Affinity {
    /// Groups that take them.
    pub primary: Vec<String>,
    /// Groups that stand in where the primary ones have too few machines.
    pub secondary: Vec<String>,
}

/// Progress of a writer. Waiters watch it instead of being called back.
#[derive(Clone, Debug, Default)]
pub struct Tail {
    /// Entries `0..durable` are durable.
    pub durable: u64,
    /// Fault that ended the writer's progress for good; of [`FaultKind::Fenced`] when another owner took the ledger.
    pub failed: Option<Arc<StorageFault>>,
}

/// An entry to append.
#[derive(Clone, Debug)]
pub struct NewEntry {
    /// Opaque, 1 byte to 16 MiB.
    pub payload: Bytes,
    /// The CRC-32C of `payload`, when the caller has it at hand from a check of these very bytes. An engine may store it
    /// rather than reckon its own, so a wrong one makes the entry unreadable.
    pub crc32c: Option<u32>,
}

impl From<Bytes> for NewEntry {
    fn from(payload: Bytes) -> Self {
        Self {
            payload,
            crc32c: None,
        }
    }
}

/// The one writer of an open ledger.
///
/// Dropping it without [`close`](Self::close) leaves the ledger open; it must then be recovered before it is read
/// as a whole.
pub trait LedgerWriter: Send + Sync {
    /// The ledger.
    fn id(&self) -> LedgerId;

    /// Queues one entry and says which id it got; it is durable once [`Tail::durable`] is beyond that id.
    ///
    /// Never blocks and never waits: the caller bounds what it has in flight, in bytes, before it calls.
    ///
    /// # Errors
    /// `Fenced`, `Closed`, `TooLarge`, `NoSpace`, `Overloaded`, `Poisoned`: see [`AppendError`]. The entry was then not queued.
    fn append_entry(&self, entry: NewEntry) -> Result<EntryId, AppendError>;

    /// [`append_entry`](Self::append_entry) of a payload whose checksum is not known.
    ///
    /// # Errors
    /// As there.
    fn append(&self, payload: Bytes) -> Result<EntryId, AppendError> {
        self.append_entry(payload.into())
    }

    /// The durable tail, as a watermark. Coalescing: a slow watcher sees the newest value only.
    fn tail(&self) -> watch::Receiver<Tail>;

    /// Waits until all appends are durable, then seals the ledger. Idempotent.
    ///
    /// Cancel safety: dropping the future may leave the ledger open or closed; call again or recover.
    fn close(&self) -> BoxFuture<'_, Result<(), AppendError>>;
}

/// An entry as read.
#[derive(Clone, Debug)]
pub struct ReadEntry {
    /// Its id.
    pub id: EntryId,
    /// The bytes that were appended.
    pub payload: Bytes,
}

/// Result of [`LedgerEngine::recover`]: the ledger is sealed with this content for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sealed {
    /// Number of entries; ids are `0..entry_count`.
    pub entry_count: u64,
    /// Their payload bytes together.
    pub bytes: u64,
}

/// Readable part of a ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Readable {
    /// Entries `0..entries`. No recovery takes one of them back, but of a ledger of [`Durability::Bypass`] a crash may.
    pub entries: u64,
    /// The ledger is sealed: there will never be more.
    pub is_sealed: bool,
}

/// As [`LedgerEngine::follow`], for an engine whose writers are all in this process. `readable` says how much can be read, with the tail of
/// the writer where there may be more.
///
/// # Errors
/// Those of `readable`.
///
/// Cancel safety: dropping the future is fine.
pub async fn follow_tail(
    beyond: Option<u64>,
    readable: impl Fn() -> Result<(Readable, Option<watch::Receiver<Tail>>), ReadError>,
) -> Result<Readable, ReadError> {
    loop {
        let (now, tail) = readable()?;
        let (Some(beyond), Some(mut tail)) = (beyond, tail) else {
            return Ok(now);
        };
        if now.entries > beyond || tail.borrow().failed.is_some() {
            return Ok(now);
        }
        if tail.changed().await.is_err() {
            return readable().map(|(now, _)| now);
        }
    }
}

/// A store of ledgers.
pub trait LedgerEngine: Send + Sync {
    /// Creates a ledger under a new id, higher than all given out before, and opens its writer.
    ///
    /// # Errors
    /// [`CreateError`]; nothing was created, or it will be forgotten.
    fn create(&self, options: CreateOptions) -> BoxFuture<'_, Result<Arc<dyn LedgerWriter>, CreateError>>;

    /// Fences any writer that may still exist, finds the true end, seals the ledger and says what it holds.
    /// On a ledger that is closed already it only answers.
    ///
    /// # Errors
    /// [`OpenError::NoSuchLedger`], or [`OpenError::Fault`] when the end cannot be told; retry later.
    fn recover(&self, ledger: LedgerId) -> BoxFuture<'_, Result<Sealed, OpenError>>;

    /// Reads entries from `first` on, in order: at least one when `first` exists, then as many as fit in
    /// `entries_max` and `bytes_max`, or fewer of at least 512 KiB together, where the engine has no more of them at
    /// hand. Works on sealed ledgers and on open ones. Empty when `first` is at or beyond the readable end.
    ///
    /// Of an open ledger an engine shows the durable part, and of one whose writer is in another process a prefix of the durable part
    /// that may be shorter: an engine of many machines learns how far a writer got from what the writer tells them, and it tells of an
    /// entry with the next one, or some time later. Asking for more would not help the callers. To show the rest of it a reader would
    /// have to prove that an entry has its ack quorum, which only fencing the writer does; and who needs every entry is the ledger's
    /// next owner, which recovers it. Readers beside the writer (of another process) look again, and never see an entry that a
    /// recovery could take back.
    ///
    /// # Errors
    /// [`ReadError::Damaged`] names the entry whose checksum failed; entries before it are returned by a call
    /// that stops short of it.
    fn read(
        &self,
        ledger: LedgerId,
        first: EntryId,
        entries_max: usize,
        bytes_max: usize,
    ) -> BoxFuture<'_, Result<Vec<ReadEntry>, ReadError>>;

    /// Reads as [`read`](Self::read) does, and of an open ledger also the entries behind its confirmed part that a recovery would keep if it
    /// ran now. Fences no writer and changes nothing.
    ///
    /// For a look from outside, such as a check before a broker is replaced. What it finds may still change: the last entries may never
    /// have been confirmed, and a later recovery may not find them. The owner of a ledger recovers it instead.
    ///
    /// # Errors
    /// Those of [`read`](Self::read), and [`ReadError::Fault`] when too few machines answer to tell where the ledger ends.
    fn read_unconfirmed(
        &self,
        ledger: LedgerId,
        first: EntryId,
        entries_max: usize,
        bytes_max: usize,
    ) -> BoxFuture<'_, Result<Vec<ReadEntry>, ReadError>> {
        self.read(ledger, first, entries_max, bytes_max)
    }

    /// Returns the readable part of a ledger: now, or with `beyond` as soon as it is more than so many entries.
    /// Reads, and fences no writer, as [`read`](Self::read) does, with the same visibility.
    ///
    /// With `beyond` it resolves without more when the ledger is sealed, when nothing can be learned of its writer
    /// any more, and otherwise now and then.
    ///
    /// # Errors
    /// [`ReadError`].
    ///
    /// Cancel safety: dropping the future is fine.
    fn follow(&self, ledger: LedgerId, beyond: Option<u64>) -> BoxFuture<'_, Result<Readable, ReadError>>;

    /// Deletes a ledger for good; durable when the future resolves. Deleting one that is gone is fine.
    ///
    /// # Errors
    /// [`DeleteError`]; the ledger may still be there; try again.
    fn delete(&self, ledger: LedgerId) -> BoxFuture<'_, Result<(), DeleteError>>;

    /// All ledgers that exist, rising. For start-up clean-up of ledgers that are not named.
    fn list(&self) -> BoxFuture<'_, Result<Vec<LedgerId>, ReadError>>;

    /// Finishes what is queued, syncs and stops. Later calls fail with `Poisoned`.
    fn shutdown(&self) -> BoxFuture<'_, ()>;
}
