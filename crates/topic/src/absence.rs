//! Named consumers of broadcast subscriptions that are away: since when, how long their place is kept, and their return.
//!
//! When a consumer left is a fact of its cursor in the cursor log, so that neither unloading the topic nor a restart of the
//! broker starts the clock anew. A consumer that was connected when the broker was killed counts as absent from the first
//! loading after that: never from earlier than is true.
//!
//! A place that was given up holds nothing back, but what its consumer had acknowledged stays known. Should the name come
//! back, it goes on behind that, at the oldest entry that is kept and that it has not acknowledged: nothing comes again
//! because the place was given up, and what was deleted meanwhile is counted and told.

use std::sync::Arc;

use pharos_accounts::tally::BroadcastCounts;
use pharos_runtime::clock;
use pharos_types::{Ordinal, SubscriptionName};

use super::retire::bytes_after;
use super::subscription::{Body, BroadcastBody};
use super::{Attached, Stored, SubscribeRequest, TopicContext};

/// Facts of a cursor as stored; never reuse a number.
const GIVEN_UP_LONG_AGO: u8 = 1;
const ABSENT: u8 = 2;
const GIVEN_UP: u8 = 3;

/// Presence of a named consumer, and the state of its cursor while it is away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Presence {
    /// Attached, or not known to have left.
    #[default]
    Here,
    /// Away; its place is kept.
    Absent {
        /// Time when it left, in milliseconds since 1970.
        since_ms: u64,
    },
    /// Away; its place was given up.
    GivenUp {
        /// Time when it left, in milliseconds since 1970.
        since_ms: u64,
        /// Everything before this it had acknowledged then.
        acked_to: Ordinal,
    },
}

impl Presence {
    /// Returns the time when the consumer left, if it is away.
    pub(crate) fn absent_since_ms(self) -> Option<u64> {
        match self {
            Self::Here => None,
            Self::Absent { since_ms } | Self::GivenUp { since_ms, .. } => Some(since_ms),
        }
    }

    pub(crate) fn is_given_up(self) -> bool {
        matches!(self, Self::GivenUp { .. })
    }

    /// As the facts of a cursor: nothing; or a tag, and eight bytes little-endian for each number.
    pub(crate) fn to_facts(self) -> Vec<u8> {
        let with = |tag: u8, numbers: &[u64]| {
            let mut facts = vec![tag];
            numbers
                .iter()
                .for_each(|number| facts.extend(number.to_le_bytes()));
            facts
        };
        match self {
            Self::Here => Vec::new(),
            Self::Absent { since_ms } => with(ABSENT, &[since_ms]),
            Self::GivenUp { since_ms, acked_to } => with(GIVEN_UP, &[since_ms, acked_to.0]),
        }
    }

    /// Facts as stored, for a consumer that is not attached now. Those that are not understood count as none: the place is
    /// kept, and its time begins now.
    pub(crate) fn of_facts(facts: &[u8], acked_to: Ordinal, now_ms: u64) -> Self {
        let number = |index: usize| {
            let bytes = facts.get(1 + 8 * index..9 + 8 * index)?;
            Some(u64::from_le_bytes(bytes.try_into().ok()?))
        };
        let known = match facts.first() {
            Some(&GIVEN_UP_LONG_AGO) => Some(Self::GivenUp {
                since_ms: now_ms,
                acked_to,
            }),
            Some(&ABSENT) => number(0).map(|since_ms| Self::Absent { since_ms }),
            Some(&GIVEN_UP) => number(0)
                .zip(number(1))
                .map(|(since_ms, acked_to)| Self::GivenUp {
                    since_ms,
                    acked_to: Ordinal(acked_to),
                }),
            _ => None,
        };
        known.unwrap_or(Self::Absent { since_ms: now_ms })
    }
}

