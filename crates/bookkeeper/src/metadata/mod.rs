//! Metadata of a ledger: quorums, state, and the bookies of its entries.
//!
//! ```text
//!  Open ── recovered by another ──► InRecovery ──► Closed { last, length }     final, the same for everyone
//!    └──── closed by its writer ──────────────────────┘
//! ```
//! Entries before the last segment are confirmed, and their segments do not change any more (but for bookies that
//! auto-recovery exchanges). Only the writer of an open ledger adds segments; a recovery adds what it needs when it
//! closes.

mod format;
mod store;

pub use format::{FormatError, decode, encode};
pub use store::{LedgerStore, StoreError};

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use pharos_types::EntryId;

use crate::digest::DigestType;
use crate::quorum::Quorum;

/// The name of a bookie: `host:port`, or what an operator chose. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BookieId(Arc<str>);

impl BookieId {
    /// By its name.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self(name.into())
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for BookieId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::fmt::Debug for BookieId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// State of a ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The ledger may have a writer.
    Open,
    /// Its writer is being fenced and its end looked for.
    InRecovery,
    /// The content is final.
    Closed {
        /// The last one; `None`: it is empty.
        last: Option<EntryId>,
        /// Payload bytes of all entries.
        length: u64,
    },
}

/// Entries from `first` on, until the next segment, are on these bookies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The first entry.
    pub first: EntryId,
    /// The bookies; their order says who gets which entry.
    pub ensemble: Vec<BookieId>,
}

/// Key and value in the custom metadata that mark a ledger with deferred sync.
const SYNC: &str = "pharos/sync";
const DEFERRED: &[u8] = b"deferred";

/// A ledger's metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerMetadata {
    /// Ensemble size and quorums.
    pub quorum: Quorum,
    /// State of the ledger.
    pub state: State,
    /// Segments, not empty; `first` rises from 0; each ensemble has the size in `quorum`.
    pub segments: Vec<Segment>,
    /// Digest type of entries.
    pub digest: DigestType,
    /// Password, from which the keys are derived.
    pub password: Bytes,
    /// Milliseconds since 1970, when its maker wrote that down.
    pub created_ms: Option<i64>,
    /// Custom metadata of its creator.
    pub custom: BTreeMap<String, Bytes>,
    /// Marks the attempt that made it.
    pub token: Option<i64>,
}

impl LedgerMetadata {
    /// The bookies of the newest entries.
    #[must_use]
    pub fn last_segment(&self) -> Option<&Segment> {
        self.segments.last()
    }

    /// The bookies of `entry`.
    #[must_use]
    pub fn segment_of(&self, entry: EntryId) -> Option<&Segment> {
        let behind = self.segments.partition_point(|segment| segment.first <= entry);
        self.segments.get(behind.checked_sub(1)?)
    }

    /// From `first` on, entries are on `ensemble`. `first` is not before the last segment.
    #[must_use]
    pub fn with_segment(&self, first: EntryId, ensemble: Vec<BookieId>) -> Self {
        let mut changed = self.clone();
        match changed.segments.last_mut() {
            Some(last) if last.first >= first => last.ensemble = ensemble,
            _ => changed.segments.push(Segment { first, ensemble }),
        }
        changed
    }

    /// Marks the ledger as one whose bookies may have acknowledged entries without a sync.
    #[must_use]
    pub fn with_deferred_sync(mut self) -> Self {
        self.custom.insert(SYNC.to_owned(), Bytes::from_static(DEFERRED));
        self
    }

    /// True if bookies may have acknowledged entries without a sync.
    #[must_use]
    pub fn is_sync_deferred(&self) -> bool {
        self.custom.get(SYNC).is_some_and(|word| word == DEFERRED)
    }

    /// Returns a copy in another state.
    #[must_use]
    pub fn with_state(&self, state: State) -> Self {
        Self {
            state,
            ..self.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn bookies(names: &str) -> Vec<BookieId> {
        names.split(' ').map(BookieId::new).collect()
    }

    #[test]
    fn entries_are_found_in_their_segment() {
        let metadata = LedgerMetadata {
            quorum: Quorum::new(2, 2, 1).unwrap(),
            state: State::Open,
            segments: vec![Segment {
                first: EntryId(0),
                ensemble: bookies("a b"),
            }],
            digest: DigestType::Crc32c,
            password: Bytes::new(),
            created_ms: None,
            custom: BTreeMap::new(),
            token: None,
        };
        let metadata = metadata.with_segment(EntryId(10), bookies("a c"));
        let of =
            |metadata: &LedgerMetadata, entry| metadata.segment_of(EntryId(entry)).unwrap().ensemble.clone();
        assert_eq!(of(&metadata, 0), bookies("a b"));
        assert_eq!(of(&metadata, 9), bookies("a b"));
        assert_eq!(of(&metadata, 10), bookies("a c"));
        // Nothing was confirmed in between: the segment is exchanged, not followed by another one of the same first entry.
        let metadata = metadata.with_segment(EntryId(10), bookies("d c"));
        assert_eq!(metadata.segments.len(), 2);
        assert_eq!(of(&metadata, 11), bookies("d c"));
    }
}
