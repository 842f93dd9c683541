//! Both copies together: what it takes for a group to be durable, and what becomes of one that failed.
//!
//! ```text
//!  room for it in both ─► copy-1: group, sync ─► copy-2: group and a header that knows it, sync ─► it counts
//!  a write failed ─► the group is made invalid wherever it was tried ─► the next group gets its number
//!  a sync failed  ─► nothing is written any more
//! ```

use std::path::Path;
use std::sync::Arc;

use pharos_runtime::fs::{Fs, is_no_space};

use super::copy::{Again, Copy, CopyError, NewGroup, snapshot_bytes};
use super::format::{COPIES, DATA_AT, round_up};
use super::recover::{Recovered, copy_name};
use super::state::Contents;
use crate::{Fault, OpenError};

/// Reason why a group was not written.
#[derive(Clone, Debug)]
pub(super) enum Failure {
    /// There is no room, and nothing was written.
    NoSpace(Arc<Fault>),
    /// The next one may succeed.
    Failed(Arc<Fault>),
    /// No later one will.
    Final(Arc<Fault>),
}

impl Failure {
    pub(super) fn fault(&self) -> &Arc<Fault> {
        let (Self::NoSpace(fault) | Self::Failed(fault) | Self::Final(fault)) = self;
        fault
    }
}

#[derive(Debug)]
pub(super) struct Log {
    /// The first one is written first.
    copies: Vec<Copy>,
    pub(super) store_id: u64,
    /// The last one given to a copy.
    generation: u64,
    pub(super) epoch: u64,
    pub(super) ledgers_from: u64,
    /// Room that new keys cannot have, in bytes.
    reserve: u64,
    /// Ends of the copies before a group that failed and was not invalidated yet.
    take_back: Option<Vec<u64>>,
}

impl Log {
    /// Opens the copies and makes whole what is not. `recovered` is what was read from them.
    pub(super) fn open(
        fs: &dyn Fs,
        dir: &Path,
        recovered: &Recovered,
        reserve: u64,
    ) -> Result<Self, OpenError> {
        let mut log = Self {
            copies: Vec::new(),
            store_id: recovered.store_id,
            generation: recovered.generation,
            epoch: recovered.epoch,
            ledgers_from: recovered.ledgers_from,
            reserve,
            take_back: None,
        };
        let mut missing = Vec::new();
        for number in 1..=COPIES {
            let path = dir.join(copy_name(number));
            match recovered.copies.iter().find(|copy| copy.number == number) {
                Some(found) => {
                    let copy =
                        Copy::open(fs, &path, found).map_err(|error| OpenError::copy(&path, &error))?;
                    log.copies.push(copy);
                }
                None => missing.push((number, path)),
            }
        }
        for (number, path) in missing {
            log.generation += 1;
            let again = log.again(&recovered.state);
            let copy =
                Copy::create(fs, &path, number, &again).map_err(|error| OpenError::copy(&path, &error))?;
            log.copies.push(copy);
        }
        log.copies.sort_by_key(|copy| copy.path.clone());
        // A copy that is too short for what is in it was cut; one that could only be longer does without.
        let state = &recovered.state;
        if log.bytes() < log.bytes_usual(state.bytes)
            && let Err(error) = log.grow(log.bytes_wanted(state.bytes))
            && !(matches!(&error, CopyError::Write(error) if is_no_space(error))
                && log.bytes() >= log.bytes_least(state.bytes))
        {
            return Err(OpenError::copy(dir, &error));
        }
        log.mend(state).map_err(|error| OpenError::copy(dir, &error))?;
        Ok(log)
    }

