//! The embedded ledger engine: a journal of segment files that is also where entries are read from.
//!
//! ```text
//!  append ─► queue ─► journal thread: one write, one sync ─► index, tails        (journal)
//!                         ▲ next segment, copies            │
//!                       keeper thread: room, side files,    ▼
//!                       dead segments, compaction        read threads            (keeper, reader)
//!  start ─► side files, or a scan ─► index                                       (recovery)
//! ```
//!
//! Each part knows the others only through what they share: the queue, the ledgers' index, the list of segments and
//! the next segment. The format is in `docs/formats/journal.md`.
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
//! Deliberately absent: topics, cursors, time, and caching of entries (the managed ledger does that).

#![forbid(unsafe_code)]

mod error;
mod format;
mod journal;
mod keeper;
mod ledgers;
#[cfg(feature = "test-util")]
pub mod manual;
mod options;
mod queue;
mod reader;
mod recovery;
mod segments;
mod shared;
mod stats;
mod storage;
mod writer;

pub use error::OpenStoreError;
pub use options::{IoMode, Options, Preallocate};
pub use stats::Stats;
pub use storage::Storage;
