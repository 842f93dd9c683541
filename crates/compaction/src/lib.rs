//! Topic compaction: of a topic's messages with the same key only the last one stays.
//!
//! ```text
//!   compacted ledger ─┐  phase 1                    phase 2
//!                     ├─► KeySurvey: where is each  ─► Sieve: which messages of  ─► new compacted ledger
//!   log behind it ────┘   key's last message?       an entry are these?
//! ```
//! [`KeySurvey`] and [`Sieve`] are state machines without I/O: both are shown the same entries in the same order. [`run()`] reads the
//! entries for them and writes what is left, a few at a time. Where a new compacted ledger takes the place of the one before it is
//! `managed-ledger`'s affair; when a topic is compacted is the broker's. What is to be known of an entry's messages is asked of an
//! `EntryCodec`, so no protocol is known here.
//!
//! What survives:
//! - of each key its last message, if it has a value; an empty one ends its key and goes itself;
//! - messages without a key only if [`Options::keep_keyless`] says so;
//! - an entry that cannot be taken apart (an encrypted batch), as a whole; all pieces of a chunked message, or none; pieces of one
//!   that is not complete;
//! - no marker of the broker's own.
//!
//! Positions and indexes stay what they were: a batch of which some messages go keeps its size.

#![forbid(unsafe_code)]

mod run;
mod sieve;
mod status;
mod survey;
#[cfg(test)]
mod tests;

pub use run::{CompactionRun, Outcome, ReadLog, RunError, run};
pub use sieve::{Sieve, Survivor, last_index};
pub use status::{CompactionAskError, CompactionCounts, CompactionStatus};
pub use survey::{KeySurvey, TooManyKeys};

/// Options of a compaction run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Messages without a key stay.
    pub keep_keyless: bool,
    /// Memory limit for the keys of one run, in bytes; a topic that needs more is not compacted.
    pub keys_bytes_max: usize,
    /// The largest batch that is taken apart, decompressed, in bytes; a larger one stays whole.
    pub batch_bytes_max: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            keep_keyless: false,
            keys_bytes_max: 128 << 20,
            batch_bytes_max: 64 << 20,
        }
    }
}
