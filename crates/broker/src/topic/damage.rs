//! Entries that the store lost: each is told once, and nothing else of the topic stops for it.
//!
//! Consumers wait in front of such an entry until an operator moves them past it (`skip`, a reset, expiry). With
//! [`Options::skip_lost_entries`](crate::Options::skip_lost_entries) it counts as acknowledged by each of them, as a marker
//! does; never because a device failed, since that could acknowledge all there is. Searches by time take it for what the next
//! readable entry is.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use pharos_managed_ledger::ReadError;
use pharos_runtime::Nanos;
use pharos_types::Ordinal;

use super::Topic;
use super::publish::chain;
use crate::entry::{EntryFacts, FeedEntry};
use crate::error::CursorError;

/// Places that are remembered, and so told and counted, until they are trimmed: one ledger lost must not fill the log.
const PLACES_MAX: usize = 256;

/// Entries of a loaded topic that turned out to be unreadable.
#[derive(Debug, Default)]
pub(super) struct Damage {
    places: BTreeSet<Ordinal>,
}

impl Damage {
    /// Remembers a place. Returns whether it is new. `first`: what lies before was trimmed.
    fn note(&mut self, place: Ordinal, first: Ordinal) -> bool {
        if self.places.first().is_some_and(|lowest| *lowest < first) {
            self.places = self.places.split_off(&first);
        }
        self.places.len() < PLACES_MAX && self.places.insert(place)
    }

    /// The places, rising. `first`: what lies before was trimmed.
    pub(super) fn places(&self, first: Ordinal) -> impl Iterator<Item = Ordinal> + '_ {
        self.places.range(first..).copied()
    }
}

/// What lies at a place.
pub(super) enum Look {
    Entry(Arc<FeedEntry>),
    /// Nothing: it was trimmed, or nothing is there yet.
    Nothing,
    /// An entry that cannot be read any more.
    Unreadable,
}

impl Topic {
    /// Reads the entry at a place for a search, which goes on around damage.
    ///
    /// # Errors
    /// `Storage`: it cannot be read now; later it may.
    pub(super) async fn look_at(&self, place: Ordinal) -> Result<Look, CursorError> {
        let read = self.state.borrow().stored.log.ledger.read(place, 1, usize::MAX);
        match read.await {
            Ok(found) => {
                let entry = found.into_iter().next().map(|entry| self.cx.feed_entry(entry));
                let entry = entry.filter(|entry| entry.ordinal == place);
                Ok(entry.map_or(Look::Nothing, Look::Entry))
            }
            Err(_) if place < self.state.borrow().stored.log.ledger.first() => Ok(Look::Nothing),
            Err(error) if error.is_lasting() => {
                self.note_damage(place, &error);
                Ok(Look::Unreadable)
            }
            Err(error) => Err(CursorError::Storage(chain(&error))),
        }
    }

    /// What stream consumers get in place of an entry that is lost, if they are to go on: a marker, which each of them acknowledges
    /// when it comes to it.
    pub(super) fn stand_in(&self, place: Ordinal, error: &ReadError) -> Option<Arc<FeedEntry>> {
        if !self.skips(error) {
            return None;
        }
        let position = self.state.borrow().stored.log.ledger.position_of(place)?;
        self.count_skip();
        Some(Arc::new(FeedEntry {
            ordinal: place,
            position,
            payload: Bytes::new(),
            facts: EntryFacts {
                message_count: 1,
                is_marker: true,
                ..EntryFacts::default()
            },
            durable_at: Nanos(0),
        }))
    }

    /// Whether who comes to an entry that answers this is moved past it.
    pub(super) fn skips(&self, error: &ReadError) -> bool {
        let shard = self.cx.shard();
        error.is_lost() && shard.is_some_and(|shard| shard.shared.options.skip_lost_entries)
    }

    pub(super) fn count_skip(&self) {
        if let Some(shard) = self.cx.shard() {
            shard.tally().lost_skipped();
        }
    }

    /// Tells of an entry that cannot be read any more, once.
    pub(super) fn note_damage(&self, place: Ordinal, error: &ReadError) {
        let (is_new, position) = {
            let mut state = self.state.borrow_mut();
            let first = state.stored.log.ledger.first();
            (
                state.stored.log.damage.note(place, first),
                state
                    .stored
                    .log
                    .ledger
                    .position_of(place)
                    .map(|at| at.to_string()),
            )
        };
        if !is_new {
            return;
        }
        if let Some(shard) = self.cx.shard() {
            shard.tally().entry_unreadable();
        }
        tracing::error!(
            topic = %self.cx.name,
            position = position.unwrap_or_default(),
            error = chain(error),
            are_moved = self.skips(error),
            "an entry cannot be read: its consumers are moved past it or wait in front of it"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_told_once_and_forgotten_when_they_are_trimmed() {
        let mut damage = Damage::default();
        assert!(damage.note(Ordinal(3), Ordinal(0)));
        assert!(!damage.note(Ordinal(3), Ordinal(0)));
        assert!(damage.note(Ordinal(9), Ordinal(5)));
        assert_eq!(damage.places.len(), 1);
        for place in 10..10_000 {
            damage.note(Ordinal(place), Ordinal(5));
        }
        assert_eq!(damage.places.len(), PLACES_MAX);
        assert_eq!(damage.places(Ordinal(10)).next(), Some(Ordinal(10)));
    }
}
