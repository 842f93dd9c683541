//! Unused topics: told apart here, deleted by their shard.

use pharos_runtime::clock;
use pharos_types::{Domain, TopicName};

use super::delete::{DeleteIf, is_in_use, partitioned_error};
use super::{State, Topic};
use crate::error::TopicError;
use crate::shard::Shard;
use crate::time::millis;
use pharos_catalog::PartitionedTopicError;
use pharos_catalog::policy::InactiveMode;

impl State {
    /// Notes whether the topic is used. Returns true when it was not for as long as the policies ask and retention does
    /// not keep it either.
    fn is_to_be_given_up(&mut self, now_ms: u64) -> bool {
        let rule = self.stored.policies.inactive_topics;
        if !rule.delete {
            return false;
        }
        if is_used(self, rule.mode) {
            self.stored.last_used_ms = now_ms;
        }
        !self.stored.closing && self.is_given_up(now_ms)
    }

    /// Whether the topic is not used and was not for as long as the policies ask.
    pub(super) fn is_given_up(&self, now_ms: u64) -> bool {
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

/// Whether a topic counts as used.
fn is_used(state: &State, mode: InactiveMode) -> bool {
    if is_in_use(state) {
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

impl Shard {
    /// Deletes a topic that was not used for long enough; one that stores nothing is let go.
    pub(crate) async fn give_up_unused(self: &std::rc::Rc<Self>, topic: &Topic) {
        if !topic.state.borrow_mut().is_to_be_given_up(clock::wall_ms()) {
            return;
        }
        let name = topic.cx.name.clone();
        if name.domain() == Domain::NonPersistent {
            if let Ok(held) = self.hold_to_delete(&name, DeleteIf::Inactive(topic.cx.id)).await {
                topic.close().await;
                self.shared.catalog.note_unloaded(&name);
                drop(held);
            }
            return;
        }
        let deleted = match self.delete_topic(&name, DeleteIf::Inactive(topic.cx.id)).await {
            Ok(()) => {
                tracing::info!(topic = %name, "deleted an unused topic");
                self.give_up_partitioned(&name).await
            }
            // A client came to it meanwhile, or it is another one.
            Err(TopicError::InUse | TopicError::Closing(_)) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = deleted {
            tracing::warn!(topic = %name, %error, "cannot delete an unused topic");
        }
    }

    /// Deletes a partitioned topic when the last of its partitions was deleted.
    async fn give_up_partitioned(&self, partition: &TopicName) -> Result<(), TopicError> {
        let catalog = &self.shared.catalog;
        let base = partition.base();
        if partition.partition().is_none() || !self.shared.options.delete_inactive_partitioned {
            return Ok(());
        }
        if catalog.partitioned_topic(&base).is_none() {
            return Ok(());
        }
        match catalog.begin_delete_unmade(&base).await {
            Ok(true) => catalog.delete_partitioned(&base).await.map_err(partitioned_error),
            Ok(false) | Err(PartitionedTopicError::NotPartitioned(_)) => Ok(()),
            Err(error) => Err(partitioned_error(error)),
        }
    }
}
