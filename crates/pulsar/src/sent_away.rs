//! Consumers that were sent to another broker, of one connection: which of them come back again and again.
//!
//! A client that goes where it is sent comes back when that broker does not let it in, after longer and longer pauses. One that does not
//! know the field looks the topic up, and is here again at once, for ever.

use std::collections::HashMap;
use std::time::Duration;

use pharos_runtime::Nanos;

/// Maximum number of redirects of a consumer before it is told that it cannot be served.
const TIMES_MAX: u32 = 20;
/// After so long without coming back it begins anew.
const QUIET: Duration = Duration::from_secs(60);
/// Consumers that are remembered; beyond it those that were quiet are forgotten.
const REMEMBERED: usize = 1 << 17;

/// Number of recent redirects of each consumer, by its id.
#[derive(Default)]
pub(crate) struct SentAway {
    seen: HashMap<u64, (u32, Nanos)>,
}

impl SentAway {
    /// Notes that a consumer is sent away, if it may be once more.
    pub(crate) fn may_go(&mut self, consumer_id: u64, now: Nanos) -> bool {
        let is_quiet = |last: Nanos| Duration::from_nanos(now.since(last)) >= QUIET;
        if self.seen.len() >= REMEMBERED {
            self.seen.retain(|_, (_, last)| !is_quiet(*last));
            if self.seen.len() >= REMEMBERED {
                return true;
            }
        }
        let (times, last) = self.seen.entry(consumer_id).or_insert((0, now));
        if is_quiet(*last) {
            *times = 0;
        }
        *last = now;
        *times = times.saturating_add(1);
        *times <= TIMES_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_comes_back_at_once_is_told_and_one_that_pauses_is_not() {
        let mut sent = SentAway::default();
        let at = |seconds: u64| Nanos(seconds * 1_000_000_000);
        for time in 0..u64::from(TIMES_MAX) {
            assert!(sent.may_go(1, at(time)));
        }
        assert!(!sent.may_go(1, at(21)));
        assert!(sent.may_go(2, at(21)), "another consumer");
        assert!(sent.may_go(1, at(90)));
    }
}
