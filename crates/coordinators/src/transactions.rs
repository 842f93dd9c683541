//! Transaction operations of clients and administrators.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pharos_broker::Broker;
use pharos_broker::error::{Gone, TopicError};
use pharos_managed_ledger::cursor_log::Record;
use pharos_runtime::clock;
use pharos_transactions::{
    BufferStats, CalledTopic, Coordinator, CoordinatorLimits, CoordinatorStats, Coordinators, PendingStats,
    Transaction, TxnError, TxnStatus, keys,
};
use pharos_types::{Ordinal, Position, SubscriptionName, TopicName, TxnId, TxnOutcome, varint};
use tokio::sync::oneshot;

use crate::log::{CoordinatorLog, LogFailed, durable};
use crate::open::home_of;

/// The topic whose partitions stand for the coordinators: where clients look them up.
const ASSIGN: &str = "persistent://pulsar/system/transaction_coordinator_assign";

/// The coordinators of a broker. Cheap to share; usable from any thread, its futures on shards and elsewhere.
pub struct Transactions {
    pub(crate) broker: Broker,
    /// Number of coordinators that clients may use.
    serving: u64,
    limits: CoordinatorLimits,
    logs: Box<[CoordinatorLog]>,
    ends: Mutex<Ends>,
}

/// Ends of transactions that are under way, or stopped because the log did not take them.
#[derive(Default)]
pub(crate) struct Ends {
    /// Callers to notify when the transaction has ended.
    pub(crate) waiting: HashMap<TxnId, Vec<oneshot::Sender<()>>>,
    /// Transactions that are COMMITTING or ABORTING and that nothing brings to an end. The next END_TXN begins anew.
    stopped: HashSet<TxnId>,
}

impl Ends {
    /// Notes that the end of a transaction was not stored. Its callers get an error.
    pub(crate) fn stop(&mut self, txn: TxnId) {
        self.waiting.remove(&txn);
        self.stopped.insert(txn);
    }
}

impl fmt::Debug for Transactions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transactions")
            .field("serving", &self.serving)
            .finish_non_exhaustive()
    }
}

/// A transaction that has not ended, to be shown.
#[derive(Debug, Clone)]
pub struct TransactionInfo {
    /// Transaction id.
    pub txn: TxnId,
    /// State of the transaction.
    pub transaction: Transaction,
}

/// Transaction figures of a topic.
#[derive(Debug, Clone)]
pub struct TopicTransactionFigures {
    /// Counts.
    pub stats: BufferStats,
    /// The open ones, with the places of their first messages.
    pub open: Vec<(TxnId, Option<Position>)>,
    /// The last entry that readers may get.
    pub readable: Option<Position>,
}

/// Reason why a change of a coordinator was not stored.
enum ChangeError {
    Txn(TxnError),
    Log(String),
}

impl From<LogFailed> for ChangeError {
    fn from(failed: LogFailed) -> Self {
        Self::Log(failed.0)
    }
}

impl From<ChangeError> for TxnError {
    fn from(error: ChangeError) -> Self {
        match error {
            ChangeError::Txn(error) => error,
            ChangeError::Log(reason) => Self::Log(reason),
        }
    }
}

impl Transactions {
    pub(crate) fn new(
        broker: Broker,
        serving: u64,
        limits: CoordinatorLimits,
        logs: Vec<CoordinatorLog>,
    ) -> Self {
        Self {
            broker,
            serving,
            limits,
            logs: logs.into(),
            ends: Mutex::default(),
        }
    }

    /// Returns the number of coordinators that clients may use; 0: transactions are off.
    #[must_use]
    pub fn serving(&self) -> u32 {
        u32::try_from(self.serving).unwrap_or(u32::MAX)
    }

