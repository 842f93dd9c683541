//! The client's algorithms as state machines: no I/O, no clock, no chance.
//!
//! A machine is told what happened (`on_…`) and says what to do by appending effects to a list. Its driver sends what they
//! ask for and brings the answers, in any order, late, or never; time-outs are answers as well. So the same code runs against
//! bookies and inside a simulation.
//!
//! [`Writer`]: the one writer of a ledger. [`Recovery`]: fences a writer, finds the end, seals. [`EntryRead`]: one entry from a
//! bookie that has it. [`LacRead`]: how far an open ledger of another writer is confirmed.

mod adds;
mod forcing;
mod read;
mod reading;
mod recovery;
mod wanted;
mod writer;

pub use adds::{AddAnswer, AddEffect};
pub use read::{EntryRead, LacRead, Next, UnconfirmedRead};
pub use recovery::{Recovery, RecoveryEffect, RecoveryError};
pub use wanted::{EnsembleChange, WriterEffect, WriterError};
pub use writer::Writer;

use pharos_metadata::Version;

use crate::metadata::{BookieId, LedgerMetadata};

/// Chooses bookies.
pub trait Placement {
    /// A bookie to put at `position` instead of the one there; `None`: there is none. It is not one of `ensemble` nor of
    /// `excluded`.
    fn replace(&mut self, ensemble: &[BookieId], position: usize, excluded: &[BookieId]) -> Option<BookieId>;
}

/// Result of a metadata write.
#[derive(Clone, Debug)]
pub enum MetadataAnswer {
    /// The write succeeded.
    Written(Version),
    /// The write failed, or its result is unknown; this is stored now. `None`: the ledger was deleted.
    Current(Option<(LedgerMetadata, Version)>),
}
