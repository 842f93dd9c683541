//! Use of a topic, and the reasons to check an unloaded one.

use std::time::Duration;

use super::State;
use pharos_catalog::policy::QuotaAction;

impl State {
    /// True if it has not been used for `idle_after` and nothing is in progress.
    pub(crate) fn may_rest(&self, used_ms: u64, now_ms: u64, idle_after: Duration) -> bool {
        let idle_after_ms = u64::try_from(idle_after.as_millis()).unwrap_or(u64::MAX);
        let last_ms = used_ms.max(self.stored.publishing.counters.last_publish_ms);
        let quiet = !self.stored.log.ledger.offloads().is_running()
            && !self.stored.compaction.is_running()
            && self.stored.publishing.pending.is_empty()
            && !self.stored.log.is_terminating()
            && self.stored.publishing.fault.is_none();
        quiet
            && self.stored.carrying.is_none()
            && self.stored.holder.is_none()
            && !self.stored.closing
            && self.stored.publishing.producers.len() == 0
            && !self.has_replication_backlog()
            && self.attached.consumers.is_empty()
            && !is_clock_running(self)
            && now_ms.saturating_sub(last_ms) >= idle_after_ms
    }

    /// True if entries wait for replication to other clusters.
    pub(super) fn has_replication_backlog(&self) -> bool {
        let end = self.stored.log.ledger.durable_end();
        self.stored.replication.has_backlog(end)
    }

    /// True if retention, expiry or absent consumers may need it later.
    pub(crate) fn holds_something(&self) -> bool {
        !self.attached.subscriptions.is_empty()
            || self.stored.log.ledger.first() < self.stored.log.ledger.end()
    }
}

/// True if a rule has work here that must not be an hour late: messages or subscriptions that expire.
fn is_clock_running(state: &State) -> bool {
    let policies = &state.stored.policies;
    let evicts = policies
        .backlog_quotas
        .age
        .is_some_and(|quota| quota.action == QuotaAction::Evict);
    let end = state.stored.log.ledger.durable_end();
    let has_backlog = state.stored.cursors.lowest().is_some_and(|lowest| lowest < end);
    let has_durable = || {
        state
            .attached
            .subscriptions
            .values()
            .any(|subscription| subscription.is_durable())
    };
    (has_backlog && (policies.message_ttl.millis().is_some() || evicts))
        || (policies.subscription_expiration.millis().is_some() && has_durable())
}
