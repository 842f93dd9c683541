//! Which entries of a ledger with deferred sync are on disk.
//!
//! ```text
//!  entries   0 … 6 │ 7 8 9 │ 10 11 12
//!           synced ┘       └ confirmed: an ack quorum has them, in memory perhaps
//! ```
//! A bookie that answers a force has on disk what it had acknowledged when the force was sent. So an entry is synced once an ack quorum
//! has acknowledged it before a force, and has answered that force.

use std::collections::VecDeque;

use crate::quorum::{Positions, Quorum};

/// Confirmed entries that may wait for a force; beyond, the ledger is given up.
pub(super) const WAITING_MAX: usize = 1 << 20;

#[derive(Debug, Default)]
pub(super) struct Forcing {
    /// Entries before it are on disk at their ack quorum.
    synced: u64,
    /// Who acknowledged the confirmed entries from there on.
    waiting: VecDeque<Positions>,
    running: Option<Force>,
}

#[derive(Debug)]
struct Force {
    /// The first of them.
    first: u64,
    /// Who had acknowledged what when it was sent.
    acked: VecDeque<Positions>,
    done: Positions,
    answered: Positions,
}

/// How a force ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Forced {
    /// What it was sent for is on disk.
    All,
    /// Not all of it.
    InPart,
}

impl Forcing {
    /// Entries before it are on disk.
    pub(super) fn synced(&self) -> u64 {
        self.synced
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// The next entry is confirmed.
    pub(super) fn on_confirmed(&mut self, acked: Positions) {
        self.waiting.push_back(acked);
    }

    /// A bookie acknowledged an entry that was confirmed before.
    pub(super) fn on_stored(&mut self, entry: u64, position: usize) {
        let index = entry
            .checked_sub(self.synced)
            .and_then(|index| usize::try_from(index).ok());
        if let Some(acked) = index.and_then(|index| self.waiting.get_mut(index)) {
            acked.insert(position);
        }
    }

    /// Whether a force is to be sent to all bookies now.
    pub(super) fn begin(&mut self) -> bool {
        if self.running.is_some() || self.waiting.is_empty() {
            return false;
        }
        self.running = Some(Force {
            first: self.synced,
            acked: self.waiting.clone(),
            done: Positions::default(),
            answered: Positions::default(),
        });
        true
    }

    /// What a bookie answered to a force. The outcome, once nothing more is waited for.
    pub(super) fn on_forced(&mut self, quorum: Quorum, position: usize, is_done: bool) -> Option<Forced> {
        let force = self.running.as_mut()?;
        if !force.answered.insert(position) {
            return None;
        }
        if is_done {
            force.done.insert(position);
        }
        while let Some(acked) = force.acked.front() {
            if acked.and(force.done).count() < quorum.ack() {
                break;
            }
            force.acked.pop_front();
            force.first += 1;
            if self.synced < force.first {
                self.synced = force.first;
                self.waiting.pop_front();
            }
        }
        let outcome = match force.acked.is_empty() {
            true => Some(Forced::All),
            false => (force.answered.count() == quorum.ensemble()).then_some(Forced::InPart),
        };
        if outcome.is_some() {
            self.running = None;
        }
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn positions(of: &[usize]) -> Positions {
        of.iter().copied().collect()
    }

    #[test]
    fn an_entry_is_synced_by_those_who_had_it_before_the_force() {
        let quorum = Quorum::new(3, 3, 2).unwrap();
        let mut forcing = Forcing::default();
        assert!(!forcing.begin(), "nothing to do");
        forcing.on_confirmed(positions(&[0, 1]));
        forcing.on_confirmed(positions(&[1, 2]));
        assert!(forcing.begin() && !forcing.begin());
        // Too late for this force.
        forcing.on_stored(0, 2);
        assert_eq!(forcing.on_forced(quorum, 2, true), None);
        assert_eq!(forcing.on_forced(quorum, 1, true), None);
        assert_eq!(forcing.synced(), 0, "entry 0 is on disk at one of them");
        assert_eq!(forcing.on_forced(quorum, 0, true), Some(Forced::All));
        assert_eq!((forcing.synced(), forcing.waiting()), (2, 0));
    }

    #[test]
    fn a_force_that_fails_at_a_bookie_is_made_up_for_by_the_next() {
        let quorum = Quorum::new(3, 3, 2).unwrap();
        let mut forcing = Forcing::default();
        forcing.on_confirmed(positions(&[0, 1]));
        forcing.on_confirmed(positions(&[0, 2]));
        assert!(forcing.begin());
        assert_eq!(forcing.on_forced(quorum, 1, false), None);
        assert_eq!(forcing.on_forced(quorum, 0, true), None);
        assert_eq!(forcing.on_forced(quorum, 2, true), Some(Forced::InPart));
        assert_eq!(forcing.synced(), 0, "they are synced in order");
        forcing.on_stored(0, 2);
        assert!(forcing.begin());
        assert_eq!(forcing.on_forced(quorum, 0, true), None);
        assert_eq!(forcing.on_forced(quorum, 2, true), Some(Forced::All));
        assert_eq!(forcing.synced(), 2);
    }
}
