//! Retirement of ledgers that every cursor has passed, of absent broadcast consumers, and of the topic itself.

use std::time::Duration;

use pharos_managed_ledger::cursor_log::write_all_nodes;
use pharos_managed_ledger::{LedgerRow, MaintenanceDone, MaintenanceEvent, Retention};
use pharos_requests::error::chain;
use pharos_runtime::{clock, millis};
use pharos_types::{Ordinal, Position};
use tokio::sync::oneshot;

use super::Compacting;
use super::deduplication::Admitting;
use super::nodes::NodesOf;
use super::{Attached, Publishing, State, Stored, Topic, TopicContext};

/// Time limit for a closing topic to wait for the engine. Longer than the engine waits for room.
const DRAIN_MAX: Duration = Duration::from_secs(30);

impl Stored {
    /// Everything before this is acknowledged by every durable cursor, also of carriers, and processed by the broker itself.
    pub(super) fn acked_below(&self) -> Ordinal {
        let lowest = self.cursors.lowest_of_all();
        let acked = lowest.unwrap_or_else(|| self.log.ledger.durable_end());
        // What transactions are open in is not read yet.
        let acked = acked.min(self.log.readable_end());
        // What a broker of Pulsar was to compact is kept until it is.
        let held = [self.cursors.log().held(), self.compaction.floor()];
        let acked = held.into_iter().flatten().fold(acked, Ordinal::min);
        self.held_by_carriers().map_or(acked, |held| held.min(acked))
    }

    /// Gives up closed ledgers that are not needed; they are deleted off the path.
    pub(super) fn trim_soon(&mut self, cx: &TopicContext) {
        let acked_below = self.acked_below();
        let kept = self.policies.retention;
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

    /// Gives up closed ledgers that are not needed, now.
    pub(crate) fn trim_now(&mut self, cx: &TopicContext) {
        self.trim_soon(cx);
        self.log.maintain(cx);
    }

    /// As [`trim_now`](Self::trim_now), but whatever retention says.
    pub(crate) fn discard(&mut self, cx: &TopicContext) {
        let acked_below = self.acked_below();
        self.log
            .ledger
            .trim(acked_below, Retention::NONE, clock::wall_ms());
        self.log.maintain(cx);
    }
}

impl Publishing {
    /// Receiver that resolves, by being dropped, when everything appended is durable and answered, or never will be;
    /// `None` if that is already so. If the engine reports neither for long, its entries are found or not when the
    /// log is opened again.
    fn drained(&mut self) -> Option<oneshot::Receiver<()>> {
        if self.fault.is_some() || self.pending.is_empty() {
            return None;
        }
        let (sender, drained) = oneshot::channel();
        self.draining.push(sender);
        Some(drained)
    }
}

impl Attached {
    /// Queues every cursor of a dispatched subscription for the log that changed. Returns whether one did.
    pub(super) fn flush_all(&mut self, cx: &TopicContext, stored: &mut Stored) -> bool {
        let mut names = self.subscriptions.dispatched();
        names.sort_unstable();
        let mut any = false;
        for name in names {
            any |= self.flush_dispatched(cx, stored, &name);
        }
        any
    }

    /// Drops trimmed entries from the cursors. Only cursors that are not durable can still be before the first entry.
    pub(super) fn forget_trimmed(&mut self, first: Ordinal) {
        for subscription in self.subscriptions.values_mut() {
            subscription.body.kind_mut().forget_before(first);
        }
    }
}

impl State {
    pub(super) fn on_maintained(&mut self, cx: &TopicContext, done: MaintenanceDone) {
        match self.stored.log.ledger.on_maintenance(done, clock::wall_ms()) {
            MaintenanceEvent::Nothing => {}
            MaintenanceEvent::RolledOver => {
                self.stored.trim_soon(cx);
                self.stored.offload_soon();
            }
            MaintenanceEvent::Trimmed(ledgers) => {
                tracing::debug!(topic = %cx.name, count = ledgers.len(), "trimmed");
                let first = self.stored.log.ledger.first();
                self.attached.forget_trimmed(first);
                self.stored.forget_aborted(cx, first);
                self.stored.offload_soon();
            }
            MaintenanceEvent::Offloaded(ledger) => {
                tracing::info!(topic = %cx.name, %ledger, "offloaded");
                self.stored.offload_soon();
            }
            MaintenanceEvent::Terminated(last) => {
                self.stored.log.on_terminated(last);
                if self.stored.log.is_at_its_end() {
                    self.attached.links.terminated(cx);
                }
                self.stored.publishing.close_all_producers(cx);
            }
            MaintenanceEvent::Retrying(error) => {
                tracing::warn!(topic = %cx.name, error = chain(&error), "maintenance of the log is tried again");
            }
            MaintenanceEvent::Failed(error) => {
                self.stored.publishing.fail(cx, &chain(&error), error.kind());
            }
        }
        self.stored.log.maintain(cx);
        self.stored.publishing.watch(cx);
    }
}

impl Topic {
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
        // What could not be read again is tried again.
        state.stored.follow_deduplication(&self.cx);
        state.stored.follow_replication(&self.cx);
        state.stored.trim_soon(&self.cx);
        state.stored.offload_soon();
        state.stored.log.maintain(&self.cx);
    }

    /// Refuses everything from now on, closes clients, and makes log and cursors durable. Afterwards the topic can be
    /// loaded again.
    pub async fn close(&self) {
        self.close_clients().await;
        self.stop_offload().await;
        Compacting(self).stop_compaction().await;
        let is_flushed = self.with_attached(Attached::flush_all);
        let is_noted = self.state.borrow_mut().stored.note_transactions(&self.cx, 1);
        if is_flushed || is_noted {
            self.start_commit();
        }
        Admitting(self).store();
        if let Err(error) = self.commit_cursors().await {
            tracing::error!(topic = %self.cx.name, error, "cursors could not be stored at close");
        }
        write_all_nodes(&NodesOf(self)).await;
        // The log itself is simply let go: the next opening finds its end.
        let drained = self.state.borrow_mut().stored.publishing.drained();
        if let Some(drained) = drained
            && tokio::time::timeout(DRAIN_MAX, drained).await.is_err()
        {
            tracing::warn!(topic = %self.cx.name, "closed before its last messages were durable");
        }
    }

    /// Refuses everything from now on; resolves when consumers are gone.
    pub(super) async fn close_clients(&self) {
        let leaving: Vec<_> = {
            let mut state = self.state.borrow_mut();
            state.stored.closing = true;
            state.stored.stop_replication(&self.cx);
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
