//! Topics that nobody uses: told apart here, deleted by their shard.

use pharos_runtime::clock;
use pharos_types::{Domain, TopicName};

use super::subscription::{Body, CursorPlace, Subscription};
use super::{State, Topic};
use crate::error::TopicError;
use crate::rules::InactiveMode;
use crate::shard::Shard;

impl Topic {
    /// Notes whether somebody uses the topic. Returns true, and refuses everybody from then on, when nobody did for as long
    /// as the rules ask and retention does not keep it either.
    fn give_up_if_unused(&self, now_ms: u64) -> bool {
        let mut guard = self.state.borrow_mut();
        let state = &mut *guard;
        let Some(rule) = state.rules.inactive else {
            return false;
        };
        if state.closing {
            return false;
        }
        if is_used(state, rule.mode) {
            state.last_used_ms = now_ms;
            return false;
        }
        let unused_ms = now_ms.saturating_sub(state.last_used_ms);
        let after_ms = u64::try_from(rule.after.as_millis()).unwrap_or(u64::MAX);
        let is_retained = match state.rules.retention.time_ms {
            None => true,
            Some(kept_ms) => unused_ms < kept_ms,
        };
        if unused_ms < after_ms || is_retained {
            return false;
        }
        // From here on whoever comes is told to try again, and finds a topic that is new.
        state.closing = true;
        true
    }
}

/// Whether a topic counts as used.
fn is_used(state: &State, mode: InactiveMode) -> bool {
    if state.producers.len() > 0 || state.producers.waiting_len() > 0 || !state.consumers.is_empty() {
        return true;
    }
    let mut subscriptions = state.subscriptions.values();
    match mode {
        InactiveMode::NoSubscriptions => !state.subscriptions.is_empty(),
        InactiveMode::CaughtUp => subscriptions.any(|subscription| has_backlog(state, subscription)),
    }
}

fn has_backlog(state: &State, subscription: &Subscription) -> bool {
    let end = state.ledger.durable_end();
    if let Body::Dispatched(body) = &subscription.body {
        return body.dispatcher.acks().backlog(end) > 0;
    }
    let mut cursors = subscription.cursors();
    cursors.any(|(_, cursor)| match &cursor.place {
        CursorPlace::Home(acks) => acks.backlog(end) > 0,
        CursorPlace::Lent(_) => true,
    })
}

impl Shard {
    /// Deletes a topic that nobody used for long enough; one that stores nothing is let go.
    pub(crate) async fn give_up_unused(self: &std::rc::Rc<Self>, topic: &Topic) {
        if !topic.give_up_if_unused(clock::wall_ms()) {
            return;
        }
        let name = topic.name.clone();
        tracing::info!(topic = %name, "deleting a topic that nobody uses");
        if name.domain() == Domain::NonPersistent {
            return self.unload(&name).await;
        }
        let deleted = match self.delete_topic(&name).await {
            Ok(()) => self.give_up_partitioned(&name).await,
            Err(error) => Err(error),
        };
        if let Err(error) = deleted {
            tracing::warn!(topic = %name, %error, "cannot delete a topic that nobody uses");
        }
    }

    /// Deletes a partitioned topic when the last of its partitions was deleted.
    async fn give_up_partitioned(&self, partition: &TopicName) -> Result<(), TopicError> {
        let catalog = &self.shared.catalog;
        let base = partition.base();
        if partition.partition().is_none() || !self.shared.options.delete_inactive_partitioned {
            return Ok(());
        }
        let Some(whole) = catalog.partitioned_topic(&base) else {
            return Ok(());
        };
        let is_left = |index| catalog.topic_exists(&base.with_partition(index));
        if (0..whole.partitions).any(is_left) {
            return Ok(());
        }
        let failed = |error: crate::catalog::PartitionedTopicError| TopicError::Metadata(error.to_string());
        catalog.begin_delete_partitioned(&base).await.map_err(failed)?;
        catalog.delete_partitioned(&base).await.map_err(failed)
    }
}
