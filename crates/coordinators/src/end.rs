//! The end of a transaction: every participant hears of it until it has ended there, durably.

use std::sync::Arc;
use std::time::Duration;

use pharos_broker::error::{Gone, TopicError};
use pharos_managed_ledger::cursor_log::Record;
use pharos_runtime::{clock, many};
use pharos_transactions::{Coordinator, keys};
use pharos_types::{SubscriptionName, TopicName, TxnId, TxnOutcome};

use crate::log::durable;
use crate::transactions::Transactions;

/// Pauses between tries, the first and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));
/// Interval between checks for expired transactions, and maximum number that a coordinator aborts in one check.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);
const TIMEOUTS_MAX: usize = 1000;

/// A participant.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Participant {
    Topic(TopicName),
    Subscription(TopicName, SubscriptionName),
}

/// Reason why a participant has not ended it yet.
struct NotYet(String);

impl From<TopicError> for NotYet {
    fn from(error: TopicError) -> Self {
        Self(error.to_string())
    }
}

impl From<Gone> for NotYet {
    fn from(gone: Gone) -> Self {
        Self(gone.to_string())
    }
}

impl Transactions {
    /// Brings the end of a transaction, which is COMMITTING or ABORTING, to all that take part, and forgets it. On its coordinator's
    /// shard, once for each.
    pub(crate) async fn finish(self: Arc<Self>, txn: TxnId) {
        let Some(log) = self.log(txn.most).cloned() else {
            return;
        };
        // No participant hears how it ends before that is decided for good.
        if let Err(error) = durable(&log, log.commit()).await {
            tracing::error!(%txn, %error, "the end of a transaction could not be stored");
            self.lock_ends().stop(txn);
            return;
        }
        let found = self
            .coordinators()
            .with(txn.most, |state| state.participants(txn));
        let Some(found) = found.flatten() else { return };
        let topics = found.topics.into_iter().map(Participant::Topic);
        let subscriptions = found.subscriptions.into_iter();
        let subscriptions = subscriptions.map(|(topic, name)| Participant::Subscription(topic, name));
        let mut left: Vec<Participant> = topics.chain(subscriptions).collect();
        let mut pause = PAUSES.0;
        loop {
            let mut failed = Vec::new();
            let mut reason = None;
            let parts = std::mem::take(&mut left);
            let asked = many(
                parts,
                |part| {
                    let this = self.clone();
                    async move {
                        let ended = this.end_part(&part, txn, found.outcome).await;
                        (part, ended)
                    }
                },
                |(part, ended)| {
                    if let Err(NotYet(why)) = ended {
                        reason = Some(why);
                        failed.push(part);
                    }
                    Ok::<(), std::convert::Infallible>(())
                },
            );
            match asked.await {
                Ok(()) => {}
                Err(never) => match never {},
            }
            if failed.is_empty() {
                break;
            }
            left = failed;
            tracing::warn!(%txn, left = left.len(), reason, "the end of a transaction is tried again");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSES.1);
        }
        let forgotten = log.change(|records| {
            self.coordinators().with(txn.most, |state| state.forget(txn));
            let prefix = keys::live(txn.least);
            records.push(Record::NotesRemoved { prefix });
            Ok::<(), crate::log::LogFailed>(())
        });
        if let Err(crate::log::LogFailed(error)) = forgotten {
            // The next start finds it, and all its participants have ended it.
            tracing::error!(%txn, error, "the log of a coordinator did not take the last record of a transaction");
        }
        let waiting = self.lock_ends().waiting.remove(&txn);
        for waiting in waiting.unwrap_or_default() {
            // A client that left does not mind.
            let _ = waiting.send(());
        }
    }

    async fn end_part(&self, part: &Participant, txn: TxnId, outcome: TxnOutcome) -> Result<(), NotYet> {
        let (topic, subscription) = match part {
            Participant::Topic(topic) => (topic.clone(), None),
            Participant::Subscription(topic, name) => (topic.clone(), Some(name.clone())),
        };
        if !self.broker.shared.catalog.topic_exists(&topic) {
            // It was deleted: nothing is left of the transaction there.
            return Ok(());
        }
        let home = self.broker.shared.placement.home(&topic)?;
        let ended = self.broker.at_home(home, topic.clone(), move |topic| async move {
            match subscription {
                None => topic.end_transaction(txn, outcome).await.map_err(NotYet),
                Some(name) => topic.end_acks(&name, txn, outcome).await.map_err(NotYet),
            }
        });
        match ended.await {
            Err(_) if !self.broker.shared.catalog.topic_exists(&topic) => Ok(()),
            outcome => outcome,
        }
    }

    /// Aborts transactions of these coordinators whose time is over, and comes back to logs that the engine had no room for; for as long
    /// as the process lives.
    pub(crate) async fn look_after(self: Arc<Self>, ids: Vec<u64>) {
        loop {
            tokio::time::sleep(LOOK_INTERVAL).await;
            for id in &ids {
                if let Some(log) = self.log(*id) {
                    log.catch_up();
                }
                let overdue = |state: &mut Coordinator| state.overdue(clock::wall_ms(), TIMEOUTS_MAX);
                let overdue = self.coordinators().with(*id, overdue);
                for txn in overdue.into_iter().flatten() {
                    match self.begin_end(txn, TxnOutcome::Aborted) {
                        Ok(_) => tracing::info!(%txn, "aborting a transaction whose time is over"),
                        // It is tried again; why the log takes nothing is said where it fails.
                        Err(error) => tracing::debug!(%txn, %error, "a transaction is aborted later"),
                    }
                }
            }
        }
    }
}
