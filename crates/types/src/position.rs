//! Positions of entries: ledger and entry ids as on the wire, and the dense ordinal within a topic.
//!
//! ```text
//!   ledger 12            ledger 17
//!   entry 0 1 2 3        entry 0 1 2 …
//! ordinal 0 1 2 3              4 5 6 …     dense over the whole life of one managed ledger
//! ```

use std::fmt;

use serde::{Deserialize, Serialize};

/// Number of a ledger, unique within a storage engine and rising within one topic. Fits signed 63 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LedgerId(pub u64);

/// Number of an entry in its ledger; dense from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct EntryId(pub u64);

/// The dense number of an entry in its managed ledger, counted over all its ledgers from the first ever written.
///
/// Cursors inside the broker count in ordinals, because "the next one" and "how many between" are then plain
/// arithmetic; only the wire and the disk speak in [`Position`]s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Ordinal(pub u64);

impl Ordinal {
    /// The one after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// This ordinal moved forward by `count` entries.
    #[must_use]
    pub fn plus(self, count: u64) -> Self {
        Self(self.0.saturating_add(count))
    }

    /// Number of entries in `self..end`; 0 if `end` is not after `self`.
    #[must_use]
    pub fn count_to(self, end: Self) -> u64 {
        end.0.saturating_sub(self.0)
    }
}

/// Position of an entry on the wire and on disk. Ordered by ledger, then entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Position {
    /// The ledger.
    pub ledger: LedgerId,
    /// The entry within it.
    pub entry: EntryId,
}

impl Position {
    /// A position from two bare numbers.
    #[must_use]
    pub fn new(ledger: u64, entry: u64) -> Self {
        Self {
            ledger: LedgerId(ledger),
            entry: EntryId(entry),
        }
    }
}

impl fmt::Display for LedgerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Ordinal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

/// `ledger:entry`, Pulsar's usual form.
impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.ledger, self.entry)
    }
}
