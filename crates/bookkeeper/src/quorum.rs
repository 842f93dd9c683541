//! Write sets of entries, and the number of answers that confirm an entry.
//!
//! ```text
//!  ensemble of 5, write quorum 3        entry 0: 0 1 2      entry 3: 3 4 0
//!  positions  0 1 2 3 4                 entry 1:   1 2 3    entry 4: 4 0 1
//! ```
//! An entry is confirmed with the answers of its ack quorum. So an entry was not confirmed if at least `write − ack +
//! 1` bookies of its write set report that they do not have it, and never will. And no further entry can be confirmed
//! once every possible write set has fewer than `ack` bookies that did not promise to accept nothing more.

use pharos_types::EntryId;

/// Most bookies in an ensemble: sets of them are the bits of a word.
pub const ENSEMBLE_MAX: usize = 64;

/// Ensemble size, write quorum and ack quorum of a ledger: `1 ≤ ack ≤ write ≤ ensemble ≤ 64`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quorum {
    ensemble: usize,
    write: usize,
    ack: usize,
}

/// Sizes that no ledger can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "ensemble {ensemble}, write quorum {write}, ack quorum {ack}: they must be 64 or fewer, in falling order, and not 0"
)]
pub struct BadQuorum {
    /// As asked for.
    pub ensemble: usize,
    /// As asked for.
    pub write: usize,
    /// As asked for.
    pub ack: usize,
}

impl Quorum {
    /// Three copies, two of which must be on disk: one bookie may be slow or gone.
    pub const THREE_TWO: Self = Self {
        ensemble: 3,
        write: 3,
        ack: 2,
    };

    /// Bookies used, copies of each entry, and how many of them must have it.
    ///
    /// # Errors
    /// [`BadQuorum`].
    pub fn new(ensemble: usize, write: usize, ack: usize) -> Result<Self, BadQuorum> {
        if 1 <= ack && ack <= write && write <= ensemble && ensemble <= ENSEMBLE_MAX {
            Ok(Self { ensemble, write, ack })
        } else {
            Err(BadQuorum { ensemble, write, ack })
        }
    }

    /// Bookies that a ledger uses at a time.
    #[must_use]
    pub fn ensemble(self) -> usize {
        self.ensemble
    }

    /// Copies of each entry.
    #[must_use]
    pub fn write(self) -> usize {
        self.write
    }

    /// Copies that must be on disk for an entry to be confirmed.
    #[must_use]
    pub fn ack(self) -> usize {
        self.ack
    }

    /// Number of bookies of a write set that must lack an entry to prove that it was not confirmed.
    #[must_use]
    pub fn refuting(self) -> usize {
        self.write - self.ack + 1
    }

    /// The positions in the ensemble that `entry` is written to, the first one first.
    pub fn write_set(self, entry: EntryId) -> impl Iterator<Item = usize> + Clone {
        let ensemble = self.ensemble as u64;
        let first = entry.0 % ensemble;
        (0..self.write as u64).map(move |step| ((first + step) % ensemble) as usize)
    }

    /// True if `entry` is written to this position.
    #[must_use]
    pub fn has(self, entry: EntryId, position: usize) -> bool {
        self.write_set(entry).any(|at| at == position)
    }

    /// True if no entry can be confirmed any more without a bookie of `answered`: each write set lacks fewer than an
    /// ack quorum.
    #[must_use]
    pub fn is_covered_by(self, answered: Positions) -> bool {
        (0..self.ensemble as u64).all(|first| {
            let missing = self
                .write_set(EntryId(first))
                .filter(|position| !answered.contains(*position));
            missing.count() < self.ack
        })
    }
}

/// A set of positions in an ensemble.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Positions(u64);

impl Positions {
    /// Adds one; whether it was not there.
    pub fn insert(&mut self, position: usize) -> bool {
        let before = self.0;
        self.0 |= bit(position);
        self.0 != before
    }

    /// Takes one out.
    pub fn remove(&mut self, position: usize) {
        self.0 &= !bit(position);
    }

    /// True if the position is in the set.
    #[must_use]
    pub fn contains(self, position: usize) -> bool {
        self.0 & bit(position) != 0
    }

    /// Number of positions.
    #[must_use]
    pub fn count(self) -> usize {
        self.0.count_ones() as usize
    }

    /// True if the set is empty.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Intersection of both sets.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Union of both sets.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Rising.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..ENSEMBLE_MAX).filter(move |position| self.contains(*position))
    }
}

impl FromIterator<usize> for Positions {
    fn from_iter<T: IntoIterator<Item = usize>>(positions: T) -> Self {
        let mut set = Self::default();
        for position in positions {
            set.insert(position);
        }
        set
    }
}

fn bit(position: usize) -> u64 {
    u32::try_from(position)
        .ok()
        .and_then(|shift| 1u64.checked_shl(shift))
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quorum(ensemble: usize, write: usize, ack: usize) -> Quorum {
        Quorum::new(ensemble, write, ack).unwrap()
    }

    #[test]
    fn entries_go_round_the_ensemble() {
        let of = |entry| quorum(5, 3, 2).write_set(EntryId(entry)).collect::<Vec<_>>();
        assert_eq!([of(0), of(3), of(9)], [[0, 1, 2], [3, 4, 0], [4, 0, 1]]);
        assert!(quorum(5, 3, 2).has(EntryId(3), 0) && !quorum(5, 3, 2).has(EntryId(3), 1));
        assert_eq!(
            quorum(2, 2, 2).write_set(EntryId(u64::MAX)).collect::<Vec<_>>(),
            [1, 0]
        );
    }

    #[test]
    fn sizes_that_make_no_sense_are_refused() {
        for (ensemble, write, ack) in [(3, 3, 0), (3, 2, 3), (2, 3, 1), (65, 3, 2), (0, 0, 0)] {
            assert!(
                Quorum::new(ensemble, write, ack).is_err(),
                "{ensemble} {write} {ack}"
            );
        }
    }

    #[test]
    fn coverage_leaves_no_ack_quorum_unheard() {
        let covered =
            |quorum: Quorum, answered: &[usize]| quorum.is_covered_by(answered.iter().copied().collect());
        assert!(!covered(quorum(3, 3, 2), &[0]));
        assert!(covered(quorum(3, 3, 2), &[0, 1]));
        assert!(covered(quorum(3, 3, 3), &[2]));
        assert!(!covered(quorum(3, 3, 1), &[0, 1]));
        assert!(covered(quorum(3, 3, 1), &[0, 1, 2]));
        // Striped: entries of every write set must be covered.
        assert!(!covered(quorum(5, 2, 2), &[0, 2]));
        assert!(covered(quorum(5, 2, 2), &[0, 2, 4]));
        assert!(covered(quorum(4, 3, 2), &[0, 1, 2]) && !covered(quorum(4, 3, 2), &[0, 1]));
    }

    /// Coverage matches its definition, tested with every way in which bookies that did not answer could confirm an
    /// entry.
    #[test]
    fn coverage_is_as_defined() {
        for ensemble in 1..=5 {
            for write in 1..=ensemble {
                for ack in 1..=write {
                    let quorum = quorum(ensemble, write, ack);
                    for answered in 0u64..1 << ensemble {
                        let answered = Positions(answered);
                        let can_confirm = (0..ensemble as u64).any(|entry| {
                            let silent = quorum
                                .write_set(EntryId(entry))
                                .filter(|p| !answered.contains(*p));
                            silent.count() >= ack
                        });
                        assert_eq!(quorum.is_covered_by(answered), !can_confirm);
                    }
                }
            }
        }
    }
}