impl BroadcastBody {
    /// A consumer is absent from now on; one without a name of its own loses its place.
    pub(super) fn note_absence(&mut self, cx: &TopicContext, stored: &mut Stored, name: &Arc<str>) {
        let Some(member) = self.members.get_mut(name) else {
            return;
        };
        if member.cursor.handed_over().is_some() {
            return; // Taken over already.
        }
        member.presence = Presence::Absent {
            since_ms: clock::wall_ms(),
        };
        let (slot, presence) = (member.cursor.slot, member.presence);
        if member.named {
            if let Some(slot) = slot {
                stored.change_cursors(cx, |cursors| cursors.store_presence(slot, presence));
            }
            return;
        }
        self.members.remove(name);
        if let Some(slot) = slot {
            stored.change_cursors(cx, |cursors| cursors.remove(slot));
        }
    }

    /// A named consumer is there: from now on it is not absent.
    pub(super) fn note_presence(&mut self, cx: &TopicContext, stored: &mut Stored, name: &Arc<str>) {
        let Some(member) = self.members.get_mut(name) else {
            return;
        };
        member.presence = Presence::Here;
        if let (Some(slot), true) = (member.cursor.slot, member.named) {
            stored.change_cursors(cx, |cursors| cursors.store_presence(slot, Presence::Here));
        }
    }

    /// Gives up the places of consumers that were absent too long or hold back too much, and makes sure that of the others it is
    /// stored since when they are absent. Returns whether a place was given up.
    fn drop_absentees(
        &mut self,
        cx: &TopicContext,
        stored: &mut Stored,
        subscription: &SubscriptionName,
        limits: &AbsenceLimits,
    ) -> bool {
        let (mut dropped, mut kept) = (Vec::new(), Vec::new());
        for (name, member) in &mut self.members {
            let (Presence::Absent { since_ms }, Some(acks)) = (member.presence, member.cursor.home()) else {
                continue;
            };
            let Some(slot) = member.cursor.slot.filter(|_| member.named) else {
                continue;
            };
            let ledger = &stored.log.ledger;
            let (acked_to, backlog) = (acks.acked_to(), acks.backlog(ledger.durable_end()));
            let bytes = bytes_after(ledger.ledgers(), acked_to);
            let absent_ms = limits.now_ms.saturating_sub(since_ms);
            let too_long = absent_ms >= limits.retention_ms;
            let too_much = bytes > limits.backlog_bytes_max;
            if !too_long && !too_much {
                kept.push((slot, member.presence));
                continue;
            }
            tracing::warn!(topic = %cx.name, subscription = %subscription, consumer = %name,
                too_long, too_much, absent_seconds = absent_ms / 1000,
                acknowledged_before = acked_to.0, entries = backlog, bytes,
                "absent broadcast consumer lost its place: what it has not acknowledged may be deleted");
            member.presence = Presence::GivenUp { since_ms, acked_to };
            dropped.push((name.clone(), slot, member.presence));
        }
        for (slot, presence) in kept {
            stored.change_cursors(cx, |cursors| cursors.store_presence(slot, presence));
        }
        let any = !dropped.is_empty();
        for (name, slot, presence) in dropped {
            let once = BroadcastCounts {
                absent_dropped: 1,
                ..BroadcastCounts::default()
            };
            self.count(cx, &name, once);
            stored.change_cursors(cx, |cursors| cursors.give_up(slot, presence));
        }
        any
    }

