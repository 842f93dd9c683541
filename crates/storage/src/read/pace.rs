//! Pace of reads from a device, given the load of the journals.
//!
//! ```text
//!  journals idle    up to 1.5 MiB at once, all reader threads at the same time
//!  a few groups     up to 512 KiB at once, two in flight: a group waits about a millisecond at most
//!  busy, unsynced   128 KiB at once, one in flight
//!  busy             the same, and not more a second than the options say
//! ```
//! A journal whose groups are not synced writes to the operating system, and such reads hardly affect it, however
//! many there are: the limit would cost half of the rate and save nothing. Sizes are from measurements: two reads of
//! 1 MiB in flight reach the full rate of a device and block a journal on it; single reads of 128 KiB do not hurt a
//! busy journal, and nearly reach the same rate. Groups that are not urgent do not count: cursors are stored after
//! the fact, mostly those of the very readers. 1.5 MiB is the contiguous part of one of a hundred topics after a
//! flush of the write cache at its default size: a smaller limit would need two reads, the second a small one.

use pharos_runtime::sync::atomic::{AtomicU64, Ordering};
use std::io;
use std::sync::PoisonError;
use std::time::Duration;

use bytes::Bytes;
use pharos_runtime::clock;
use pharos_runtime::sync::{Condvar, Mutex, MutexGuard};
use smallvec::SmallVec;

/// Extents read at once while journals are idle.
pub(crate) const EXTENTS_MAX: u32 = 12;

/// Pieces that were read at once: the number of the first extent of each, and what is in it.
pub(super) type Read = SmallVec<[(u32, Bytes); EXTENTS_MAX as usize]>;

/// Inputs for the pace of a directory's reads.
pub(super) struct Beside<'a> {
    /// Urgent groups of all journals so far.
    pub(super) groups: &'a AtomicU64,
    /// Syncs of all journals so far.
    pub(super) syncs: &'a AtomicU64,
    /// Time of the last group, on the monotonic clock; 0 for never.
    pub(super) last_group: &'a AtomicU64,
    /// Counts the nanoseconds for which reads were held back.
    pub(super) paced_nanos: &'a AtomicU64,
    /// Maximum read rate beside a busy journal, in bytes a second; 0 is without limit.
    pub(super) bytes_per_s: u64,
}

/// Extents read at once beside a few groups.
const LIGHT_EXTENTS: u32 = 4;

/// Time after the last group until a journal is idle, in nanoseconds.
const IDLE_NANOS: u64 = 100_000_000;
/// Interval of measuring the rate of groups, in nanoseconds.
const LOOK_NANOS: u64 = 50_000_000;
/// Groups a second that make a journal busy.
const BUSY_GROUPS_PER_S: u64 = 200;
/// With fewer syncs a second than this a busy journal hands its groups to the operating system.
const UNSYNCED_PER_S: u64 = 20;

/// Load of the journals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Journals {
    #[default]
    Idle,
    Light,
    Unsynced,
    Busy,
}

impl Journals {
    /// Returns the maximum number of extents per read, and of such reads in flight.
    fn bounds(self) -> (u32, usize) {
        match self {
            Self::Idle => (EXTENTS_MAX, usize::MAX),
            Self::Light => (LIGHT_EXTENTS, 2),
            Self::Unsynced | Self::Busy => (1, 1),
        }
    }
}

/// The pace of one directory's reads.
#[derive(Debug, Default)]
pub(crate) struct Pacer {
    state: Mutex<ReadsInFlight>,
    /// A read has ended.
    bell: Condvar,
}

#[derive(Debug, Default)]
struct ReadsInFlight {
    in_flight: usize,
    /// Earliest start of the next read, on the monotonic clock.
    next: u64,
    journals: Journals,
    /// Time of the last count of groups and syncs, and the counts.
    looked_at: u64,
    groups: u64,
    syncs: u64,
}

/// A read in flight.
struct InFlight<'a>(&'a Pacer);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.lock().in_flight -= 1;
        self.0.bell.notify_one();
    }
}

impl Pacer {
    /// Waits for a turn and has `read` do the reading; it is told how many extents may be read.
    pub(super) fn read(
        &self,
        beside: &Beside<'_>,
        read: impl FnOnce(u32) -> io::Result<Read>,
    ) -> io::Result<Read> {
        let mut state = self.lock();
        let extents = loop {
            let groups = beside.groups.load(Ordering::Relaxed);
            let last = beside.last_group.load(Ordering::Relaxed);
            let syncs = beside.syncs.load(Ordering::Relaxed);
            state.look(clock::now().0, (groups, syncs), last);
            let (extents, reads) = state.journals.bounds();
            if state.in_flight < reads {
                break extents;
            }
            state = self.bell.wait(state).unwrap_or_else(PoisonError::into_inner);
        };
        state.in_flight += 1;
        let in_flight = InFlight(self);
        let (journals, next) = (state.journals, state.next);
        drop(state);
        let early = next.saturating_sub(clock::now().0);
        if journals == Journals::Busy && early > 0 {
            beside.paced_nanos.fetch_add(early, Ordering::Relaxed);
            pharos_runtime::sync::thread::sleep(Duration::from_nanos(early));
        }
        let found = read(extents);
        let pieces = found.as_deref().unwrap_or_default();
        let bytes = pieces.iter().map(|(_, piece)| piece.len() as u64).sum();
        self.lock().charge(clock::now().0, bytes, beside.bytes_per_s);
        drop(in_flight);
        found
    }

