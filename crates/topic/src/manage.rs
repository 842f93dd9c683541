//! Administrative operations beyond those of clients: skipping, trimming, truncating, reading the log.

use std::sync::Arc;

use bytes::Bytes;
use pharos_feed::entry::FeedEntry;
use pharos_managed_ledger::cursor::AckState;
use pharos_requests::error::{CursorError, chain};
use pharos_types::{Ordinal, SubscriptionName};

use super::deduplication::Admitting;
use super::reads::LogReads;
use super::seek::Moving;
use super::{Attached, Stored, Topic};

/// Entries that one read of a scan brings.
const SCAN_ENTRIES: usize = 1000;
/// Maximum number of restarts of a skip because a consumer attached or left during it.
const SKIP_TRIES: usize = 3;
/// Bytes that one read of a scan brings.
const SCAN_BYTES: usize = 4 << 20;

/// Stored definition of a durable subscription, without its position.
#[derive(Clone, Debug)]
pub struct DurableSubscription {
    /// Its name.
    pub name: SubscriptionName,
    /// True if each of its consumers gets every message.
    pub is_broadcast: bool,
    /// Its properties.
    pub properties: Vec<(String, String)>,
    /// True if its position is replicated to other clusters.
    pub is_replicated: bool,
}

impl Attached {
    /// The durable subscriptions.
    pub(crate) fn durable_subscriptions(&self) -> Vec<DurableSubscription> {
        let durable = self
            .subscriptions
            .values()
            .filter(|subscription| subscription.is_durable());
        let facts = durable.map(|subscription| DurableSubscription {
            name: subscription.name.clone(),
            is_broadcast: subscription.is_broadcast(),
            properties: subscription.properties.clone(),
            is_replicated: subscription.replicated.is_some(),
        });
        facts.collect()
    }

    /// Properties of a subscription.
    pub(crate) fn subscription_properties(
        &self,
        name: &SubscriptionName,
    ) -> Result<Vec<(String, String)>, CursorError> {
        self.subscriptions
            .get(name)
            .map(|subscription| subscription.callers_properties())
            .ok_or_else(|| missing(name))
    }

    /// True if a durable cursor of a subscription is known to be before a position.
    fn stands_before(&self, stored: &Stored, name: &SubscriptionName, to: Ordinal) -> bool {
        let Some(subscription) = self.subscriptions.get(name) else {
            return false;
        };
        let mut slots = subscription.cursors().filter_map(|(_, cursor)| cursor.slot);
        slots.any(|id| {
            let slot = stored.cursors.get(id);
            slot.is_some_and(|slot| !slot.dropped && slot.acked_to() < to)
        })
    }
}

impl LogReads<'_> {
    /// The entry at a place, or `None` beyond the durable end.
    pub(crate) async fn entry_at(&self, place: Ordinal) -> Result<Option<Arc<FeedEntry>>, CursorError> {
        Ok(self
            .read_some(place, 1, usize::MAX)
            .await?
            .into_iter()
            .next()
            .filter(|entry| entry.ordinal == place))
    }

    async fn read_some(
        &self,
        from: Ordinal,
        entries_max: usize,
        bytes_max: usize,
    ) -> Result<Vec<Arc<FeedEntry>>, CursorError> {
        let read = self
            .state
            .borrow()
            .stored
            .log
            .ledger
            .read(from, entries_max, bytes_max);
        let found = read.await.map_err(|error| CursorError::Storage(chain(&error)))?;
        Ok(found.into_iter().map(|entry| self.cx.feed_entry(entry)).collect())
    }

    /// Looks at the entries of `from..end` in order until `look` says stop. Returns whether it reached the end.
    pub(crate) async fn scan(
        &self,
        from: Ordinal,
        end: Ordinal,
        mut look: impl FnMut(&FeedEntry) -> bool,
    ) -> Result<bool, CursorError> {
        let mut at = from;
        while at < end {
            let entries = self.read_some(at, SCAN_ENTRIES, SCAN_BYTES).await?;
            let Some(last) = entries.last() else {
                return Ok(true);
            };
            at = last.ordinal.next();
            for entry in entries.iter().take_while(|entry| entry.ordinal < end) {
                if !look(entry) {
                    return Ok(false);
                }
            }
            tokio::task::yield_now().await;
        }
        Ok(true)
    }
}

