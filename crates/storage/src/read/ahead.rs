//! Reading on behind a job that is done, for a reader that goes through a backlog from front to back.
//!
//! A reader that waits for each answer before it asks for more leaves the device idle in between. So a thread that has
//! nothing to do reads the next pieces into the read cache, until a reader wants something. Only for a few readers: many
//! keep the device busy by themselves, and what is read for all of them would push each other out of the cache.

use std::collections::VecDeque;

use pharos_types::LedgerId;

use super::extents::{EXTENT_BYTES, extents_in};
use super::job::{Ahead, ReadJob};
use super::pace::EXTENTS_MAX;
use super::stage;
use super::{beside, end_of_log};
use crate::shared::{LedgerDir, Shared};

/// Distance to read ahead behind a job, in extents.
const AHEAD_EXTENTS: u32 = 32;
/// Number of recent jobs from which the number of readers is estimated.
const RECENT: usize = 16;

/// Ranges that one thread reads ahead.
#[derive(Debug, Default)]
pub(super) struct Reader {
    ranges: VecDeque<Ahead>,
    /// The ledgers of the last jobs.
    recent: VecDeque<LedgerId>,
}

impl Reader {
    /// True if there is nothing to read ahead.
    pub(super) fn is_idle(&self) -> bool {
        self.ranges.is_empty()
    }

    /// A job is done: from now on what lies behind it is read.
    pub(super) fn begin(&mut self, shared: &Shared, job: &ReadJob) {
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(job.ledger);
        let mut ledgers: Vec<LedgerId> = self.recent.iter().copied().collect();
        ledgers.sort_unstable();
        ledgers.dedup();
        let all = ledgers.len() as u64 * u64::from(AHEAD_EXTENTS) * EXTENT_BYTES;
        self.ranges = match all <= shared.extents.bytes_max() / 2 {
            true => job.what_follows(AHEAD_EXTENTS),
            false => VecDeque::new(),
        };
    }

    /// Reads the next piece. What cannot be read is left to the job that wants it, which can say so.
    pub(super) fn step(&mut self, shared: &Shared, dir: &LedgerDir) {
        let Some(range) = self.ranges.front_mut() else {
            return;
        };
        let file = range.file.clone();
        while range.number < range.end && shared.extents.has((file.dir, file.id, range.number)) {
            range.number += 1;
        }
        if range.number >= range.end {
            self.ranges.pop_front();
            return;
        }
        let number = range.number;
        let count = (range.end - number).min(EXTENTS_MAX);
        let flight = match dir.flights.try_begin(file.id, number, count) {
            Ok(flight) => flight,
            Err(behind) => {
                range.number = behind;
                return;
            }
        };
        let start = u64::from(number) * EXTENT_BYTES;
        let log_end = end_of_log(shared, &file);
        let found = dir.pacer.read(&beside(shared), |allowed| {
            let want = u64::from(flight.count().min(allowed)) * EXTENT_BYTES;
            let want = want.min(log_end.saturating_sub(start));
            stage::read(shared, &file, number, want, &range.inside)
        });
        match found {
            Ok(found) if !found.is_empty() => {
                for (number, piece) in found {
                    range.number = number + extents_in(&piece);
                    shared.extents.put((file.dir, file.id, number), piece);
                }
            }
            _ => self.ranges.clear(),
        }
    }
}
