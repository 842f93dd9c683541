//! The adds of a ledger that are not confirmed yet.
//!
//! ```text
//!  entries   0 … 6 │ 7 8 9 10 │
//!        confirmed ┘          └ next         pending: in order; each knows which positions of its write set have it
//! ```
//! Always true: entries are confirmed in their order; an answer counts for the bookie that stands at its position now; with another
//! bookie there the entry is sent again and the old answer does not count.

use std::collections::VecDeque;

use pharos_types::EntryId;

use crate::call::CallError;
use crate::entry::PackedEntry;
use crate::metadata::BookieId;
use crate::quorum::{Positions, Quorum};

/// An entry to be sent to a bookie.
#[derive(Clone, Debug)]
pub struct AddEffect {
    /// Position in the ensemble; part of the answer's address.
    pub position: usize,
    /// Bookie to send to.
    pub bookie: BookieId,
    /// Id of the entry.
    pub entry: EntryId,
    /// Bytes to send.
    pub body: PackedEntry,
}

/// Result of an [`AddEffect`].
#[derive(Clone, Debug)]
pub struct AddAnswer {
    /// Position in the ensemble that it was sent to.
    pub position: usize,
    /// Bookie that it was sent to.
    pub bookie: BookieId,
    /// Id of the entry.
    pub entry: EntryId,
    /// On which connection it answered; they are numbered in their order. What a bookie has stored of a ledger with deferred sync may be
    /// gone when it answers on a later one.
    pub connection: u64,
    /// `Ok` if it is stored.
    pub result: Result<(), CallError>,
}

#[derive(Debug)]
struct Pending {
    body: PackedEntry,
    /// Payload bytes of the ledger up to and with it.
    length: u64,
    acked: Positions,
    failed: Positions,
}

/// Consequence of a failed add.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failed {
    /// Nothing: another bookie stands there now.
    Stale,
    /// The entry is confirmed without it; the bookie misses it.
    Confirmed,
    /// The entry waits for others.
    Pending,
}

#[derive(Debug)]
pub(super) struct Adds {
    quorum: Quorum,
    ensemble: Vec<BookieId>,
    pending: VecDeque<Pending>,
    /// Entries before it are confirmed.
    confirmed: u64,
    /// Payload bytes of the confirmed entries.
    confirmed_length: u64,
}

impl Adds {
    /// Entries before `first` are confirmed and have `length` payload bytes.
    pub(super) fn new(quorum: Quorum, ensemble: Vec<BookieId>, first: EntryId, length: u64) -> Self {
        Self {
            quorum,
            ensemble,
            pending: VecDeque::new(),
            confirmed: first.0,
            confirmed_length: length,
        }
    }

    pub(super) fn ensemble(&self) -> &[BookieId] {
        &self.ensemble
    }

    /// Entries before it are confirmed.
    pub(super) fn confirmed(&self) -> EntryId {
        EntryId(self.confirmed)
    }

    /// The last one that is confirmed.
    pub(super) fn lac(&self) -> Option<EntryId> {
        self.confirmed.checked_sub(1).map(EntryId)
    }

    pub(super) fn confirmed_length(&self) -> u64 {
        self.confirmed_length
    }

    /// The id that the next entry gets.
    pub(super) fn next(&self) -> EntryId {
        EntryId(self.confirmed + self.pending.len() as u64)
    }

    /// Payload bytes up to and with the last entry that was pushed.
    pub(super) fn length(&self) -> u64 {
        self.pending
            .back()
            .map_or(self.confirmed_length, |last| last.length)
    }

    pub(super) fn is_idle(&self) -> bool {
        self.pending.is_empty()
    }

    /// Sends the next entry to its write set.
    pub(super) fn push(&mut self, body: PackedEntry, length: u64, out: &mut impl Extend<AddEffect>) {
        let entry = self.next();
        let send = |position| self.effect(entry, position, &body);
        out.extend(self.quorum.write_set(entry).filter_map(send));
        self.pending.push_back(Pending {
            body,
            length,
            acked: Positions::default(),
            failed: Positions::default(),
        });
    }

    fn effect(&self, entry: EntryId, position: usize, body: &PackedEntry) -> Option<AddEffect> {
        Some(AddEffect {
            position,
            bookie: self.ensemble.get(position)?.clone(),
            entry,
            body: body.clone(),
        })
    }

    fn stands_at(&self, position: usize, bookie: &BookieId) -> bool {
        self.ensemble.get(position) == Some(bookie)
    }

