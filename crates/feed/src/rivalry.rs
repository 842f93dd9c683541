//! Two live consumers that call themselves by one name on a broadcast subscription.
//!
//! The newest consumer of a name takes the place over; that is how a client comes back whose old connection is dead and
//! the broker has not noticed yet. Where the older one lives, it comes back as well and takes the place over in its turn, ten
//! times a second for ever. The two cases are told apart by where the request comes from: a client that lost its connection comes
//! back on another one, a consumer that was closed by a take-over comes back on the connection it has.
//!
//! ```text
//!   over a connection that lost this place lately     has to wait until the holder has had it for its time
//!   over any other                                    takes it over at once; after several take-overs in a row only if the
//!                                                     holder does not answer a ping, or has had it for its time
//! ```
//! The time is a second after the first take-over and twice as long after each further one, up to a minute. A client that must
//! wait is refused with the address of the holder, and so comes again at the pace of its own patience.

use std::time::Duration;

use pharos_runtime::clock::Nanos;

use crate::ids::ConnectionId;

/// Time for which a holder keeps its slot after the first take-over, and its maximum.
const HOLD_FIRST: Duration = Duration::from_secs(1);
const HOLD_MAX: Duration = Duration::from_secs(64);
/// Beyond the holder's time twice: so long without a take-over, and the next one is a first one again.
const QUIET: Duration = Duration::from_secs(60);
/// After so many take-overs in a row a holder is asked whether it lives, wherever the request comes from.
pub const ASKED_AFTER: u32 = 4;
/// Connections from which the place was taken lately that are remembered.
const LOSERS_MAX: usize = 4;
/// The take-overs of one name, lately.
#[derive(Debug)]
pub struct Rivalry {
    /// Take-overs in a row.
    pub streak: u32,
    /// Time of the last take-over.
    last: Nanos,
    /// From whom, newest last.
    losers: Vec<ConnectionId>,
}

/// Verdict on a client that requests a slot that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The client takes the slot over at once.
    TakesOver,
    /// The client must wait so long, if the holder is alive.
    AskHolder(Duration),
    /// The client must wait so long.
    Waits(Duration),
}

impl Rivalry {
    /// None yet.
    #[must_use]
    pub fn first(now: Nanos) -> Self {
        Self {
            streak: 0,
            last: now,
            losers: Vec::new(),
        }
    }

    /// Returns the time for which a holder keeps the slot from a rival.
    #[must_use]
    pub fn hold(&self) -> Duration {
        let doublings = self.streak.saturating_sub(1).min(16);
        HOLD_FIRST.saturating_mul(1 << doublings).min(HOLD_MAX)
    }

    /// True if the next take-over counts as a first one again.
    #[must_use]
    pub fn is_over(&self, now: Nanos) -> bool {
        since(now, self.last) > self.hold() * 2 + QUIET
    }

    /// Returns the verdict on a client that requests the slot.
    #[must_use]
    pub fn judge(&self, from: ConnectionId, now: Nanos) -> Verdict {
        let left = self.hold().saturating_sub(since(now, self.last));
        if left.is_zero() || self.is_over(now) {
            Verdict::TakesOver
        } else if self.losers.contains(&from) {
            Verdict::Waits(left)
        } else if self.streak >= ASKED_AFTER {
            Verdict::AskHolder(left)
        } else {
            Verdict::TakesOver
        }
    }

    /// The place was taken from a consumer of this connection.
    pub fn on_takeover(&mut self, loser: ConnectionId, now: Nanos) {
        if self.is_over(now) {
            *self = Self::first(now);
        }
        self.streak = self.streak.saturating_add(1);
        self.last = now;
        self.losers.retain(|other| *other != loser);
        if self.losers.len() == LOSERS_MAX {
            self.losers.remove(0);
        }
        self.losers.push(loser);
    }
}

/// The time between two moments.
#[must_use]
pub fn since(now: Nanos, earlier: Nanos) -> Duration {
    Duration::from_nanos(now.since(earlier))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::ShardId;

    fn connection(number: u64) -> ConnectionId {
        ConnectionId {
            shard: ShardId(0),
            number,
        }
    }

    fn at(seconds: f64) -> Nanos {
        Nanos((seconds * 1e9) as u64)
    }

    #[test]
    fn a_loser_waits_longer_each_time_up_to_a_minute() {
        let mut rivalry = Rivalry::first(at(0.0));
        let mut now = 0.0;
        for (round, hold) in [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 64.0]
            .into_iter()
            .enumerate()
        {
            let loser = connection(round as u64 % 2);
            rivalry.on_takeover(loser, at(now));
            assert!(matches!(
                rivalry.judge(loser, at(now + 0.9 * hold)),
                Verdict::Waits(_)
            ));
            now += hold;
            assert_eq!(rivalry.judge(loser, at(now)), Verdict::TakesOver);
        }
    }

    #[test]
    fn others_take_over_at_once_and_after_some_when_the_holder_is_dead() {
        let mut rivalry = Rivalry::first(at(0.0));
        for number in 0..u64::from(ASKED_AFTER) {
            assert_eq!(
                rivalry.judge(connection(100 + number), at(0.0)),
                Verdict::TakesOver
            );
            rivalry.on_takeover(connection(number), at(0.0));
        }
        assert!(matches!(
            rivalry.judge(connection(9), at(0.0)),
            Verdict::AskHolder(_)
        ));
        // The oldest losers are forgotten, and after a quiet time all of them.
        rivalry.on_takeover(connection(50), at(0.0));
        assert!(matches!(
            rivalry.judge(connection(0), at(0.0)),
            Verdict::AskHolder(_)
        ));
        rivalry.on_takeover(connection(51), at(1000.0));
        assert_eq!(rivalry.judge(connection(50), at(1000.0)), Verdict::TakesOver);
        assert_eq!(rivalry.losers, [connection(51)]);
    }
}