    /// Gives a consumer that lost its place one again: behind what it had acknowledged, as far as that is still kept.
    pub(super) fn take_back(
        &mut self,
        cx: &TopicContext,
        stored: &mut Stored,
        request: &SubscribeRequest,
        name: &Arc<str>,
    ) {
        let (first, now_ms) = (stored.log.ledger.first(), clock::wall_ms());
        let Some(member) = self.members.get_mut(name) else {
            return;
        };
        let Presence::GivenUp { since_ms, acked_to } = member.presence else {
            return;
        };
        let (slot, Some(acks)) = (member.cursor.slot, member.cursor.home_mut()) else {
            return;
        };
        // A log that was loaded again has counted what is deleted as acknowledged: the place is known, single entries are not.
        let entries_skipped = match acks.acked_to() < first {
            true => acks.backlog(first),
            false => acked_to.count_to(first),
        };
        acks.raise_to(first);
        let acks = acks.clone();
        member.presence = Presence::Here;
        let once = BroadcastCounts {
            returned_late: 1,
            entries_skipped,
            ..BroadcastCounts::default()
        };
        self.count(cx, name, once);
        let goes_on_at = acks.next_unacked(acks.acked_to());
        let position = stored.log.ledger.position_of(goes_on_at);
        let position = position.map(|position| position.to_string());
        tracing::warn!(topic = %cx.name, subscription = %request.subscription, consumer = %name,
            address = %request.info.address, absent_seconds = now_ms.saturating_sub(since_ms) / 1000,
            acknowledged_before = acked_to.0, goes_on_at = goes_on_at.0, position, entries_skipped,
            "broadcast consumer is back after its place was given up; what was deleted meanwhile it does not get");
        if let Some(slot) = slot {
            stored.change_cursors(cx, |cursors| cursors.revive(slot, &acks));
        }
    }

    /// Counts what happened to a consumer: with it, with the subscription and with the shard.
    pub(super) fn count(&mut self, cx: &TopicContext, name: &Arc<str>, once: BroadcastCounts) {
        if let Some(member) = self.members.get_mut(name) {
            member.counts.get_or_insert_default().add(once);
        }
        self.counts.add(once);
        cx.shard.tally.broadcast(once);
    }
}

/// Limits for the cursors of absent consumers: retention time and backlog size.
struct AbsenceLimits {
    now_ms: u64,
    retention_ms: u64,
    backlog_bytes_max: u64,
}

impl Attached {
    /// Gives up the places of broadcast consumers that were absent too long or hold back too much. Returns whether one was.
    pub(super) fn drop_absentees(&mut self, cx: &TopicContext, stored: &mut Stored, now_ms: u64) -> bool {
        let options = cx.options();
        let limits = AbsenceLimits {
            now_ms,
            retention_ms: options.absent_retention.map_or(u64::MAX, |time| {
                u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
            }),
            backlog_bytes_max: options.absent_backlog_bytes.unwrap_or(u64::MAX),
        };
        let mut any = false;
        for subscription in self.subscriptions.values_mut() {
            if let Body::Broadcast(body) = &mut subscription.body {
                body.forget_rivalries();
                any |= body.drop_absentees(cx, stored, &subscription.name, &limits);
            }
        }
        if any {
            stored.trim_soon(cx);
        }
        any
    }

    /// The body of a broadcast subscription.
    pub(super) fn broadcast(&mut self, name: &SubscriptionName) -> Option<&mut BroadcastBody> {
        match &mut self.subscriptions.get_mut(name)?.body {
            Body::Broadcast(body) => Some(body),
            Body::Stream(_) | Body::Dispatched(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_read_back() {
        for presence in [
            Presence::Absent { since_ms: 7 },
            Presence::GivenUp {
                since_ms: u64::MAX,
                acked_to: Ordinal(5),
            },
        ] {
            let facts = presence.to_facts();
            assert_eq!(Presence::of_facts(&facts, Ordinal(0), 99), presence);
            // Cut short they are none.
            let cut = &facts[..facts.len() - 1];
            assert_eq!(
                Presence::of_facts(cut, Ordinal(0), 99),
                Presence::Absent { since_ms: 99 }
            );
        }
        assert!(Presence::Here.to_facts().is_empty());
        let unknown = Presence::Absent { since_ms: 99 };
        assert_eq!(Presence::of_facts(&[], Ordinal(3), 99), unknown);
        assert_eq!(Presence::of_facts(&[77, 1], Ordinal(3), 99), unknown);
        let old = Presence::GivenUp {
            since_ms: 99,
            acked_to: Ordinal(3),
        };
        assert_eq!(Presence::of_facts(&[1], Ordinal(3), 99), old);
    }
}