    /// Returns the number of coordinators that clients may use, if this is the topic by which they are found, or a
    /// partition of it.
    #[must_use]
    pub fn found_at(&self, topic: &TopicName) -> Option<u32> {
        // Most names differ in their tenant, and are compared with nothing.
        if topic.namespace().tenant() != "pulsar" || topic.base().to_string() != ASSIGN {
            return None;
        }
        let is_one = |index| u64::from(index) < self.serving;
        topic.partition().is_none_or(is_one).then(|| self.serving())
    }

    /// Checks that clients may use a coordinator.
    ///
    /// # Errors
    /// `NoCoordinator`.
    pub fn check_coordinator(&self, id: u64) -> Result<(), TxnError> {
        match id < self.serving {
            true => Ok(()),
            false => Err(TxnError::NoCoordinator(id)),
        }
    }

    /// A new transaction, durable. `timeout_ms` of 0: the longest. On a shard, as all that follow.
    ///
    /// # Errors
    /// `NoCoordinator`, `TooMany`, `TooManyOfRole`, `TooLong`, `Log`.
    pub async fn begin(
        &self,
        coordinator: u64,
        owner: Option<&str>,
        timeout_ms: u64,
    ) -> Result<TxnId, TxnError> {
        self.check_coordinator(coordinator)?;
        self.change(coordinator, |state, records| {
            let before = state.reserved();
            let txn = state.begin(owner, timeout_ms, clock::wall_ms(), self.limits)?;
            if state.reserved() != before {
                let mut value = Vec::new();
                varint::put(&mut value, state.reserved());
                let key = keys::RESERVED.to_vec();
                records.push(Record::Noted { key, value });
            }
            note(state, txn, records);
            Ok(txn)
        })
        .await
    }

    /// Topics and subscriptions take part in a transaction; durable, and each of them is ready, when this returns.
    ///
    /// # Errors
    /// `NotFound`, `Status`, `TooManyParticipants`, `Log`; [`AddError::Topic`] of a participant that cannot take part.
    pub async fn add(
        &self,
        txn: TxnId,
        owner: Option<&str>,
        topics: Vec<CalledTopic>,
        subscriptions: Vec<(CalledTopic, SubscriptionName)>,
    ) -> Result<(), AddError> {
        self.with(txn.most, |state| state.check_owner(txn, owner))??;
        for topic in &topics {
            self.at_home(&topic.name, true).await?;
        }
        for (topic, _) in &subscriptions {
            self.at_home(&topic.name, false).await?;
        }
        self.change(txn.most, |state, records| {
            if state.add(txn, owner, &topics, &subscriptions)? {
                note(state, txn, records);
            }
            Ok(())
        })
        .await?;
        self.with(txn.most, |state| state.on_added(txn, &topics, &subscriptions))??;
        Ok(())
    }

    /// Makes a topic ready for transactions: for messages in them, or for acknowledgements only.
    async fn at_home(&self, topic: &TopicName, has_messages: bool) -> Result<(), AddError> {
        let home = self.broker.shared.placement.home(topic)?;
        let ready = self.broker.at_home(home, topic.clone(), move |topic| async move {
            topic.check_transactions().map_err(TopicError::NotAllowed)?;
            if has_messages {
                topic.begin_transactions().await.map_err(TopicError::Storage)?;
            }
            Ok::<(), TopicAt>(())
        });
        ready.await.map_err(|TopicAt(error)| AddError::Topic(error))
    }

    /// Ends a transaction of this role; resolves when every participant has ended it.
    ///
    /// # Errors
    /// `NotFound`, `Status`, `Log`.
    ///
    /// Cancel safety: the end goes on when the future is dropped.
    pub async fn end(
        self: &Arc<Self>,
        txn: TxnId,
        owner: Option<&str>,
        outcome: TxnOutcome,
    ) -> Result<(), TxnError> {
        self.with(txn.most, |state| state.check_owner(txn, owner))??;
        self.end_any(txn, outcome).await
    }

