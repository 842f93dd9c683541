//! An entry on its way to stream consumers: the stored bytes, shared, and the few facts that delivery needs.

use std::sync::Arc;

use bytes::Bytes;
use pharos_runtime::Nanos;
pub use pharos_types::entry::{EntryCodec, EntryFacts};
use pharos_types::{Ordinal, Position};

/// Entry shared by every shard and connection that delivers it.
#[derive(Debug)]
pub struct FeedEntry {
    /// Its place in the topic, dense.
    pub ordinal: Ordinal,
    /// Its place on the wire.
    pub position: Position,
    /// Stored bytes.
    pub payload: Bytes,
    /// Facts needed for delivery.
    pub facts: EntryFacts,
    /// Time at which it became durable; zero for an entry read back from the log.
    pub durable_at: Nanos,
}

impl FeedEntry {
    /// An entry read back from the log, with the facts that were found in it.
    #[must_use]
    pub fn from_log(entry: pharos_managed_ledger::Entry, facts: EntryFacts) -> Arc<Self> {
        Arc::new(Self {
            ordinal: entry.ordinal,
            position: entry.position,
            facts,
            payload: entry.payload,
            durable_at: Nanos(0),
        })
    }

    /// True if it arrived right after it was published, so that its delivery is worth timing.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.durable_at != Nanos(0)
    }
}
