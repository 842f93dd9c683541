//! A client of Apache BookKeeper: the distributed ledger engine.
//!
//! A ledger is striped over an ensemble of bookies. An entry is confirmed once its ack quorum has it on disk, and entries are
//! confirmed in their order. A recovery fences the writer first, finds the last entry that can have been confirmed,
//! and seals the ledger. Bookies and the layout of the metadata are Apache's, unchanged.
//!
//! What is here so far: the bookie protocol ([`wire`]), entries and their digests, the metadata of ledgers, and the algorithms
//! ([`machine`]) as state machines without I/O.

#![forbid(unsafe_code)]

mod call;
mod digest;
mod entry;
pub mod machine;
pub mod metadata;
mod quorum;
pub mod wire;

pub use call::CallError;
pub use digest::{DigestType, MasterKey};
pub use entry::{Digester, Entry, EntryError, EntryHeader, PackedEntry};
pub use metadata::{BookieId, LedgerMetadata, LedgerStore};
pub use quorum::{BadQuorum, ENSEMBLE_MAX, Positions, Quorum};