impl Topic {
    /// Acknowledgements of a subscription, requested from its stream consumer if it has one. For broadcast: the
    /// lowest cursor.
    pub(crate) async fn acks_of(&self, name: &SubscriptionName) -> Result<AckState, CursorError> {
        let (known, handed_over) = {
            let state = self.state.borrow();
            let subscription = state
                .attached
                .subscriptions
                .get(name)
                .ok_or_else(|| missing(name))?;
            let end = state.stored.log.ledger.durable_end();
            subscription.body.kind().lowest(&state.stored.cursors, end)
        };
        Ok(match handed_over {
            Some(handed_over) => self.cx.stream_consumer_acks(handed_over).await.unwrap_or(known),
            None => known,
        })
    }

    /// Appends an entry of the broker's own and waits until it is durable. Stream consumers find it in the log.
    pub(crate) async fn append_own(&self, payload: Bytes) -> Result<Ordinal, String> {
        let (ordinal, mut durable) = {
            let mut state = self.state.borrow_mut();
            if let Some(fault) = &state.stored.publishing.fault {
                return Err(fault.clone());
            }
            let appended = state
                .stored
                .log
                .ledger
                .append(payload)
                .map_err(|error| chain(&error))?;
            state.stored.log.maintain(&self.cx);
            (appended.ordinal, state.stored.log.ledger.durable_watch())
        };
        durable
            .reaches(ordinal)
            .await
            .map_err(|error| error.to_string())?;
        Ok(ordinal)
    }
}

impl Moving<'_> {
    /// Acknowledges the next `count` entries of a backlog.
    pub(crate) async fn skip(&self, name: &SubscriptionName, count: u64) -> Result<(), CursorError> {
        let acks = self.0.acks_of(name).await?;
        self.skip_settled(name, nth_unacked(&acks, count).min(self.0.durable_end()))
            .await
    }

    /// As [`skip_to`](Self::skip_to); resolves when stream consumers have heard of it and it is durable.
    pub(crate) async fn skip_settled(&self, name: &SubscriptionName, to: Ordinal) -> Result<(), CursorError> {
        for _ in 0..SKIP_TRIES {
            self.skip_to(name, to)?;
            self.0.settle().await?;
            // A consumer that left meanwhile took its place with it, as it was.
            let state = self.0.state.borrow();
            if !state.attached.stands_before(&state.stored, name, to) {
                break;
            }
        }
        Ok(())
    }

    /// Moves every subscription to the end and gives up closed ledgers, the current one included as soon as another
    /// took its place.
    pub(crate) async fn truncate(&self) -> Result<(), CursorError> {
        let end = self.0.durable_end();
        let names: Vec<_> = self
            .0
            .state
            .borrow()
            .attached
            .subscriptions
            .keys()
            .cloned()
            .collect();
        for name in names {
            self.skip_to(&name, end)?;
        }
        Admitting(self.0).store();
        self.0.settle().await?;
        let stored = &mut self.0.state.borrow_mut().stored;
        stored.log.ledger.ask_rollover();
        stored.discard(&self.0.cx);
        Ok(())
    }
}

/// The place after `count` entries that are not acknowledged.
fn nth_unacked(acks: &AckState, count: u64) -> Ordinal {
    let (mut at, mut left) = (acks.acked_to(), count);
    for (start, end) in acks.acked_ranges() {
        let gap = at.count_to(start);
        if left <= gap {
            break;
        }
        left -= gap;
        at = end;
    }
    at.plus(left)
}

/// The `nth` (from 1) entry that is not acknowledged.
pub(crate) fn backlog_entry(acks: &AckState, nth: u64) -> Ordinal {
    acks.next_unacked(nth_unacked(acks, nth.saturating_sub(1)))
}

fn missing(name: &SubscriptionName) -> CursorError {
    CursorError::NoSubscription(name.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counting_backlog_passes_over_what_is_acknowledged() {
        let mut acks = AckState::new(Ordinal(10));
        acks.ack(Ordinal(11));
        acks.ack(Ordinal(12));
        acks.ack(Ordinal(14));
        // Left: 10, 13, 15, 16, …
        let places: Vec<u64> = (1..=4).map(|nth| backlog_entry(&acks, nth).0).collect();
        assert_eq!(places, [10, 13, 15, 16]);
        assert_eq!(nth_unacked(&acks, 1), Ordinal(11));
        assert_eq!(nth_unacked(&acks, 2), Ordinal(14));
        assert_eq!(nth_unacked(&acks, 3), Ordinal(16));
    }
}
