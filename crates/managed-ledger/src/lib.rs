//! A topic's endless log: an ordered chain of ledgers, and the places of its readers in it.
//!
//! - [`ManagedLedger`] appends, reads, rolls over and trims; one per topic, owned by one task.
//! - [`cursor::AckState`] is what one cursor has acknowledged.
//! - [`CursorLog`] keeps all cursors of a topic, however many, in one group-committed ledger.
//! - [`Leftovers`] deletes at start what a crash kept from being deleted; [`orphans()`] finds ledgers that nothing names.
//!
//! ```
//! use std::sync::Arc;
//! use bytes::Bytes;
//! use pharos_ledger::memory::MemoryEngine;
//! use pharos_managed_ledger::{ManagedLedger, OpenMode, Options};
//! use pharos_metadata::Memory;
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let (engine, metadata) = (Arc::new(MemoryEngine::new()), Arc::new(Memory::new()));
//! let name = "public/default/persistent/notices";
//! let mut log =
//!     ManagedLedger::open(name, engine, metadata, Options::default(), OpenMode::Create, 0).await.unwrap();
//! let appended = log.append(Bytes::from("ship ahoy")).unwrap();
//! log.durable_watch().reaches(appended.ordinal).await.unwrap();
//! let entries = log.read(log.first(), 100, 1 << 20).await.unwrap();
//! assert_eq!(entries[0].payload, "ship ahoy");
//! # });
//! ```

#![forbid(unsafe_code)]

mod compacted;
pub mod cursor;
pub mod cursor_log;
mod ledger;
mod leftovers;
mod pulsar;
mod search;
mod table;

mod cache;
mod durable;
mod error;
mod fields;
mod info;
#[cfg(feature = "test-util")]
pub mod mortal;
mod offload_garbage;
mod offload_info;
mod options;
mod orphans;

pub use cache::CacheBudget;
pub use compacted::{CompactedEntry, CompactedLedgers, CompactedView, CompactedWriter, CompactionError};
pub use cursor::AckState;
pub use cursor_log::CursorLog;
pub use durable::DurableWatch;
pub use error::{
    AppendError, CloseError, CommitError, DeleteError, DurableError, InfoError, OpenError, ReadError,
};
pub use info::{
    CompactionInfo, HeldBack, HeldBackPart, INFO_PREFIX, LedgerInfo, ManagedLedgerInfo, ShadowInfo,
};
pub use ledger::{
    Appended, Entry, FollowError, Forget, Holding, LedgerReader, LedgerStats, MaintenanceDone,
    MaintenanceError, MaintenanceEvent, ManagedLedger, OffloadAskError, OffloadStats, OffloadStatus,
    OffloadWork, Offloads, OpenMode, ReadTo, Shadow, SourceFollower, SourceNews, delete, delete_as, exists,
    forget_cursors, forget_other_shadow, held_by, open_shadow,
};
pub use leftovers::{CleanUpError, CleanedUp, LEDGER_GARBAGE_PREFIX, Leftovers, noted_ledgers};
pub use offload_garbage::{GARBAGE_PREFIX, Swept, noted_objects, sweep};
pub use offload_info::{OffloadInfo, OffloadState, OffloadTargetInfo};
pub use options::{Options, Retention};
pub use orphans::{OrphanError, orphans};
pub use pulsar::name::storage_name;
pub use search::{Search, Seen};
pub use table::{LedgerRow, LedgerTable, Lookup, MarkDelete};
