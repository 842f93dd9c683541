//! Tiered storage: closed ledgers in an object store (S3 or a local folder), through the [`LedgerOffloader`] contract.
//!
//! - [`mod@format`] is the two objects of a ledger as bytes; no I/O.
//! - [`Offloader`] uploads block by block, reads ranges through a small buffer, and deletes; on threads of its own.
//! - [`drivers`] turns a target into an object store; a folder is one of our own, on the file system of `runtime`.
//!
//! It does not know managed ledgers: what is offloaded when, and what a crash leaves to be cleaned up, is decided there.
//!
//! ```
//! use std::sync::Arc;
//! use bytes::Bytes;
//! use pharos_ledger::memory::MemoryEngine;
//! use pharos_ledger::offload::{LedgerOffloader, OffloadSource, OffloadedLedger};
//! use pharos_ledger::{CreateOptions, LedgerEngine};
//! use pharos_offload::{Offloader, Options, drivers};
//! use pharos_types::EntryId;
//!
//! # let folder = tempfile::tempdir().unwrap();
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let engine = Arc::new(MemoryEngine::new());
//! let writer = engine.create(CreateOptions::default()).await.unwrap();
//! writer.append(Bytes::from("ship ahoy")).unwrap();
//! writer.close().await.unwrap();
//!
//! let folders_in = Some(folder.path().to_path_buf());
//! let offloader = Offloader::start(Options { folders_in, ..Options::default() }).unwrap();
//! let target = drivers::folder(folder.path());
//! let object = OffloadedLedger { id: offloader.new_id(), ledger: writer.id(), target };
//! let source = OffloadSource { engine, entries: 1, bytes: 9, closed_at_ms: 0, name: "t".into() };
//! offloader.offload(object.clone(), source).await.unwrap();
//! let entries = offloader.read(object, EntryId(0), 10, 1 << 20).await.unwrap();
//! assert_eq!(entries[0].payload, "ship ahoy");
//! # });
//! ```
//!
//! [`LedgerOffloader`]: pharos_ledger::offload::LedgerOffloader

#![forbid(unsafe_code)]

pub mod drivers;
mod folder;
pub mod format;
mod offloader;
mod options;
mod read;
mod stats;
mod store;
mod upload;

pub use offloader::Offloader;
pub use options::{Credentials, Encryption, Options};
pub use stats::Stats;
