//! Pace of a flush: as fast as it can when memory fills quickly, otherwise in small pieces with rests.
//!
//! Owned by one share of a flush. A flush has until the other half of the write cache is full; it aims at being done
//! when that is [`GOAL_PERCENT`] full. The fill level of that half since the swap gives the target of the flush: a
//! flush that is behind does not rest; one that is ahead rests for as long as the half takes to catch up, at the pace
//! it was filled so far. So the work is spread over seconds instead of blocking all threads (cores, the allocator,
//! the device) for a hundred milliseconds. A half that fills in less than [`SLOW`] is flushed without rests, but for
//! a [`PAUSE_MIN`] now and then while memory is given back and appends are not about to wait for it.
//!
//! Always true: without rests nothing changes but the time, so tests that step by hand leave them out.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use pharos_runtime::{Nanos, clock};

use super::log_writer::write_bytes;
use crate::shared::Shared;

/// Target fill level of the other half at the end of a flush, in percent: well before it is to be flushed itself.
const GOAL_PERCENT: u64 = 50;

/// Fill time of a half below which the other one is needed soon.
const SLOW: Duration = Duration::from_secs(2);

/// With nothing coming in, a flush still gets on at this many bytes a second.
const RATE_MIN: u64 = 32 << 20;

/// Entries whose memory is given back between two rests. Giving back a hundred thousand small pieces in one go keeps
/// all other threads from asking for any, for tens of milliseconds.
const FREED_ENTRIES: u64 = 256;

/// The rest after these when there is no time for longer ones.
const PAUSE_MIN: Duration = Duration::from_micros(500);

/// Shares of writing an entry and of giving back its memory in the work on it, in quarters.
const WRITING: u64 = 3;
const FREEING: u64 = 1;
const ALL: u64 = WRITING + FREEING;

/// True if `bytes` that came in `took` came so slowly that there is time to rest in a flush of them: a half of
/// `half_bytes` would have taken at least [`SLOW`].
pub(super) fn is_slow(bytes: u64, took: Duration, half_bytes: u64) -> bool {
    took.as_nanos().saturating_mul(u128::from(half_bytes)) >= SLOW.as_nanos() * u128::from(bytes)
}

/// Rest policy of a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rests {
    /// Never: it is stepped by hand.
    None,
    /// For a moment while it frees memory.
    Short,
    /// For as long as there is time.
    Long,
}

#[derive(Debug)]
pub(super) struct Pacer {
    shared: Arc<Shared>,
    rests: Rests,
    began: Nanos,
    /// Work to be done, done, and done since the last rest: bytes in quarters.
    total: u64,
    done: u64,
    piece: u64,
    /// Entries freed since the last rest.
    entries: u64,
}

impl Pacer {
    /// For a share of `bytes` bytes of a half that was swapped at `began`.
    pub(super) fn new(shared: Arc<Shared>, rests: Rests, began: Nanos, bytes: u64) -> Self {
        Self {
            shared,
            rests,
            began,
            total: bytes * ALL,
            done: 0,
            piece: 0,
            entries: 0,
        }
    }

    /// The share begins again.
    pub(super) fn restart(&mut self) {
        self.done = 0;
    }

    /// An entry of this size was pushed.
    pub(super) fn on_pushed(&mut self, bytes: u64) {
        self.piece += bytes * WRITING;
        if self.piece >= write_bytes(&self.shared) as u64 * WRITING {
            self.rest(Duration::ZERO);
        }
    }

    /// Everything is in the logs: whatever was counted, the memory is what is left.
    pub(super) fn on_written(&mut self) {
        self.done = self.total / ALL * WRITING;
        self.piece = 0;
    }

    /// An entry of this size has left memory.
    pub(super) fn on_freed(&mut self, bytes: u64) {
        self.piece += bytes * FREEING;
        self.entries += 1;
        let is_large = self.piece >= write_bytes(&self.shared) as u64 * FREEING;
        if self.entries >= FREED_ENTRIES || is_large && self.rests == Rests::Long {
            self.entries = 0;
            self.rest(PAUSE_MIN);
        }
    }