    fn again<'a>(&self, state: &'a Contents) -> Again<'a> {
        Again {
            state,
            store_id: self.store_id,
            generation: self.generation,
            epoch: self.epoch,
            ledgers_from: self.ledgers_from,
            bytes_wanted: self.bytes_wanted(state.bytes),
        }
    }

    /// With less room a copy with so many bytes of records could not take every change that makes it smaller.
    fn bytes_least(&self, bytes: u64) -> u64 {
        DATA_AT + snapshot_bytes(bytes) + round_up(bytes) + self.reserve / 4
    }

    /// As much as copies with so many bytes of records have when the device has it.
    fn bytes_usual(&self, bytes: u64) -> u64 {
        self.bytes_least(bytes) + self.reserve - self.reserve / 4
    }

    /// As much as they get when they grow, so that they seldom do.
    fn bytes_wanted(&self, bytes: u64) -> u64 {
        self.bytes_usual(bytes + bytes / 4 + self.reserve)
    }

    /// The room of the smaller copy.
    fn bytes(&self) -> u64 {
        self.copies.iter().map(Copy::bytes).min().unwrap_or(0)
    }

    fn grow(&mut self, bytes: u64) -> Result<(), CopyError> {
        self.copies.iter_mut().try_for_each(|copy| copy.grow(bytes))
    }

    /// Makes sure that there is room for `bytes` of records where there were fewer. `may_use` says how much of the reserve
    /// the change may have when the device is full.
    pub(super) fn make_room(&mut self, bytes: u64, may_use: Reserve) -> Result<(), Failure> {
        if self.bytes() >= self.bytes_usual(bytes) {
            return Ok(());
        }
        let Err(error) = self.grow(self.bytes_wanted(bytes)) else {
            return Ok(());
        };
        let kept = match may_use {
            Reserve::Half => self.reserve / 4,
            Reserve::Most => 0,
        };
        let transient = matches!(error, CopyError::Write(_));
        if transient && self.bytes() >= self.bytes_least(bytes) + kept {
            return Ok(());
        }
        Err(failure(&error, true))
    }

    /// The largest group that fits, after the copies were written again if need be. What makes things smaller always does, one
    /// by one.
    pub(super) fn group_bytes_max(&self, state: &Contents) -> u64 {
        let taken = DATA_AT + snapshot_bytes(state.bytes);
        self.bytes().saturating_sub(taken)
    }

    /// Makes a group durable in both copies. `state` is without it.
    pub(super) fn append(&mut self, state: &Contents, group: &NewGroup) -> Result<(), Failure> {
        self.try_append(state, group).map_err(|error| {
            let mut undone = true;
            if matches!(error, CopyError::Write(_)) && self.take_back.is_some() {
                undone = match self.mend(state) {
                    Ok(()) => true,
                    Err(CopyError::Write(_)) => false,
                    Err(again) => return failure(&again, false),
                };
            }
            failure(&error, undone)
        })
    }

    fn try_append(&mut self, state: &Contents, group: &NewGroup) -> Result<(), CopyError> {
        self.mend(state)?;
        let bytes = round_up(group.bytes.len() as u64);
        for number in 0..self.copies.len() {
            if self.copies.get(number).is_some_and(|copy| copy.room() < bytes) {
                self.write_again(number, state)?;
            }
        }
        let ends: Vec<u64> = self.copies.iter().map(Copy::end).collect();
        let last = self.copies.len() - 1;
        for (number, copy) in self.copies.iter_mut().enumerate() {
            // The header of the last copy may know the group: it is durable in the others.
            let known = group.number - u64::from(number < last);
            if let Err(error) = copy.append(group, known) {
                self.take_back = Some(ends);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Finishes what a failed write left behind, before anything else is written.
    fn mend(&mut self, state: &Contents) -> Result<(), CopyError> {
        if let Some(ends) = &self.take_back {
            // The last copy first: while its header knows the group, the group must be somewhere.
            for (copy, end) in self.copies.iter_mut().zip(ends).rev() {
                if copy.whole {
                    copy.take_back(*end, state.number)?;
                }
            }
            self.take_back = None;
        }
        for number in 0..self.copies.len() {
            if self.copies.get(number).is_some_and(|copy| !copy.whole) {
                self.write_again(number, state)?;
            }
        }
        Ok(())
    }

    fn write_again(&mut self, number: usize, state: &Contents) -> Result<(), CopyError> {
        self.generation += 1;
        let again = self.again(state);
        match self.copies.get_mut(number) {
            Some(copy) => copy.write_again(&again),
            None => Ok(()),
        }
    }

    /// Says that nothing is written after this. What could not be said costs the next start some time.
    pub(super) fn close(&mut self, state: &Contents) -> Result<(), CopyError> {
        self.mend(state)?;
        self.copies
            .iter_mut()
            .try_for_each(|copy| copy.close(state.number))
    }

    /// Says the epoch and from which ledger on this store may call ledgers orphans, durably in both copies.
    pub(super) fn say(&mut self, epoch: u64, ledgers_from: u64) -> Result<(), CopyError> {
        for copy in &mut self.copies {
            copy.say(epoch, ledgers_from)?;
        }
        (self.epoch, self.ledgers_from) = (epoch, ledgers_from);
        Ok(())
    }
}

/// Share of the reserve available to a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reserve {
    /// A new key.
    Half,
    /// A larger value of a key that is there.
    Most,
}

fn failure(error: &CopyError, undone: bool) -> Failure {
    let fault = Fault::new("write metadata", error);
    match error {
        CopyError::Write(error) if undone && is_no_space(error) => Failure::NoSpace(fault),
        CopyError::Write(_) => Failure::Failed(fault),
        CopyError::Sync(_) | CopyError::Memory(_) => Failure::Final(fault),
    }
}