    fn lock(&self) -> MutexGuard<'_, ReadsInFlight> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ReadsInFlight {
    /// Finds out what the journals do: urgent `groups` and `syncs` so far, the last group at `last`, 0 for never.
    fn look(&mut self, now: u64, (groups, syncs): (u64, u64), last: u64) {
        let since = now.saturating_sub(self.looked_at);
        if last == 0 || now.saturating_sub(last) >= IDLE_NANOS {
            self.journals = Journals::Idle;
        } else if since >= LOOK_NANOS || self.journals == Journals::Idle {
            // Over a long time without reads the rate says little of now, but it is looked at again soon.
            let per_s = |now: u64, before: u64| {
                now.saturating_sub(before).saturating_mul(1_000_000_000) / since.max(1)
            };
            self.journals = if per_s(groups, self.groups) < BUSY_GROUPS_PER_S {
                Journals::Light
            } else if per_s(syncs, self.syncs) < UNSYNCED_PER_S {
                Journals::Unsynced
            } else {
                Journals::Busy
            };
        }
        if since >= LOOK_NANOS {
            (self.looked_at, self.groups, self.syncs) = (now, groups, syncs);
        }
    }

    /// Counts `bytes` that were read until `now` against `rate` a second; 0 is without limit. What is read while no journal is busy
    /// may be more than that, and is not held against those who read when one is.
    fn charge(&mut self, now: u64, bytes: u64, rate: u64) {
        if self.journals != Journals::Busy {
            return;
        }
        if let Some(pause) = bytes.saturating_mul(1_000_000_000).checked_div(rate) {
            // What was not used is not saved up, except for the time of the read itself.
            let from = self.next.max(now.saturating_sub(pause));
            self.next = from + pause;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn the_rate_of_groups_tells_busy_from_a_few_and_from_none() {
        let mut state = ReadsInFlight::default();
        state.look(1000 * MS, (0, 0), 0);
        assert_eq!(state.journals, Journals::Idle);
        // One group now and then.
        state.look(1010 * MS, (1, 1), 1009 * MS);
        assert_eq!(state.journals, Journals::Light);
        state.look(1100 * MS, (3, 3), 1099 * MS);
        assert_eq!(state.journals, Journals::Light);
        // Thirty in the next fiftieth of a second.
        state.look(1150 * MS, (33, 33), 1150 * MS);
        assert_eq!(state.journals, Journals::Busy);
        // Nothing is decided on too short a time.
        state.look(1160 * MS, (33, 33), 1150 * MS);
        assert_eq!(state.journals, Journals::Busy);
        state.look(1249 * MS, (33, 33), 1150 * MS);
        assert_eq!(state.journals, Journals::Light);
        state.look(1250 * MS, (33, 33), 1150 * MS);
        assert_eq!(state.journals, Journals::Idle);
    }

    #[test]
    fn groups_that_are_not_synced_are_told_from_those_that_are() {
        let mut state = ReadsInFlight::default();
        state.look(1000 * MS, (0, 0), 999 * MS);
        // Three hundred groups in a tenth of a second, and the sync of each second.
        state.look(1100 * MS, (300, 1), 1100 * MS);
        assert_eq!(state.journals, Journals::Unsynced);
        // What is read beside them is not limited.
        state.charge(1100 * MS, 1 << 30, 1_000_000);
        assert!(state.next <= 1100 * MS);
        // Some of the next are synced.
        state.look(1200 * MS, (600, 5), 1200 * MS);
        assert_eq!(state.journals, Journals::Busy);
    }

    #[test]
    fn a_limit_holds_over_time_and_is_not_saved_up() {
        let mut state = ReadsInFlight {
            journals: Journals::Busy,
            ..ReadsInFlight::default()
        };
        state.charge(1000 * MS, 1000, 1_000_000);
        assert_eq!(state.next, 1000 * MS);
        state.charge(1000 * MS, 2000, 1_000_000);
        assert_eq!(state.next, 1002 * MS);
        state.charge(5000 * MS, 1000, 1_000_000);
        assert_eq!(state.next, 5000 * MS);
        state.charge(5000 * MS, 1000, 0);
        assert_eq!(state.next, 5000 * MS);
    }

    #[test]
    fn what_was_read_without_a_limit_delays_no_later_read() {
        let mut state = ReadsInFlight::default();
        for journals in [Journals::Idle, Journals::Light] {
            state.journals = journals;
            // A gigabyte in a moment.
            state.charge(1000 * MS, 1 << 30, 1_000_000);
        }
        state.journals = Journals::Busy;
        assert!(state.next <= 1000 * MS);
        state.charge(1001 * MS, 1000, 1_000_000);
        assert_eq!(state.next, 1001 * MS);
    }
}
