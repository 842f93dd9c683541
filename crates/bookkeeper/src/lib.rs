//! A client of Apache BookKeeper: the distributed ledger engine.
//!
//! A ledger is striped over an ensemble of bookies. An entry is confirmed once its ack quorum has it on disk, and entries are
//! confirmed in their order. A recovery fences the writer first, finds the last entry that can have been confirmed,
//! and seals the ledger. Bookies and the layout of the metadata are Apache's, unchanged.
//!
//! From the outside in: [`BookKeeper`] is the engine behind the contract of `ledger`; [`machine`] decides, without I/O; [`wire`] and
//! [`Digester`] are the bytes; [`metadata`] is where a ledger's bookies are written down.

#![forbid(unsafe_code)]

mod bookies;
mod call;
mod digest;
mod engine;
mod entry;
pub mod machine;
pub mod metadata;
mod net;
mod placement;
mod quorum;
pub mod wire;

pub use call::CallError;
pub use digest::{DigestType, MasterKey};
pub use engine::{BookKeeper, Figures, Operation, OperationFigures, Options, StartError, entry_bytes_max};
pub use entry::{Digester, Entry, EntryError, EntryHeader, PackedEntry};
pub use metadata::{BookieId, LedgerMetadata, LedgerStore};
pub use placement::{PlacementOptions, Spread};
pub use quorum::{BadQuorum, ENSEMBLE_MAX, Positions, Quorum};
