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

use std::sync::Arc;
use std::time::Duration;

use pharos_runtime::clock::{self, Nanos};
use pharos_types::SubscriptionName;

use super::TopicContext;
use super::consumers::Consumer;
use super::request::SubscribeRequest;
use super::subscribe::Step;
use super::subscription::BroadcastBody;
use crate::error::SubscribeError;
use crate::ids::ConnectionId;
use crate::tally::BroadcastCounts;

/// How long a holder keeps its place after the first take-over, and at most.
const HOLD_FIRST: Duration = Duration::from_secs(1);
const HOLD_MAX: Duration = Duration::from_secs(64);
/// Beyond the holder's time twice: so long without a take-over, and the next one is a first one again.
const QUIET: Duration = Duration::from_secs(60);
/// After so many take-overs in a row a holder is asked whether it lives, wherever the request comes from.
const ASKED_AFTER: u32 = 4;
/// Connections from which the place was taken lately that are remembered.
const LOSERS_MAX: usize = 4;
/// A subscription warns of rivals no more often.
const WARN_INTERVAL: Duration = Duration::from_secs(10);

/// The take-overs of one name, lately.
#[derive(Debug)]
pub(crate) struct Rivalry {
    /// Take-overs in a row.
    streak: u32,
    /// When the last one was.
    last: Nanos,
    /// From whom, newest last.
    losers: Vec<ConnectionId>,
}

/// What becomes of a client that wants a place that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    TakesOver,
    /// It must wait so long, if the holder lives.
    AskHolder(Duration),
    Waits(Duration),
}

impl Rivalry {
    fn first(now: Nanos) -> Self {
        Self {
            streak: 0,
            last: now,
            losers: Vec::new(),
        }
    }

    /// How long a holder keeps the place from a rival.
    fn hold(&self) -> Duration {
        let doublings = self.streak.saturating_sub(1).min(16);
        HOLD_FIRST.saturating_mul(1 << doublings).min(HOLD_MAX)
    }

    fn is_over(&self, now: Nanos) -> bool {
        since(now, self.last) > self.hold() * 2 + QUIET
    }

    fn judge(&self, from: ConnectionId, now: Nanos) -> Verdict {
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
    fn on_takeover(&mut self, loser: ConnectionId, now: Nanos) {
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

fn since(now: Nanos, earlier: Nanos) -> Duration {
    Duration::from_nanos(now.since(earlier))
}

impl BroadcastBody {
    /// What to do first for a client that wants a place that another one holds; `None` when it may take it over now.
    pub(super) fn keep_from_rival(
        &mut self,
        cx: &TopicContext,
        request: &SubscribeRequest,
        name: &Arc<str>,
        holder: &Consumer,
    ) -> Option<Result<Step, SubscribeError>> {
        let member = self.members.get(name)?;
        let verdict = member.rivalry.as_ref()?.judge(request.connection, clock::now());
        if !holder.leaving.is_empty() {
            return None; // It is on its way out already.
        }
        let address = &holder.info.address;
        let (Verdict::AskHolder(left) | Verdict::Waits(left)) = verdict else {
            return None;
        };
        let refusal = SubscribeError::Busy(format!(
            "a live consumer at {address} has the name {name}, which this one had before; \
             two of one name take it from each other, so it is kept for {:.1} s more",
            left.as_secs_f64()
        ));
        if matches!(verdict, Verdict::AskHolder(_)) {
            return Some(Ok(Step::AskHolder(holder.connection, refusal)));
        }
        let once = BroadcastCounts {
            takeovers_refused: 1,
            ..BroadcastCounts::default()
        };
        self.count(cx, name, once);
        let addresses = (address, &request.info.address);
        self.warn_of_rivals(cx, &request.subscription, name, addresses, left);
        Some(Err(refusal))
    }

    /// A consumer is about to be closed because another one of its name came.
    pub(super) fn note_takeover(
        &mut self,
        cx: &TopicContext,
        request: &SubscribeRequest,
        name: &Arc<str>,
        holder: &Consumer,
    ) {
        if !holder.leaving.is_empty() {
            return; // Another call did that.
        }
        let (from, to, now) = (&holder.info.address, &request.info.address, clock::now());
        tracing::debug!(topic = %cx.name, subscription = %request.subscription, consumer = %name,
            %from, %to, "broadcast consumer's place is taken over");
        let Some(member) = self.members.get_mut(name) else {
            return;
        };
        let rivalry = member
            .rivalry
            .get_or_insert_with(|| Box::new(Rivalry::first(now)));
        rivalry.on_takeover(holder.connection, now);
        let (streak, hold) = (rivalry.streak, rivalry.hold());
        let once = BroadcastCounts {
            takeovers: 1,
            ..BroadcastCounts::default()
        };
        self.count(cx, name, once);
        if streak >= ASKED_AFTER {
            self.warn_of_rivals(cx, &request.subscription, name, (to, from), hold);
        }
    }

    /// Forgets take-overs that were not followed by another.
    pub(super) fn forget_rivalries(&mut self) {
        let now = clock::now();
        for member in self.members.values_mut() {
            member.rivalry.take_if(|rivalry| rivalry.is_over(now));
        }
    }

    fn warn_of_rivals(
        &mut self,
        cx: &TopicContext,
        subscription: &SubscriptionName,
        name: &Arc<str>,
        (holder, rival): (&Arc<str>, &Arc<str>),
        left: Duration,
    ) {
        let now = clock::now();
        if self.warned_at.is_some_and(|at| since(now, at) < WARN_INTERVAL) {
            return;
        }
        self.warned_at = Some(now);
        let counts = self.members.get(name).and_then(|member| member.counts.as_deref());
        tracing::warn!(topic = %cx.name, subscription = %subscription, consumer = %name,
            %holder, %rival, takeovers = counts.map(|counts| counts.takeovers),
            kept_seconds = left.as_secs_f64(),
            "two live consumers of one name take its place from each other; each needs a name of its own");
    }
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
