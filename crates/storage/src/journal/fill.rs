//! Filling the next segment with zeros, so that appends to it change nothing but data.
//!
//! The device does it while it also takes the appends, so it is done in small pieces, spread over the time in which the
//! active segment is used up: see [`Fill::next`].

use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

use pharos_runtime::fs::{AlignedBuf, FsFile};

use crate::options::Preallocate;
use crate::shared::{JournalShared, Shared};

/// Zeros written at once when there is no time to lose: about half a millisecond of the device, which is the most that the
/// journal's own writes wait behind them.
const HASTY_BYTES: usize = 1 << 20;

/// Zeros written at once while the next segment is a little behind the active one, in bytes.
const STEADY_BYTES: usize = 128 << 10;

/// And where it is ahead: with a rest after each write that is a hundredth of the device's time, and 6 MB/s.
const IDLE_BYTES: usize = 64 << 10;
const REST: Duration = Duration::from_millis(10);

/// Distance that counts as a little behind, in bytes of the segment being filled.
const LITTLE_BEHIND: u64 = 16 << 20;

/// Fills a new file of `bytes` bytes, or a part of it when the journal cannot wait, and syncs it.
pub(super) fn fill(shared: &Shared, here: &JournalShared, file: &dyn FsFile, bytes: u64) -> io::Result<()> {
    // Reserved first, so that a full device is found out before it is filled up.
    file.allocate(bytes)?;
    if shared.options.preallocate == Preallocate::ZeroFill {
        // Never written to, so it takes no memory.
        let zeros = AlignedBuf::reusable(HASTY_BYTES.min(usize::try_from(bytes).unwrap_or(HASTY_BYTES)));
        let mut fill = Fill {
            at: 0,
            bytes,
            whole: here.queue.room() as u64,
        };
        // What is reserved and not filled reads as zeros as well; it only costs more to write to.
        while fill.at < bytes && !here.supply_urgent.load(Ordering::Acquire) {
            if shared.is_stopping() {
                return Err(io::Error::from(io::ErrorKind::Interrupted));
            }
            let (most, rest) = fill.next(here.queue.room() as u64);
            let left = usize::try_from(bytes - fill.at).unwrap_or(HASTY_BYTES);
            let part = most.min(left).min(zeros.capacity());
            file.write_all_at(&zeros.bytes()[..part], fill.at)?;
            fill.at += part as u64;
            if rest {
                // Whatever the bell is rung for is looked at once the segment is ready.
                here.bell.wait(Some(REST));
            }
        }
    }
    file.sync_data()
}

/// Fill progress of the next segment.
#[derive(Clone, Copy, Debug)]
struct Fill {
    /// Filled up to here, of so many bytes.
    at: u64,
    bytes: u64,
    /// Room in the active segment when the fill began, in bytes.
    whole: u64,
}

impl Fill {
    /// Returns the number of bytes to write next, given the room that the active segment has left, and true if a rest
    /// is to follow. The fill is to be done when four fifths of the room are used.
    fn next(&self, room: u64) -> (usize, bool) {
        let used = self.whole.saturating_sub(room);
        if used == 0 {
            // Nothing is written now, so nothing is disturbed.
            return (HASTY_BYTES, false);
        }
        let due = u128::from(used) * u128::from(self.bytes) * 5 / (u128::from(self.whole) * 4);
        let behind = u64::try_from(due).unwrap_or(u64::MAX).saturating_sub(self.at);
        match behind {
            0 => (IDLE_BYTES, true),
            1..=LITTLE_BEHIND => (STEADY_BYTES, false),
            _ => (HASTY_BYTES, false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn next(at_mib: u64, room_mib: u64) -> (usize, bool) {
        let fill = Fill {
            at: at_mib * MIB,
            bytes: 256 * MIB,
            whole: 40 * MIB,
        };
        fill.next(room_mib * MIB)
    }

    #[test]
    fn the_next_segment_keeps_pace_with_the_active_one() {
        assert_eq!(next(8, 39), (IDLE_BYTES, true), "a 32nd is due");
        assert_eq!(next(7, 39), (STEADY_BYTES, false));
        assert_eq!(next(7, 30), (HASTY_BYTES, false), "80 are due");
        assert_eq!(next(255, 8), (STEADY_BYTES, false), "all of it is due");
        assert_eq!(next(255, 9), (IDLE_BYTES, true));
    }

    #[test]
    fn where_nothing_is_written_it_does_not_rest() {
        assert_eq!(next(100, 40), (HASTY_BYTES, false));
        let first = Fill {
            at: 0,
            bytes: MIB,
            whole: 0,
        };
        assert_eq!(first.next(0), (HASTY_BYTES, false), "a start has no active one");
    }
}
