//! A topic's compacted ledger: of everything before a place, the *horizon*, what a topic compaction left of it.
//!
//! ```text
//!   log        ░░ trimmed ░░│ ledger │ ledger │ open ledger ──►
//!   ordinals   0 1 2 3 4 5 6 7 8 9 …  │horizon
//!   compacted  └ 2 ─ 5 ─ 6 ── 9 ──────┘           each entry says which place it had in the log
//! ```
//!
//! One ledger, written by one run, synced and closed before the info names it. A change of the info is one atomic step, so the
//! name of a new one and the sentence on the one before it come together:
//! 1. a ledger is created, and the info says that it is being written: the next opening after a crash gives it up;
//! 2. it is filled and closed;
//! 3. the info names it with its horizon, and gives the one before it up;
//! 4. that one is deleted.
//!
//! In Pulsar's layout the node of a cursor names it, in a step of its own ([`crate::pulsar::compaction`]), and entries have Pulsar's form.
//!
//! What entries mean, and which of them survive, is not known here. [`CompactedView`] reads; [`CompactedWriter`] is one run.
//!
//! Always true: ordinals in a compacted ledger rise and are below its horizon; the log is whole from the horizon on, as long as its
//! owner counts the horizon as a cursor.

mod record;
mod view;
mod writer;

pub use record::CompactedEntry;
pub use view::CompactedView;
pub use writer::{CompactedLedgers, CompactedWriter, CompactionError};
