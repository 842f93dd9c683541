//! Feed of a topic's compacted view, as far as it differs from that of a log.
//!
//! Its entries are not dense, and positions of entries that are trimmed from the log are alive in it. A consumer need
//! not acknowledge an entry that the feed skips: it counts as acknowledged when the consumer reaches the entry behind
//! it.

use std::collections::BTreeMap;
use std::sync::Arc;

use pharos_runtime::Nanos;
use pharos_types::{LedgerId, Ordinal, Position};

use crate::entry::FeedEntry;
use crate::pages::Pages;
use crate::{Feed, Lookup};

/// Ordinals of entries in trimmed ledgers, as far as they were delivered to consumers.
#[derive(Debug, Default)]
pub(super) struct TrimmedLedgers(BTreeMap<LedgerId, Ordinal>);

impl TrimmedLedgers {
    /// The entry at a position of a ledger that is known to be trimmed.
    pub(super) fn ordinal_of(&self, position: Position) -> Option<Ordinal> {
        let first = self.0.get(&position.ledger)?;
        Some(first.plus(position.entry.0))
    }
}

impl Feed {
    /// True if it is a feed of the compacted view.
    #[must_use]
    pub fn is_compacted(&self) -> bool {
        self.topic.is_compacted()
    }

    /// The topic was compacted: what is at hand is looked at again.
    pub fn on_compacted(&self) {
        self.forget_until(Nanos(u64::MAX));
        self.with_pages(Pages::clear);
        for (connection, group) in self.groups.borrow().iter() {
            group.ring();
            self.host.wake(*connection);
        }
    }

    /// Remembers the ledgers of entries that are in the log no more, so that their acknowledgements count.
    pub(super) fn remember_ledgers(&self, entries: &[Arc<FeedEntry>]) {
        if !self.is_compacted() {
            return;
        }
        let (table, tail) = (self.table.borrow(), self.tail());
        let mut trimmed = self.trimmed.borrow_mut();
        for entry in entries {
            let position = entry.position;
            if trimmed.0.contains_key(&position.ledger)
                || matches!(table.ordinal_of(position, tail), Lookup::Exact(_))
            {
                continue;
            }
            if let Some(first) = entry.ordinal.0.checked_sub(position.entry.0) {
                trimmed.0.insert(position.ledger, Ordinal(first));
            }
        }
    }
}
