//! Bisection over entries of which some cannot be read.
//!
//! An entry that cannot be read counts as what the next readable one is: with that it is old or new. The next readable one is found
//! by steps that double, then by bisection between the last unreadable and the first readable step, so a run of damaged
//! entries costs about the square of the logarithm of what is searched, however long it is. Behind the last readable entry
//! nothing is known: what is there counts as new.

use pharos_types::Ordinal;

/// Result of looking at an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// The entry lies before the target.
    Before,
    /// The entry is the target, or lies after it.
    Found,
    /// The entry cannot be read, now or later.
    Unreadable,
}

/// A search in a half-open range for the first entry that fits. It reads nothing itself: ask [`look`](Self::look), read that entry,
/// tell [`note`](Self::note).
#[derive(Clone, Debug)]
pub struct Search {
    /// Everything before is not it.
    low: Ordinal,
    /// This is it, or the end, or lies behind.
    high: Ordinal,
    at: Ordinal,
    hole: Option<Hole>,
}

/// A run of entries that cannot be read, as far as it is known.
#[derive(Clone, Copy, Debug)]
struct Hole {
    first: Ordinal,
    /// The last one that is known to be unreadable.
    last: Ordinal,
    /// A readable entry behind it; it is not before what is looked for.
    readable: Option<Ordinal>,
}

impl Search {
    /// Of `from..end`; `hint` is looked at first.
    #[must_use]
    pub fn new(from: Ordinal, end: Ordinal, hint: Ordinal) -> Self {
        let last = Ordinal(end.0.saturating_sub(1));
        Self {
            low: from,
            high: end.max(from),
            at: hint.min(last).max(from),
            hole: None,
        }
    }

    /// The entry to look at, or `None` when the search is over.
    #[must_use]
    pub fn look(&self) -> Option<Ordinal> {
        (self.low < self.high).then_some(self.at)
    }

    /// The first entry that fits; the end when there is none.
    #[must_use]
    pub fn found(&self) -> Ordinal {
        self.low
    }

    /// Tells what the entry of the last [`look`](Self::look) is.
    pub fn note(&mut self, seen: Seen) {
        let at = self.at;
        match (seen, self.hole) {
            (Seen::Before, _) => {
                self.low = at.next();
                self.hole = None;
            }
            (Seen::Found, None) => self.high = at,
            (Seen::Found, Some(hole)) => {
                self.hole = Some(Hole {
                    readable: Some(at),
                    ..hole
                });
            }
            (Seen::Unreadable, known) => {
                let first = known.map_or(at, |hole| hole.first);
                self.hole = Some(Hole {
                    first,
                    last: at,
                    readable: known.and_then(|hole| hole.readable),
                });
            }
        }
        self.at = self.next_look();
    }

    /// Next entry to look at; a hole whose end is known is skipped.
    fn next_look(&mut self) -> Ordinal {
        if let Some(hole) = self.hole {
            let behind = hole.readable.unwrap_or(self.high);
            if hole.last.next() < behind {
                return match hole.readable {
                    Some(readable) => hole.last.plus(hole.last.count_to(readable) / 2),
                    None => {
                        let step = hole.first.count_to(hole.last).max(1);
                        hole.last.plus(step).min(Ordinal(self.high.0 - 1))
                    }
                };
            }
            self.high = hole.first;
            self.hole = None;
        }
        self.low
            .plus(self.low.0.abs_diff(self.high.0.max(self.low.0)) / 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Searches `0..marks.len()`, where an entry is `o`ld, `n`ew, or damaged. Returns the place and how many were looked at.
    fn search(marks: &[u8], hint: u64) -> (u64, usize) {
        let mut search = Search::new(Ordinal(0), Ordinal(marks.len() as u64), Ordinal(hint));
        let mut looks = 0;
        while let Some(at) = search.look() {
            looks += 1;
            assert!(looks < 2_000, "{:?}", String::from_utf8_lossy(marks));
            search.note(match marks[usize::try_from(at.0).unwrap()] {
                b'o' => Seen::Before,
                b'n' => Seen::Found,
                _ => Seen::Unreadable,
            });
        }
        (search.found().0, looks)
    }

    #[test]
    fn what_cannot_be_read_counts_as_the_next_that_can() {
        for (marks, place) in [
            ("", 0),
            ("x", 0),
            ("xxxx", 0),
            ("xooo", 4),
            ("xxxxxooonn", 8),
            ("ooxnn", 2),
            ("ooxonn", 4),
            ("ooxxxxonn", 7),
            ("ooxxxxnnn", 2),
            ("oooxx", 3),
            ("nnxx", 0),
            ("xxxnn", 0),
            ("oxoxoxnxn", 5),
        ] {
            for hint in 0..marks.len().max(1) as u64 {
                assert_eq!(search(marks.as_bytes(), hint).0, place, "{marks} from {hint}");
            }
        }
    }

    #[test]
    fn every_single_hole_is_passed_with_few_looks() {
        const ENTRIES: usize = 48;
        for border in 0..=ENTRIES {
            for first in 0..ENTRIES {
                for end in first + 1..=ENTRIES {
                    let mut marks = vec![b'o'; border];
                    marks.resize(ENTRIES, b'n');
                    marks[first..end].fill(b'x');
                    let readable_new = (border..ENTRIES).find(|at| !(first..end).contains(at));
                    let readable_old = (0..border).rfind(|at| !(first..end).contains(at));
                    // Behind the last old entry that can be read.
                    let place = readable_old.map_or(0, |at| at as u64 + 1);
                    let (found, looks) = search(&marks, 0);
                    assert_eq!(found, place, "{first}..{end}, new from {readable_new:?}");
                    assert!(looks <= 60, "{looks} looks");
                }
            }
        }
        let mut large = vec![b'o'; 1_000_000];
        large[300_000..900_000].fill(b'x');
        let (found, looks) = search(&large, 0);
        assert_eq!(found, 1_000_000);
        assert!(looks < 500, "{looks}");
    }
}
