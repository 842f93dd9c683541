//! Unused topics: told apart here, deleted by their shard.

use pharos_catalog::policy::InactiveMode;
use pharos_runtime::millis;

use super::State;

impl State {
    /// True if producers or consumers are attached or wait to be attached.
    pub(crate) fn is_in_use(&self) -> bool {
        self.stored.publishing.producers.len() > 0
            || self.stored.publishing.producers.waiting_len() > 0
            || !self.attached.consumers.is_empty()
    }

    /// Notes whether the topic is used. Returns true when it was not for as long as the policies ask and retention does
    /// not keep it either.
    pub(crate) fn is_to_be_given_up(&mut self, now_ms: u64) -> bool {
        let rule = self.stored.policies.inactive_topics;
        if !rule.delete {
            return false;
        }
        if is_used(self, rule.mode) {
            self.stored.last_used_ms = now_ms;
        }
        !self.stored.closing && self.is_given_up(now_ms)
    }

    /// True if the topic is inactive for as long as the policies require for its deletion.
    pub(crate) fn is_given_up(&self, now_ms: u64) -> bool {
        let rule = self.stored.policies.inactive_topics;
        if !rule.delete {
            return false;
        }
        if is_used(self, rule.mode) {
            return false;
        }
        let unused_ms = now_ms.saturating_sub(self.stored.last_used_ms);
        let is_retained = match self.stored.policies.retention.time {
            None => true,
            Some(kept) => unused_ms < millis(kept),
        };
        unused_ms >= millis(rule.after) && !is_retained
    }
}

/// True if a topic counts as active.
fn is_used(state: &State, mode: InactiveMode) -> bool {
    if state.is_in_use() || state.stored.log.is_followed() || state.has_replication_backlog() {
        return true;
    }
    let mut subscriptions = state.attached.subscriptions.values();
    match mode {
        InactiveMode::NoSubscriptions => !state.attached.subscriptions.is_empty(),
        InactiveMode::CaughtUp => {
            let end = state.stored.log.ledger.durable_end();
            subscriptions.any(|subscription| subscription.body.kind().has_backlog(end))
        }
    }
}
