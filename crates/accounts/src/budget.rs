//! Bytes that all threads together may have in use.

use std::sync::atomic::{AtomicU64, Ordering};

/// A count of bytes with a limit, shared by all threads.
#[derive(Debug)]
pub struct Budget {
    bytes: AtomicU64,
    bytes_max: u64,
}

impl Budget {
    /// Nothing is used.
    #[must_use]
    pub fn new(bytes_max: u64) -> Self {
        Self {
            bytes: AtomicU64::new(0),
            bytes_max,
        }
    }

    /// Counts bytes as used; never waits, so the limit may be overrun by what was read already.
    pub fn take(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts bytes as free again.
    pub fn give(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// True once the budget is used up; no more work should be accepted.
    #[must_use]
    pub fn is_exhausted(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) >= self.bytes_max
    }
}
