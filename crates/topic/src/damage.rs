//! Entries that the store lost: each is told once, and nothing else of the topic stops for it.
//!
//! Consumers wait in front of such an entry until an operator moves them past it (`skip`, a reset, expiry). With
//! [`Options::skip_lost_entries`](pharos_mesh::Options::skip_lost_entries) it counts as acknowledged by each of them, as a marker
//! does; never because a device failed, since that could acknowledge all there is. Searches by time take it for what the next
//! readable entry is.

use std::collections::BTreeSet;
use std::sync::Arc;

use pharos_feed::entry::FeedEntry;
use pharos_requests::error::{CursorError, chain};
use pharos_types::Ordinal;

use super::reads::LogReads;

/// Places that are remembered, and so told and counted, until they are trimmed: one ledger lost must not fill the log.
const PLACES_MAX: usize = 256;

/// Entries of a loaded topic that turned out to be unreadable.
#[derive(Debug, Default)]
pub(super) struct Damage {
    places: BTreeSet<Ordinal>,
}

impl Damage {
    /// Remembers a place. Returns whether it is new. `first`: what lies before was trimmed.
    pub(super) fn note(&mut self, place: Ordinal, first: Ordinal) -> bool {
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

/// Content of a position in the log.
pub(super) enum Look {
    Entry(Arc<FeedEntry>),
    /// Nothing: it was trimmed, or nothing is there yet.
    Nothing,
    /// An entry that cannot be read any more.
    Unreadable,
}

impl LogReads<'_> {
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
                self.state
                    .borrow_mut()
                    .stored
                    .log
                    .note_damage(self.cx, place, &error);
                Ok(Look::Unreadable)
            }
            Err(error) => Err(CursorError::Storage(chain(&error))),
        }
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
