//! Backlog quotas: how much unacknowledged data a topic may hold, in bytes and by age, and what happens beyond.
//!
//! Size is what lies from the slowest durable cursor to the end, in stored bytes: whole ledgers exactly, the one the cursor
//! stands in by share of its entries. Age is that of the oldest entry that some durable cursor has not acknowledged, by
//! its publish time. Both are looked at once in a while and whenever a producer comes. Stream consumers tell of their
//! acknowledgements about once a second, so before a producer is turned away they are asked: a quota is never held
//! against consumers that have caught up.
//!
//! A quota that turns producers away counts what carriers hold as well, once it is some seconds old; what is evicted there they
//! evict themselves, by the same quota.

use std::sync::Arc;

use pharos_catalog::policy::{Quota, QuotaAction};
use pharos_managed_ledger::{LedgerRow, Search, Seen};
use pharos_requests::error::{CursorError, ProducerError};
use pharos_runtime::clock;
use pharos_types::{Ordinal, SubscriptionName};

use super::damage::Look;
use super::expiry::Expiring;
use super::reads::LogReads;
use super::retire::bytes_after;
use super::seek::Moving;
use super::{State, Stored, Topic};

/// Subscriptions among which the one that holds the oldest message is looked for; its name is for people only.
const SUBSCRIPTIONS_ASKED: usize = 1_000;

/// The oldest entry that some durable subscription has not acknowledged, as of the last look.
#[derive(Clone, Debug)]
pub struct Oldest {
    place: Ordinal,
    /// Publish time, in milliseconds since 1970.
    pub published_ms: u64,
    /// A subscription that waits for it.
    pub subscription: Arc<str>,
}

/// Number of times that cursors were advanced because a quota was exceeded, since the topic was loaded.
#[derive(Clone, Copy, Debug, Default)]
pub struct Evictions {
    /// Because a backlog was too large.
    pub by_size: u64,
    /// Because its oldest entry was too old.
    pub by_age: u64,
}

/// Results of the backlog checks.
#[derive(Default)]
pub(crate) struct Backlog {
    /// The end of the slowest one, as of the last look.
    pub(super) oldest: Option<Oldest>,
    /// Evictions so far.
    pub(super) evictions: Evictions,
}

/// Exceeded quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Over {
    Size(Quota),
    Age(Quota),
}

impl Over {
    fn action(self) -> QuotaAction {
        let (Self::Size(quota) | Self::Age(quota)) = self;
        quota.action
    }
}

impl LogReads<'_> {
    /// Publish time of the entry at a position, or of the first readable one after it. `None` if there is none.
    async fn published_at_or_after(&self, place: Ordinal) -> Result<Option<u64>, CursorError> {
        let mut search = Search::new(place, self.state.borrow().stored.log.ledger.durable_end(), place);
        let mut published_ms = None;
        while let Some(at) = search.look() {
            search.note(match self.look_at(at).await? {
                Look::Entry(entry) => {
                    published_ms = Some(entry.facts.publish_time_ms);
                    Seen::Found
                }
                Look::Nothing => Seen::Before,
                Look::Unreadable => Seen::Unreadable,
            });
        }
        Ok(published_ms)
    }
}

/// A topic's backlog quotas, at work.
pub(crate) struct Quotas<'a>(pub(crate) &'a Topic);

