//! Due times of messages: an open loop that never skips an overdue message.
//!
//! Message `n` is due at `start + n / rate`, however long the ones before it took. A load that waits for a slow
//! broker therefore reports the wait as latency instead of omitting it.
//!
//! Late wake-ups by the system would be reported as latency of the broker as well; [`Rest`] avoids them.

use std::num::NonZeroU64;

use super::batch::Due;

/// Timer slack of a load thread, in nanoseconds; the default of 50 us is more than a broker needs for a message.
const TIMER_SLACK_NS: u64 = 1_000;
/// A thread that waits for seldom batches sleeps until so long before they are due and looks at the clock from then on: a
/// core that was asleep needs part of it to come back.
const AWAKE_BEFORE_NS: u64 = 100_000;
/// Batches a second of one thread up to which they are seldom: waiting for them awake costs a tenth of a core at most.
const SELDOM: f64 = 1_000.0;

/// Sleep policy of a load thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rest {
    seldom: bool,
}

impl Rest {
    /// For the calling thread, which has `producers` of `rate` messages a second each (0: as fast as it goes), in batches of
    /// at most `capacity` messages that wait at most `batch_delay_ns`.
    pub(crate) fn new(producers: usize, rate: f64, capacity: u32, batch_delay_ns: u64) -> Self {
        // Best effort: without it the thread is late more often, which is measured.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(TIMER_SLACK_NS));
        let by_age = 1e9 / (batch_delay_ns.max(1) as f64);
        let batches = rate.min(by_age.max(rate / f64::from(capacity.max(1))));
        Self {
            seldom: rate > 0.0 && batches * producers as f64 <= SELDOM,
        }
    }

    /// True if an infrequent batch is due in `due_ns` and the thread should do nothing else before.
    pub(crate) fn is_close(self, due_ns: u64) -> bool {
        self.seldom && due_ns <= 2 * AWAKE_BEFORE_NS
    }

    /// Returns the maximum time to sleep if the next batch is due in `due_ns`.
    pub(crate) fn sleep_ns(self, due_ns: u64) -> u64 {
        if self.seldom {
            due_ns.saturating_sub(AWAKE_BEFORE_NS)
        } else {
            due_ns
        }
    }
}

/// The schedule of one producer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pacing {
    start_ns: u64,
    /// 0 when not paced.
    step_ns: f64,
    batch_delay_ns: u64,
}

/// Next action of a producer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Turn {
    /// Send this many messages.
    Send(u32, Due),
    /// Nothing until then, monotonic nanoseconds.
    WaitUntil(u64),
}

impl Pacing {
    /// `rate` messages a second from `start_ns` on; 0 for as fast as it goes.
    pub(crate) fn new(start_ns: u64, rate: f64, batch_delay_ns: u64) -> Self {
        let step_ns = if rate > 0.0 { 1e9 / rate } else { 0.0 };
        Self {
            start_ns,
            step_ns,
            batch_delay_ns,
        }
    }

    /// The turn of a producer that has sent `sent` messages and puts at most `capacity` into a batch.
    pub(crate) fn turn(&self, now_ns: u64, sent: u64, capacity: u32) -> Turn {
        if self.step_ns == 0.0 {
            return Turn::Send(
                capacity,
                Due {
                    first_ns: now_ns,
                    step_ns: 0.0,
                },
            );
        }
        let due_ns = |message: u64| self.start_ns + (message as f64 * self.step_ns) as u64;
        let first_ns = due_ns(sent);
        let full_ns = due_ns(sent + u64::from(capacity) - 1);
        let close_ns = full_ns.min(first_ns + self.batch_delay_ns);
        if now_ns < close_ns {
            return Turn::WaitUntil(close_ns);
        }
        let owed = if now_ns >= full_ns {
            capacity
        } else {
            ((now_ns - first_ns) as f64 / self.step_ns) as u32 + 1
        };
        Turn::Send(
            owed.min(capacity),
            Due {
                first_ns,
                step_ns: self.step_ns,
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn only_seldom_batches_are_waited_for_awake() {
        let ten_ms = Rest::new(1, 100.0, 1, MS);
        assert_eq!(ten_ms.sleep_ns(10 * MS), 9_900_000);
        assert_eq!(ten_ms.sleep_ns(50_000), 0);
        assert!(ten_ms.is_close(50_000) && !ten_ms.is_close(5 * MS));
        // A million a second in batches of a hundred; a thousand producers of a hundred messages a second; no rate.
        for busy in [
            Rest::new(1, 1e6, 100, MS),
            Rest::new(1000, 100.0, 1000, MS),
            Rest::new(1, 0.0, 1, MS),
        ] {
            assert_eq!(busy.sleep_ns(50_000), 50_000);
            assert!(!busy.is_close(50_000));
        }
        // A thousand a second, but a batch collects for ten milliseconds.
        assert_eq!(Rest::new(1, 1000.0, 1000, 10 * MS).sleep_ns(50_000), 0);
    }

    #[test]
    fn a_batch_leaves_when_it_is_full() {
        // 10 messages per millisecond, batches of 5.
        let pacing = Pacing::new(0, 10_000.0, 100 * MS);
        assert_eq!(pacing.turn(0, 0, 5), Turn::WaitUntil(400_000));
        let due = Due {
            first_ns: 0,
            step_ns: 100_000.0,
        };
        assert_eq!(pacing.turn(400_000, 0, 5), Turn::Send(5, due));
    }

    #[test]
    fn a_batch_leaves_when_it_is_old() {
        let pacing = Pacing::new(0, 10_000.0, MS);
        let Turn::Send(count, _) = pacing.turn(MS, 0, 1000) else {
            panic!("due")
        };
        assert_eq!(count, 11);
        assert_eq!(pacing.turn(MS, 11, 1000), Turn::WaitUntil(2_100_000));
    }

    #[test]
    fn what_was_held_up_is_still_owed_from_its_own_time() {
        let pacing = Pacing::new(0, 1000.0, 0);
        let due = Due {
            first_ns: 3 * MS,
            step_ns: 1e6,
        };
        assert_eq!(pacing.turn(50 * MS, 3, 10), Turn::Send(10, due));
        assert_eq!(due.at(2), 5 * MS);
    }

    #[test]
    fn without_a_rate_full_batches_leave_at_once() {
        let pacing = Pacing::new(0, 0.0, MS);
        assert_eq!(
            pacing.turn(7, 99, 8),
            Turn::Send(
                8,
                Due {
                    first_ns: 7,
                    step_ns: 0.0
                }
            )
        );
    }

    #[test]
    fn over_a_second_exactly_the_rate_is_sent() {
        let pacing = Pacing::new(0, 12_345.0, MS);
        let (mut now, mut sent) = (0, 0u64);
        while now < 1_000 * MS {
            match pacing.turn(now, sent, 64) {
                Turn::Send(count, _) => sent += u64::from(count),
                Turn::WaitUntil(until) => now = until.max(now + 1),
            }
        }
        assert!((12_320..=12_360).contains(&sent), "{sent}");
    }
}