    async fn end_any(self: &Arc<Self>, txn: TxnId, outcome: TxnOutcome) -> Result<(), TxnError> {
        let ended = self.begin_end(txn, outcome)?;
        let stopped = || TxnError::Log("its end was not stored, or the broker is stopping".to_owned());
        ended.await.map_err(|_| stopped())
    }

    /// Aborts a transaction of any role. From any thread; otherwise as [`end`](Self::end).
    ///
    /// # Errors
    /// As there.
    pub async fn abort(self: &Arc<Self>, txn: TxnId) -> Result<(), TxnError> {
        let (this, home) = (self.clone(), home_of(&self.broker, txn.most));
        let aborted = self.broker.call(home, move |_| async move {
            this.end_any(txn, TxnOutcome::Aborted).await
        });
        let aborted = aborted.await;
        aborted.map_err(|gone| TxnError::Log(gone.to_string()))?
    }

    /// The state becomes COMMITTING or ABORTING, and the work on it begins. Resolves when that is done.
    pub(crate) fn begin_end(
        self: &Arc<Self>,
        txn: TxnId,
        outcome: TxnOutcome,
    ) -> Result<oneshot::Receiver<()>, TxnError> {
        let log = self.log(txn.most).ok_or(TxnError::NoCoordinator(txn.most))?;
        let (done, ended) = oneshot::channel();
        let mut begins = false;
        let changed = log.change(|records| {
            let changed = self.coordinators().with(txn.most, |state| {
                let is_new = state.end(txn, outcome).map_err(ChangeError::Txn)?;
                let mut ends = self.lock_ends();
                // One that stopped was noted in memory at most: it is noted again, before a participant is told.
                begins = ends.stopped.remove(&txn) || is_new;
                if begins {
                    note(state, txn, records);
                }
                // Under the lock, so that the end is not told before we wait for it.
                ends.waiting.entry(txn).or_default().push(done);
                Ok::<(), ChangeError>(())
            });
            changed.unwrap_or(Err(ChangeError::Txn(TxnError::NoCoordinator(txn.most))))
        });
        if let Err(error) = changed {
            if begins {
                self.lock_ends().stop(txn);
            }
            return Err(error.into());
        }
        if begins {
            let home = home_of(&self.broker, txn.most);
            let (this, broker) = (self.clone(), self.broker.clone());
            pharos_runtime::spawn_local(async move {
                broker
                    .run_on(home.index(), move |_| {
                        pharos_runtime::spawn_local(this.finish(txn));
                    })
                    .await;
            });
        }
        Ok(ended)
    }

    /// Numbers of a coordinator; `None`: there is no such.
    #[must_use]
    pub fn stats(&self, coordinator: u64) -> Option<CoordinatorStats> {
        self.coordinators().with(coordinator, |state| state.stats())
    }

    /// A transaction that has not ended.
    #[must_use]
    pub fn get(&self, txn: TxnId) -> Option<TransactionInfo> {
        let found = self
            .coordinators()
            .with(txn.most, |state| state.get(txn).cloned());
        found
            .flatten()
            .map(|transaction| TransactionInfo { txn, transaction })
    }

    /// The transactions of a coordinator that have not ended and were made so long ago.
    #[must_use]
    pub fn slow(&self, coordinator: u64, older_than_ms: u64) -> Vec<TransactionInfo> {
        let before = clock::wall_ms().saturating_sub(older_than_ms);
        let slow = self.coordinators().with(coordinator, |state| {
            let all = state
                .all()
                .filter(|(_, transaction)| transaction.opened_ms <= before);
            let info = |(txn, transaction): (TxnId, &Transaction)| TransactionInfo {
                txn,
                transaction: transaction.clone(),
            };
            all.map(info).collect()
        });
        slow.unwrap_or_default()
    }