impl Quotas<'_> {
    /// Refuses a producer while a backlog is over a quota that turns producers away.
    pub(super) async fn check(&self) -> Result<(), ProducerError> {
        for over in self.over().await {
            let text = "Cannot create producer on topic with backlog quota exceeded".to_owned();
            match over.action() {
                QuotaAction::Hold => return Err(ProducerError::QuotaHold(text)),
                QuotaAction::Exception => return Err(ProducerError::QuotaException(text)),
                QuotaAction::Evict => {}
            }
        }
        Ok(())
    }

    /// Measures the backlog and does what the quotas say.
    pub(crate) async fn enforce(&self) {
        if self.0.cx.is_non_persistent() {
            return;
        }
        self.look_at_oldest().await;
        for over in self.over().await {
            tracing::warn!(topic = %self.0.cx.name, ?over, "backlog quota is exceeded");
            match over.action() {
                QuotaAction::Hold | QuotaAction::Exception => {
                    self.0
                        .state
                        .borrow_mut()
                        .stored
                        .publishing
                        .close_all_producers(&self.0.cx);
                }
                QuotaAction::Evict => self.evict(over).await,
            }
        }
    }

    /// The quotas that are exceeded, once stream consumers have told where they are.
    async fn over(&self) -> Vec<Over> {
        if self.0.cx.is_non_persistent() || self.measure().await.is_empty() {
            return Vec::new();
        }
        self.0.hear_progress().await;
        self.measure().await
    }

    async fn measure(&self) -> Vec<Over> {
        let mut over = Vec::new();
        let age = {
            let state = self.0.state.borrow();
            let quotas = state.stored.policies.backlog_quotas;
            over.extend(
                quotas
                    .size
                    .filter(|quota| backlog_bytes(&state, quota.action) >= quota.limit)
                    .map(Over::Size),
            );
            quotas.age
        };
        if let Some(quota) = age {
            let published_ms = oldest(self, quota.action).await;
            let is_over =
                published_ms.is_some_and(|at_ms| clock::wall_ms() > at_ms.saturating_add(quota.limit));
            over.extend(is_over.then_some(Over::Age(quota)));
        }
        over
    }

    /// Reads when the oldest entry of any backlog was published, unless that was read before. `None` without a backlog.
    async fn look_at_oldest(&self) -> Option<u64> {
        let place = {
            let mut state = self.0.state.borrow_mut();
            let place = state
                .stored
                .cursors
                .lowest()
                .map(|place| place.max(state.stored.log.ledger.first()));
            let place = place.filter(|place| *place < state.stored.log.ledger.durable_end());
            match (&state.stored.backlog.oldest, place) {
                (Some(known), Some(place)) if known.place == place => return Some(known.published_ms),
                _ => state.stored.backlog.oldest = None,
            }
            place?
        };
        let published_ms = match self.0.reads().published_at_or_after(place).await {
            Ok(published_ms) => published_ms?,
            Err(error) => {
                tracing::warn!(topic = %self.0.cx.name, %error, "cannot tell the age of the backlog");
                return None;
            }
        };
        let mut state = self.0.state.borrow_mut();
        let subscription = {
            let mut some = state.attached.subscriptions.values().take(SUBSCRIPTIONS_ASKED);
            let waits = some.find(|s| s.body.kind().stands_at(&state.stored.cursors, place));
            waits.map_or_else(|| "".into(), |s| s.name.as_str().into())
        };
        state.stored.backlog.oldest = Some(Oldest {
            place,
            published_ms,
            subscription,
        });
        Some(published_ms)
    }

    /// Moves the slowest cursors on: to nine tenths of what the quota allows, so that it is not exceeded at once again.
    async fn evict(&self, over: Over) {
        let (outcome, counted) = match over {
            Over::Size(quota) => {
                self.0.state.borrow_mut().stored.backlog.evictions.by_size += 1;
                (
                    self.evict_to_size(quota.limit / 10 * 9 + quota.limit % 10 * 9 / 10),
                    "size",
                )
            }
            Over::Age(quota) => {
                self.0.state.borrow_mut().stored.backlog.evictions.by_age += 1;
                let kept_ms = quota.limit / 10 * 9;
                let before_ms = clock::wall_ms().saturating_sub(kept_ms);
                (Expiring(self.0).published_before(before_ms).await, "age")
            }
        };
        if let Err(error) = outcome {
            tracing::warn!(topic = %self.0.cx.name, %error, quota = counted, "cannot move slow cursors on");
        }
    }

    fn evict_to_size(&self, bytes: u64) -> Result<(), CursorError> {
        let (to, slow) = {
            let state = self.0.state.borrow();
            let to = place_before_bytes(state.stored.log.ledger.ledgers(), bytes)
                .min(state.stored.log.ledger.durable_end());
            let durable = state.attached.subscriptions.values().filter(|s| s.is_durable());
            let slow: Vec<SubscriptionName> = durable.map(|s| s.name.clone()).collect();
            (to, slow)
        };
        for name in slow {
            Moving(self.0).skip_to(&name, to)?;
        }
        Ok(())
    }
}