    /// Rests now; for `short` where there is no time for more.
    fn rest(&mut self, short: Duration) {
        let piece = std::mem::take(&mut self.piece);
        self.done += piece;
        let rest = match self.rests {
            Rests::None => Duration::ZERO,
            _ if self.is_awaited() => Duration::ZERO,
            Rests::Short if self.shared.cache.is_nearly_full() => Duration::ZERO,
            Rests::Short => short,
            Rests::Long => self.long_rest(piece),
        };
        if !rest.is_zero() {
            pharos_runtime::sync::thread::sleep(rest);
        }
    }

    fn long_rest(&self, piece: u64) -> Duration {
        let progress = FlushProgress {
            done: self.done,
            total: self.total,
            piece,
            filled: self.shared.cache.fill().bytes,
            goal: self.shared.cache.half_bytes() * GOAL_PERCENT / 100,
            elapsed: Duration::from_nanos(clock::now().since(self.began)),
        };
        progress.rest()
    }

    /// True if a caller waits for the flush itself, however much room there is.
    fn is_awaited(&self) -> bool {
        let shared = &self.shared;
        shared.is_stopping()
            || shared.poison().is_some()
            || shared.flush_wanted.load(Ordering::Acquire)
            || !shared.parked().is_empty()
            || shared.is_journal_long()
            || shared
                .journals
                .iter()
                .any(|journal| journal.queue.refuses_for_space())
    }
}

/// Progress of a flush.
#[derive(Clone, Copy, Debug)]
struct FlushProgress {
    /// Bytes in quarters.
    done: u64,
    total: u64,
    piece: u64,
    /// Bytes in the other half, and how many there may be at the end.
    filled: u64,
    goal: u64,
    /// Time since the swap.
    elapsed: Duration,
}

impl FlushProgress {
    /// Returns the time to rest now.
    fn rest(&self) -> Duration {
        let whole = u128::from(self.total.max(1));
        let expected = (u128::from(self.goal) * u128::from(self.done.min(self.total)) / whole) as u64;
        let ahead = expected.saturating_sub(self.filled);
        let longest = Duration::from_nanos(self.piece.saturating_mul(1_000_000_000) / (RATE_MIN * ALL));
        if ahead == 0 {
            return Duration::ZERO;
        }
        let elapsed = self.elapsed.as_nanos().saturating_mul(u128::from(ahead));
        let Some(nanos) = elapsed.checked_div(u128::from(self.filled)) else {
            return longest;
        };
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)).min(longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Half of the work is done, in a half of 128 MiB.
    fn half_done(filled_mib: u64) -> FlushProgress {
        FlushProgress {
            done: 2 * 128 * MIB,
            total: 4 * 128 * MIB,
            piece: 3 * MIB,
            filled: filled_mib * MIB,
            goal: 64 * MIB,
            elapsed: Duration::from_millis(160),
        }
    }

    #[test]
    fn only_what_came_slowly_is_flushed_with_rests() {
        assert!(!is_slow(96 * MIB, Duration::from_millis(1_400), 128 * MIB));
        assert!(is_slow(96 * MIB, Duration::from_millis(1_600), 128 * MIB));
        assert!(is_slow(1, Duration::from_secs(60), 128 * MIB));
    }

    #[test]
    fn a_flush_that_is_behind_does_not_rest() {
        assert_eq!(half_done(32).rest(), Duration::ZERO);
        assert_eq!(half_done(100).rest(), Duration::ZERO);
    }

    #[test]
    fn one_that_is_ahead_waits_for_the_half_to_catch_up() {
        // 31 MiB came in 160 ms, the next one takes a 31st of that.
        let rest = half_done(31).rest();
        assert_eq!(rest.as_micros(), 160_000 / 31);
    }

    #[test]
    fn one_that_nothing_presses_still_gets_on() {
        let piece_at_rate_min = Duration::from_nanos(1_000_000_000 * 3 / 32 / 4);
        assert_eq!(half_done(0).rest(), piece_at_rate_min);
        assert_eq!(half_done(1).rest(), piece_at_rate_min);
    }
}