    /// Returns the transaction figures of a topic. From any thread.
    ///
    /// # Errors
    /// The topic's.
    pub async fn topic_figures(&self, topic: &TopicName) -> Result<TopicTransactionFigures, TopicError> {
        let home = self.broker.shared.placement.home(topic)?;
        let figures = self.broker.at_home(home, topic.clone(), |topic| async move {
            let figures = topic.transaction_figures();
            let open = figures
                .open
                .iter()
                .map(|(txn, first)| (*txn, topic.position_of(*first)));
            Ok::<_, TopicAt>(TopicTransactionFigures {
                stats: figures.stats,
                open: open.collect(),
                readable: figures
                    .readable_end
                    .0
                    .checked_sub(1)
                    .and_then(|last| topic.position_of(Ordinal(last))),
            })
        });
        figures.await.map_err(|TopicAt(error)| error)
    }

    /// Returns the pending acknowledgements of transactions in a subscription; `None`: there is no such subscription.
    /// From any thread.
    ///
    /// # Errors
    /// The topic's.
    pub async fn pending_figures(
        &self,
        topic: &TopicName,
        name: &SubscriptionName,
    ) -> Result<Option<(PendingStats, Vec<TxnId>)>, TopicError> {
        let home = self.broker.shared.placement.home(topic)?;
        let name = name.clone();
        let figures = self.broker.at_home(home, topic.clone(), move |topic| async move {
            Ok::<_, TopicAt>(topic.pending_figures(&name))
        });
        figures.await.map_err(|TopicAt(error)| error)
    }

    /// Returns the status of a transaction; `None`: it has ended, or never existed.
    #[must_use]
    pub fn status(&self, txn: TxnId) -> Option<TxnStatus> {
        self.get(txn).map(|found| found.transaction.status)
    }

    pub(crate) fn coordinators(&self) -> &Coordinators {
        &self.broker.shared.coordinators
    }

    pub(crate) fn log(&self, id: u64) -> Option<&CoordinatorLog> {
        self.logs.get(usize::try_from(id).ok()?)
    }

    pub(crate) fn lock_ends(&self) -> MutexGuard<'_, Ends> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<R>(&self, id: u64, act: impl FnOnce(&mut Coordinator) -> R) -> Result<R, TxnError> {
        self.coordinators()
            .with(id, act)
            .ok_or(TxnError::NoCoordinator(id))
    }

    /// Changes a coordinator, and waits until that is durable.
    async fn change<R>(
        &self,
        id: u64,
        change: impl FnOnce(&mut Coordinator, &mut Vec<Record>) -> Result<R, TxnError>,
    ) -> Result<R, TxnError> {
        let log = self.log(id).ok_or(TxnError::NoCoordinator(id))?;
        let (changed, ticket) = log.change(|records| {
            let changed = self.coordinators().with(id, |state| change(state, records));
            let changed = changed.unwrap_or(Err(TxnError::NoCoordinator(id)));
            changed.map_err(ChangeError::Txn)
        })?;
        let stored = durable(log, ticket).await;
        stored.map_err(|error| TxnError::Log(error.to_string()))?;
        Ok(changed)
    }
}

/// Queues a transaction as it is.
fn note(state: &Coordinator, txn: TxnId, records: &mut Vec<Record>) {
    if let Some(transaction) = state.get(txn) {
        records.push(Record::Noted {
            key: keys::live(txn.least),
            value: transaction.encode(),
        });
    }
}

/// Reason why a participant cannot be added to a transaction.
#[derive(Debug, thiserror::Error)]
pub enum AddError {
    /// The coordinator's reason.
    #[error(transparent)]
    Txn(#[from] TxnError),
    /// The topic's.
    #[error(transparent)]
    Topic(#[from] TopicError),
}

/// Error of [`Broker::at_home`] here.
#[derive(Debug)]
struct TopicAt(TopicError);

impl From<TopicError> for TopicAt {
    fn from(error: TopicError) -> Self {
        Self(error)
    }
}

impl From<Gone> for TopicAt {
    fn from(gone: Gone) -> Self {
        Self(gone.into())
    }
}