impl Topic {
    /// Resolves when what stream consumers and dispatchers have acknowledged until now is known here.
    pub(super) async fn hear_progress(&self) {
        if self.with_attached(super::Attached::flush_all) {
            self.start_commit();
        }
        let listening = self.state.borrow().attached.links.listening(&self.cx);
        for (shard, feed) in listening {
            self.cx.hear_from(shard, feed).await;
        }
    }
}

/// Stored bytes of what a quota with this action counts: from the slowest durable cursor to the end.
fn backlog_bytes(state: &State, action: QuotaAction) -> u64 {
    let stored = &state.stored;
    let places = [stored.cursors.lowest(), owed_elsewhere(stored, action)];
    let lowest = places.into_iter().flatten().min();
    lowest.map_or(0, |lowest| bytes_after(stored.log.ledger.ledgers(), lowest))
}

/// Publish time of the oldest entry that counts towards a quota with this action.
async fn oldest(quotas: &Quotas<'_>, action: QuotaAction) -> Option<u64> {
    let (topic, here) = (quotas.0, quotas.look_at_oldest().await);
    let owed = {
        let stored = &topic.state.borrow().stored;
        let owed = owed_elsewhere(stored, action);
        owed.filter(|owed| stored.cursors.lowest().is_none_or(|lowest| *owed < lowest))
    };
    let Some(owed) = owed else { return here };
    match topic.reads().published_at_or_after(owed).await {
        Ok(published_ms) => published_ms.or(here),
        Err(error) => {
            tracing::warn!(topic = %topic.cx.name, %error, "cannot tell the age of the backlog of carriers");
            here
        }
    }
}

/// Start of the carriers' backlogs, if a quota with this action counts them.
fn owed_elsewhere(stored: &Stored, action: QuotaAction) -> Option<Ordinal> {
    match action {
        QuotaAction::Hold | QuotaAction::Exception => stored.owed_by_carriers(),
        QuotaAction::Evict => None,
    }
}

/// The first place after which there are at most about `bytes`.
fn place_before_bytes(rows: &[LedgerRow], bytes: u64) -> Ordinal {
    let mut left = bytes;
    let mut place = rows.last().map_or(Ordinal(0), LedgerRow::end);
    for row in rows.iter().rev() {
        if row.bytes <= left {
            left -= row.bytes;
            place = row.first;
            continue;
        }
        let share = u128::from(row.entries) * u128::from(left) / u128::from(row.bytes.max(1));
        let entries = u64::try_from(share).unwrap_or(row.entries).min(row.entries);
        return row.first.plus(row.entries - entries);
    }
    place
}

#[cfg(test)]
mod tests {
    use pharos_types::LedgerId;

    use super::*;

    fn row(id: u64, first: u64, entries: u64, bytes: u64) -> LedgerRow {
        LedgerRow {
            id: LedgerId(id),
            first: Ordinal(first),
            entries,
            bytes,
            closed_at_ms: None,
        }
    }

    #[test]
    fn cursors_are_moved_just_as_far_as_the_bytes_say() {
        let rows = [row(1, 10, 10, 1000), row(2, 20, 0, 0), row(3, 20, 5, 1000)];
        for (bytes, place) in [
            (0, 25),
            (199, 25),
            (200, 24),
            (1000, 20),
            (1100, 19),
            (2000, 10),
            (9000, 10),
        ] {
            assert_eq!(place_before_bytes(&rows, bytes), Ordinal(place), "{bytes}");
            assert!(bytes_after(&rows, Ordinal(place)) <= bytes);
        }
        assert_eq!(place_before_bytes(&[], 5), Ordinal(0));
    }
}
