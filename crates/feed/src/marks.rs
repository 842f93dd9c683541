//! The lowest acknowledged place among many cursors, without looking at all of them.
//!
//! Counts cursors per place. Cursors crowd at few places (the tail, mostly), so an update touches a map of a
//! handful of keys and the minimum is its first key: no acknowledgement ever costs a walk over all cursors.

use std::collections::BTreeMap;

use pharos_types::Ordinal;

/// A multiset of places.
#[derive(Debug, Default)]
pub struct Marks {
    counts: BTreeMap<Ordinal, u32>,
}

impl Marks {
    /// Counts one more cursor at `place`.
    pub fn add(&mut self, place: Ordinal) {
        *self.counts.entry(place).or_insert(0) += 1;
    }

    /// Counts one cursor less at `place`.
    pub fn remove(&mut self, place: Ordinal) {
        if let Some(count) = self.counts.get_mut(&place) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&place);
            }
        } else {
            debug_assert!(false, "no cursor is counted at {place}");
        }
    }

    /// Notes that one cursor moved.
    pub fn moved(&mut self, from: Ordinal, to: Ordinal) {
        if from != to {
            self.remove(from);
            self.add(to);
        }
    }

    /// The lowest place, or `None` when there are no cursors.
    #[must_use]
    pub fn lowest(&self) -> Option<Ordinal> {
        self.counts.keys().next().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_follows_the_last_cursor_that_stands_there() {
        let mut marks = Marks::default();
        assert_eq!(marks.lowest(), None);
        marks.add(Ordinal(5));
        marks.add(Ordinal(5));
        marks.add(Ordinal(9));
        marks.moved(Ordinal(5), Ordinal(9));
        assert_eq!(marks.lowest(), Some(Ordinal(5)));
        marks.moved(Ordinal(5), Ordinal(8));
        assert_eq!(marks.lowest(), Some(Ordinal(8)));
        marks.remove(Ordinal(8));
        assert_eq!(marks.lowest(), Some(Ordinal(9)));
    }
}
