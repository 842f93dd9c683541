//! Detection of a burst of deliveries.
//!
//! A message for thousands of consumers arrives as thousands of deliveries within a tenth of a second. A process that
//! is woken for each of them, and answers each before it reads the next, competes with the broker for the processor;
//! one that pauses briefly between reads and answers after the burst does not. The official clients do the latter
//! too: they group acknowledgements for 100 ms. Outside a burst there is no pause and no grouping, so that few
//! messages are measured as they arrive.

/// Minimum number of deliveries without a lull that make a burst.
const DELIVERIES_MIN: u64 = 64;
/// Without a delivery for this long the burst is over.
const LULL_NS: u64 = 10_000_000;

/// Burst detector.
#[derive(Debug, Default)]
pub(crate) struct Burst {
    /// Deliveries since the last lull.
    deliveries: u64,
    /// Time of the last delivery, in nanoseconds.
    last_ns: u64,
}

impl Burst {
    /// Notes deliveries read up to `now_ns`, which never goes back.
    pub(crate) fn note(&mut self, deliveries: u64, now_ns: u64) {
        if deliveries == 0 {
            return;
        }
        if now_ns - self.last_ns >= LULL_NS {
            self.deliveries = 0;
        }
        self.deliveries += deliveries;
        self.last_ns = now_ns;
    }

    /// True if the burst is still under way at `now_ns`.
    pub(crate) fn goes_on(&self, now_ns: u64) -> bool {
        self.deliveries >= DELIVERIES_MIN && now_ns - self.last_ns < LULL_NS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_begins_with_many_deliveries_and_ends_with_a_lull() {
        let mut burst = Burst::default();
        let mut now = 1_000_000_000;
        burst.note(DELIVERIES_MIN - 1, now);
        assert!(!burst.goes_on(now), "too few");
        now += LULL_NS - 1;
        burst.note(0, now);
        burst.note(1, now);
        assert!(burst.goes_on(now) && burst.goes_on(now + LULL_NS - 1));
        assert!(!burst.goes_on(now + LULL_NS));
        now += LULL_NS;
        burst.note(1, now);
        assert!(!burst.goes_on(now), "what came before the lull counts no more");
    }
}
