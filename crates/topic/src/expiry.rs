//! Expiry: messages beyond their time to live, and unused subscriptions.
//!
//! Expiry acknowledges, it deletes nothing: it moves mark-delete positions past entries older than the limit. The
//! border is found by bisection over publish times, between the lowest cursor and the end, so a check of a backlog of
//! a million entries reads about twenty of them, and a check of one without old entries reads a single one.

use pharos_catalog::CarrierSlots;
use pharos_managed_ledger::{Search, Seen};
use pharos_requests::error::CursorError;
use pharos_runtime::clock;
use pharos_types::{Ordinal, SubscriptionName};

use super::damage::Look;
use super::reads::LogReads;
use super::seek::Moving;
use super::{State, Topic};

/// Subscriptions that are moved before others on the shard get their turn.
const SUBSCRIPTIONS_PER_TURN: usize = 64;

/// Expiry counts of a subscription since the topic was loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expired {
    /// Entries that were acknowledged for their consumers; of a broadcast subscription, over all its cursors.
    pub entries: u64,
    /// Time of the last expiry, in milliseconds since 1970; 0 for never.
    pub last_ms: u64,
}

impl LogReads<'_> {
    /// The first entry of `from..end` that was published at or after a time; `end` when there is none. Publish times are
    /// taken to rise, as they do but for clocks of producers that disagree. An entry that cannot be read counts as the next
    /// one that can: it expires together with that.
    pub(super) async fn first_published_since(
        &self,
        from: Ordinal,
        end: Ordinal,
        time_ms: u64,
    ) -> Result<Ordinal, CursorError> {
        // Mostly nothing is old, which the first entry tells.
        let mut search = Search::new(from, end, from);
        while let Some(at) = search.look() {
            search.note(match self.look_at(at).await? {
                Look::Entry(entry) if entry.facts.publish_time_ms >= time_ms => Seen::Found,
                // One that was trimmed meanwhile lies before all that is left.
                Look::Entry(_) | Look::Nothing => Seen::Before,
                Look::Unreadable => Seen::Unreadable,
            });
        }
        Ok(search.found())
    }
}

/// A topic, as what expires in it sees it.
pub(crate) struct Expiring<'a>(pub(crate) &'a Topic);

impl Expiring<'_> {
    /// Moves every cursor past what has reached its time to live. A message expires when it is older than that, by its
    /// publish time; one that is exactly as old stays.
    pub(crate) async fn by_policies(&self) -> Result<(), CursorError> {
        let ttl_ms = self.0.state.borrow().stored.policies.message_ttl.millis();
        match ttl_ms {
            Some(ttl_ms) => {
                self.published_before(clock::wall_ms().saturating_sub(ttl_ms))
                    .await
            }
            None => Ok(()),
        }
    }

    /// Moves every cursor to the first message published at or after a time, in milliseconds since 1970.
    pub(crate) async fn published_before(&self, time_ms: u64) -> Result<(), CursorError> {
        let (from, end, names) = {
            let state = self.0.state.borrow();
            let mut names: Vec<SubscriptionName> = state.attached.subscriptions.keys().cloned().collect();
            // One order, so that a simulated history can be repeated.
            names.sort_unstable();
            (lowest_place(&state), state.stored.log.ledger.durable_end(), names)
        };
        let to = self.0.reads().first_published_since(from, end, time_ms).await?;
        if to <= from {
            return Ok(());
        }
        for (index, name) in names.into_iter().enumerate() {
            match self.expire_to(&name, to).await {
                Ok(_) | Err(CursorError::NoSubscription(_)) => {}
                Err(error) => return Err(error),
            }
            if index % SUBSCRIPTIONS_PER_TURN == 0 {
                tokio::task::yield_now().await;
            }
        }
        Ok(())
    }

    /// Acknowledges everything before `to` for a subscription's consumers, and counts it as expired.
    pub(crate) async fn expire_to(&self, name: &SubscriptionName, to: Ordinal) -> Result<u64, CursorError> {
        let (mut count, asked) = {
            let state = self.0.state.borrow();
            let subscription = state.attached.subscriptions.get(name);
            let subscription = subscription.ok_or_else(|| CursorError::NoSubscription(name.to_string()))?;
            subscription.body.kind().unacked_before(&state.stored.cursors, to)
        };
        if count == 0 && asked.is_none() {
            return Ok(0); // It is further.
        }
        if let Some((handed_over, known)) = asked {
            // What a stream consumer acknowledged in the last second is not known here.
            let acks = self.0.cx.stream_consumer_acks(handed_over).await;
            count += acks.map_or(known, |acks| acks.backlog(to));
        }
        Moving(self.0).skip_to(name, to)?;
        if count > 0
            && let Some(subscription) = self.0.state.borrow_mut().attached.subscriptions.get_mut(name)
        {
            subscription.expired.entries += count;
            subscription.expired.last_ms = clock::wall_ms();
        }
        Ok(count)
    }

    /// Deletes durable subscriptions that had no consumer for as long as the policies let them live.
    pub(crate) async fn subscriptions_by_policies(&self) {
        let now_ms = clock::wall_ms();
        let idle: Vec<SubscriptionName> = {
            let state = self.0.state.borrow();
            let Some(limit_ms) = state.stored.policies.subscription_expiration.millis() else {
                return;
            };
            let idle = state.attached.subscriptions.values().filter(|subscription| {
                subscription.is_durable()
                    && subscription.consumers.is_empty()
                    && !subscription.fenced
                    && CarrierSlots::of_properties(&subscription.properties).is_none()
                    && now_ms.saturating_sub(subscription.idle_since_ms) > limit_ms
            });
            idle.map(|subscription| subscription.name.clone()).collect()
        };
        for name in idle {
            match self.0.delete_subscription(&name, false).await {
                Ok(()) => {
                    tracing::info!(topic = %self.0.cx.name, subscription = %name, "subscription without consumers expired");
                }
                // A consumer came meanwhile, or another caller deleted it.
                Err(CursorError::Busy(_) | CursorError::NoSubscription(_)) => {}
                Err(error) => {
                    tracing::warn!(topic = %self.0.cx.name, subscription = %name, %error, "cannot delete an expired subscription");
                }
            }
        }
    }
}

/// No cursor stands before this. One that is handed over and not durable is known to its stream consumer only.
fn lowest_place(state: &State) -> Ordinal {
    let end = state.stored.log.ledger.durable_end();
    let mut lowest = state.stored.cursors.lowest().unwrap_or(end);
    let passing = state.attached.subscriptions.values().filter(|s| !s.is_durable());
    for subscription in passing {
        let floor = subscription
            .body
            .kind()
            .passing_floor(state.stored.log.ledger.first(), end);
        lowest = lowest.min(floor);
    }
    lowest.max(state.stored.log.ledger.first())
}
