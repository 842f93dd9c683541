//! The embedded ledger engine: journals for safety, entry logs for keeping, memory in between.
//!
//! ```text
//!  append ─► queue ─► journal thread: one write, one sync ─► write cache, tails        (journal)
//!                         ▲ next segment                       │ two halves           (cache)
//!                       preparer: room, old segments            ▼
//!                                           flusher: sorted ─► entry logs ─► checkpoint   (flush)
//!  read ─► write cache ─► read cache ─► reader threads per device ─► entry logs     (read)
//!  start ─► checkpoint, indexes ─► replay of the journals                              (recovery)
//! ```
//!
//! Each part knows the others only through what they share (`shared`): the queues, the ledgers' state, the write cache, the
//! lists of segments and logs. The files are those of [`pharos_storage_format`], drawn in `docs/formats/journal.md` and
//! `docs/formats/ledgers.md`; why it is so, in `docs/adr/0006-three-paths.md`.
//!
//! ```
//! # async fn example(dir: &std::path::Path) -> Result<(), Box<dyn std::error::Error>> {
//! use pharos_ledger::{CreateOptions, LedgerEngine};
//! use pharos_storage::{Options, Storage};
//!
//! let storage = Storage::open(dir, Options::default())?;
//! let writer = storage.create(CreateOptions::default()).await?;
//! let id = writer.append("hello".into())?;
//! writer.tail().wait_for(|tail| tail.durable > id.0).await?;
//! storage.shutdown().await;
//! # Ok(()) }
//! ```
//!
//! Deliberately absent: topics, cursors, time.

#![forbid(unsafe_code)]

mod cache;
mod chunk;
mod error;
mod flush;
#[cfg(feature = "test-util")]
pub mod fuzzing;
mod journal;
mod ledgers;
mod logs;
#[cfg(feature = "test-util")]
pub mod manual;
pub mod offline;
mod options;
mod queue;
mod read;
mod recovery;
mod removals;
mod reserve;
mod shared;
mod stats;
mod storage;
mod writer;

pub use error::OpenStoreError;
pub use options::{IoMode, Options, Preallocate};
pub use stats::Stats;
pub use storage::Storage;