    fn pending_mut(&mut self, entry: EntryId) -> Option<&mut Pending> {
        let index = usize::try_from(entry.0.checked_sub(self.confirmed)?).ok()?;
        self.pending.get_mut(index)
    }

    /// Records that the entry is stored. True if that was not known yet.
    pub(super) fn on_stored(&mut self, entry: EntryId, position: usize, bookie: &BookieId) -> bool {
        if !self.stands_at(position, bookie) || !self.quorum.has(entry, position) {
            return false;
        }
        if let Some(pending) = self.pending_mut(entry) {
            pending.acked.insert(position);
            pending.failed.remove(position);
        }
        true
    }

    pub(super) fn on_failed(&mut self, entry: EntryId, position: usize, bookie: &BookieId) -> Failed {
        if !self.stands_at(position, bookie) || !self.quorum.has(entry, position) {
            return Failed::Stale;
        }
        match self.pending_mut(entry) {
            // What a bookie has stored once it has; a second answer to the same add changes nothing.
            Some(pending) if pending.acked.contains(position) => Failed::Stale,
            Some(pending) => {
                pending.failed.insert(position);
                Failed::Pending
            }
            None => Failed::Confirmed,
        }
    }

    /// Positions at which an add failed of an entry that can now not be confirmed by the others.
    pub(super) fn hopeless(&self) -> Positions {
        let spare = self.quorum.write() - self.quorum.ack();
        let hopeless = self
            .pending
            .iter()
            .filter(|pending| pending.failed.count() > spare);
        hopeless.fold(Positions::default(), |all, pending| all.or(pending.failed))
    }

    /// Confirms what has its ack quorum, in order. Whether there was anything.
    pub(super) fn confirm(&mut self) -> bool {
        self.confirm_with(|_, _| {})
    }

    /// As [`confirm`](Self::confirm); `each` hears who has the entry, and gets it.
    pub(super) fn confirm_with(&mut self, mut each: impl FnMut(Positions, PackedEntry)) -> bool {
        let before = self.confirmed;
        while let Some(first) = self.pending.front() {
            if first.acked.count() < self.quorum.ack() {
                break;
            }
            self.confirmed += 1;
            self.confirmed_length = first.length;
            if let Some(first) = self.pending.pop_front() {
                each(first.acked, first.body);
            }
        }
        self.confirmed != before
    }

    /// Other bookies from the first entry that is not confirmed on: those at changed positions get what is pending.
    pub(super) fn replace(&mut self, ensemble: Vec<BookieId>, out: &mut impl Extend<AddEffect>) {
        let pairs = self.ensemble.iter().zip(&ensemble).enumerate();
        let changed: Vec<usize> = pairs
            .filter(|(_, (before, after))| before != after)
            .map(|(position, _)| position)
            .collect();
        self.ensemble = ensemble;
        for (step, pending) in self.pending.iter_mut().enumerate() {
            let entry = EntryId(self.confirmed + step as u64);
            for position in changed.iter().copied().filter(|at| self.quorum.has(entry, *at)) {
                pending.acked.remove(position);
                pending.failed.remove(position);
                out.extend(self.ensemble.get(position).map(|bookie| AddEffect {
                    position,
                    bookie: bookie.clone(),
                    entry,
                    body: pending.body.clone(),
                }));
            }
        }
    }

    /// A bookie was lost and is back: sends it what it had stored, and what it failed to.
    pub(super) fn send_again(&mut self, position: usize, out: &mut impl Extend<AddEffect>) {
        let Some(bookie) = self.ensemble.get(position).cloned() else {
            return;
        };
        for (step, pending) in self.pending.iter_mut().enumerate() {
            if pending.acked.or(pending.failed).contains(position) {
                pending.acked.remove(position);
                pending.failed.remove(position);
                out.extend([AddEffect {
                    position,
                    bookie: bookie.clone(),
                    entry: EntryId(self.confirmed + step as u64),
                    body: pending.body.clone(),
                }]);
            }
        }
    }

    /// Sends what a bookie refused once more.
    pub(super) fn resend(&mut self, position: usize, bookie: &BookieId, out: &mut impl Extend<AddEffect>) {
        if !self.stands_at(position, bookie) {
            return;
        }
        for (step, pending) in self.pending.iter_mut().enumerate() {
            if pending.failed.contains(position) {
                pending.failed.remove(position);
                out.extend([AddEffect {
                    position,
                    bookie: bookie.clone(),
                    entry: EntryId(self.confirmed + step as u64),
                    body: pending.body.clone(),
                }]);
            }
        }
    }
}
