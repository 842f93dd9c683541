//! What ends: ledgers that every cursor has passed, absent broadcast consumers, and the topic itself.

use std::time::Duration;

use pharos_managed_ledger::{LedgerRow, MaintenanceDone, MaintenanceEvent, Retention};
use pharos_runtime::clock;
use pharos_types::{Ordinal, Position};
use tokio::sync::oneshot;

use super::subscription::Body;
use super::{Attached, Stored, Topic, TopicContext};
use crate::time::millis;

/// How long a topic that closes waits for the engine. Longer than the engine waits for room.
const DRAIN_MAX: Duration = Duration::from_secs(30);

impl Stored {
    /// Everything before this is acknowledged by every durable cursor.
    pub(super) fn acked_below(&self) -> Ordinal {
        self.cursors
            .lowest()
            .unwrap_or_else(|| self.log.ledger.durable_end())
    }

    /// Gives up closed ledgers that are not needed; they are deleted off the path.
    pub(super) fn trim_soon(&mut self, cx: &TopicContext) {
        let acked_below = self.acked_below();
        let kept = self.rules.retention;
        let kept = Retention {
            time_ms: kept.time.map(millis),
            bytes: kept.bytes,
        };
        if !self
            .log
            .ledger
            .trim(acked_below, kept, clock::wall_ms())
            .is_empty()
        {
            self.log.maintain(cx);
        }
    }
}

impl Attached {
    /// What was trimmed belongs to no cursor any more. Only cursors that are not durable can still lie before the first entry.
    pub(super) fn forget_trimmed(&mut self, first: Ordinal) {
        for subscription in self.subscriptions.values_mut() {
            if let Body::Dispatched(body) = &mut subscription.body {
                body.dirty |= body.dispatcher.ack_before(first);
            }
        }
    }
}

impl Topic {
    pub(super) fn on_maintained(&self, done: MaintenanceDone) {
        let mut state = self.state.borrow_mut();
        match state.stored.log.ledger.on_maintenance(done, clock::wall_ms()) {
            MaintenanceEvent::Nothing => {}
            MaintenanceEvent::RolledOver => {
                state.stored.trim_soon(&self.cx);
                state.stored.offload_soon(&self.cx);
            }
            MaintenanceEvent::Trimmed(ledgers) => {
                tracing::debug!(topic = %self.cx.name, count = ledgers.len(), "trimmed");
                let first = state.stored.log.ledger.first();
                state.attached.forget_trimmed(first);
                state.stored.offload_soon(&self.cx);
            }
            MaintenanceEvent::Offloaded(ledger) => {
                tracing::info!(topic = %self.cx.name, %ledger, "offloaded");
                state.stored.offload_soon(&self.cx);
            }
            MaintenanceEvent::Terminated(last) => {
                state.stored.log.on_terminated(last);
                state.attached.links.terminated(&self.cx);
                state.stored.publishing.close_all_producers(&self.cx);
            }
            MaintenanceEvent::Retrying(error) => {
                tracing::warn!(topic = %self.cx.name, error = super::publish::chain(&error), "maintenance of the log is tried again");
            }
            MaintenanceEvent::Failed(error) => {
                state
                    .stored
                    .publishing
                    .fail(&self.cx, &super::publish::chain(&error), error.is_transient());
            }
        }
        state.stored.log.maintain(&self.cx);
        state.stored.publishing.watch(&self.cx);
    }

    /// Once in a while: ages of ledgers, retention, absent consumers.
    pub(crate) fn on_tick(&self) {
        let now_ms = clock::wall_ms();
        let is_dropped =
            self.with_attached(|attached, cx, stored| attached.drop_absentees(cx, stored, now_ms));
        if is_dropped || self.state.borrow().stored.cursors.is_ending() {
            // A commit failed for lack of something, or no caller waits for it.
            self.start_commit();
        }
        let mut state = self.state.borrow_mut();
        if state.stored.closing {
            return;
        }
        state.stored.trim_soon(&self.cx);
        state.stored.offload_soon(&self.cx);
        state.stored.log.maintain(&self.cx);
    }

    /// Refuses everything from now on, closes clients, and makes log and cursors durable. Afterwards the topic can be
    /// loaded again.
    pub(crate) async fn close(&self) {
        self.close_clients().await;
        self.stop_offload().await;
        self.flush_all();
        if let Err(error) = self.commit_cursors().await {
            tracing::error!(topic = %self.cx.name, error, "cursors could not be stored at close");
        }
        // The log itself is simply let go: the next opening finds its end.
        self.drain().await;
    }

    /// Resolves when everything appended is durable and answered, or never will be. An engine that says neither for long is left
    /// to itself: its entries are found or not when the log is opened again.
    async fn drain(&self) {
        let (sender, drained) = oneshot::channel();
        {
            let mut state = self.state.borrow_mut();
            if state.stored.publishing.fault.is_some() || state.stored.publishing.pending.is_empty() {
                return;
            }
            state.stored.publishing.draining.push(sender);
        }
        // Resolved by being dropped.
        if tokio::time::timeout(DRAIN_MAX, drained).await.is_err() {
            tracing::warn!(topic = %self.cx.name, "closed before its last messages were durable");
        }
    }

    /// Refuses everything from now on; resolves when consumers are gone.
    pub(super) async fn close_clients(&self) {
        let leaving: Vec<_> = {
            let mut state = self.state.borrow_mut();
            state.stored.closing = true;
            state.stored.publishing.close_all_producers(&self.cx);
            let mut names: Vec<_> = state.attached.subscriptions.keys().cloned().collect();
            // One order, so that a simulated history can be repeated.
            names.sort_unstable();
            names
                .iter()
                .flat_map(|name| state.attached.close_consumers(&self.cx, name))
                .collect()
        };
        for leaving in leaving {
            // Resolved by being dropped: the consumer is gone.
            let _ = leaving.await;
        }
    }

    pub(super) fn flush_all(&self) {
        let mut names: Vec<_> = self
            .state
            .borrow()
            .attached
            .subscriptions
            .keys()
            .cloned()
            .collect();
        names.sort_unstable();
        for name in names {
            self.flush_dispatched(&name);
        }
    }

    /// Refuses appends from now on, for ever; resolves with the last position when that is durable.
    pub(crate) async fn terminate(&self) -> Result<Option<Position>, String> {
        let asked = self.state.borrow_mut().stored.log.terminate(&self.cx);
        match asked {
            Ok(receiver) => receiver.await.map_err(|_| "topic was closed".to_owned()),
            Err(last) => Ok(last),
        }
    }
}

/// About how many bytes lie after a place: whole ledgers exactly, the one it lies in by share.
pub(super) fn bytes_after(ledgers: &[LedgerRow], place: Ordinal) -> u64 {
    let bytes_of = |row: &LedgerRow| {
        let left = place.max(row.first).count_to(row.end());
        let share = u128::from(row.bytes) * u128::from(left) / u128::from(row.entries.max(1));
        u64::try_from(share).unwrap_or(u64::MAX)
    };
    ledgers.iter().filter(|row| row.end() > place).map(bytes_of).sum()
}
