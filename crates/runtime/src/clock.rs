//! The only place that asks what time it is.
//!
//! Two clocks: a monotonic one in nanoseconds for durations, and the wall clock in milliseconds, which is what the
//! protocol carries. Both are a few tens of nanoseconds per call (vDSO).

#![expect(clippy::disallowed_methods, reason = "this module is the door to the clocks")]

use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// A point on the monotonic clock, in nanoseconds since the process first asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Nanos(pub u64);

impl Nanos {
    /// Nanoseconds from `earlier` to `self`; 0 when `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// Now, on the monotonic clock.
#[must_use]
pub fn now() -> Nanos {
    #[cfg(feature = "test-util")]
    if let Some(nanos) = crate::simulated::now() {
        return Nanos(nanos);
    }
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    let origin = *ORIGIN.get_or_init(Instant::now);
    Nanos(u64::try_from(origin.elapsed().as_nanos()).unwrap_or(u64::MAX))
}

/// Now, on the wall clock, in milliseconds since 1970.
#[must_use]
pub fn wall_ms() -> u64 {
    #[cfg(feature = "test-util")]
    if let Some(ms) = crate::simulated::wall_ms() {
        return ms;
    }
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
}
