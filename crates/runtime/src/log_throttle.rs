//! Rate limit of log lines that peers can cause at will: a flood of peers must not become a flood of lines, which
//! fill a disk and are each a write that others wait behind.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::{Nanos, clock};

/// Lines a second.
const LINES: u64 = 10;
const SECOND: u64 = 1_000_000_000;

/// Decides which lines of one kind are told: ten a second. Shared by all threads.
#[derive(Debug, Default)]
pub struct LogThrottle {
    /// The second that is counted.
    second: AtomicU64,
    lines: AtomicU64,
    untold: AtomicU64,
}

impl LogThrottle {
    /// Checks if this line may be logged: `Some` with the number of lines suppressed before it.
    pub fn enter(&self) -> Option<u64> {
        self.enter_at(clock::now())
    }

    fn enter_at(&self, now: Nanos) -> Option<u64> {
        let second = now.0 / SECOND;
        // Two threads may both begin a second: some lines more.
        if self.second.swap(second, Ordering::Relaxed) != second {
            self.lines.store(0, Ordering::Relaxed);
        }
        if self.lines.fetch_add(1, Ordering::Relaxed) < LINES {
            return Some(self.untold.swap(0, Ordering::Relaxed));
        }
        self.untold.fetch_add(1, Ordering::Relaxed);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_a_few_lines_and_a_count() {
        let throttle = LogThrottle::default();
        let start = 7 * SECOND;
        let told = (0..1000).filter_map(|_| throttle.enter_at(Nanos(start)));
        assert_eq!(told.collect::<Vec<_>>(), [0; LINES as usize]);
        assert_eq!(throttle.enter_at(Nanos(start + SECOND)), Some(1000 - LINES));
        assert_eq!(throttle.enter_at(Nanos(start + SECOND)), Some(0));
    }
}
