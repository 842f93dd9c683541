//! Opening the coordinators at the start of a broker.

use std::sync::Arc;

use pharos_broker::Broker;
use pharos_broker::ids::ShardId;
use pharos_managed_ledger::{INFO_PREFIX, storage_name};
use pharos_metadata::{MetadataLayout, MetadataStore};
use pharos_runtime::spawn_local;
use pharos_transactions::{Coordinator, CoordinatorLimits};

use crate::log::{CoordinatorLog, topic};
use crate::transactions::Transactions;

/// Reason why the coordinators could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenTransactionsError {
    /// The log of a coordinator failed.
    #[error("cannot open the log of transaction coordinator {coordinator}: {reason}")]
    Log {
        /// Number of the coordinator.
        coordinator: u64,
        /// Reason of the failure.
        reason: String,
    },
    /// The broker stops.
    #[error("the broker is stopping")]
    Stopping,
}

/// Returns the number of coordinators that have a log: they must be opened even if transactions are off, for they may
/// have some to end.
///
/// # Errors
/// The store's reason.
pub async fn stored_coordinators(metadata: &dyn MetadataStore) -> Result<u32, String> {
    let mut count = 0;
    while let Some(name) = topic(u64::from(count)) {
        let key = format!("{INFO_PREFIX}{}", storage_name(&name, MetadataLayout::Pharos));
        let found = metadata.get(&key).await.map_err(|error| error.to_string())?;
        if found.is_none() {
            break;
        }
        count += 1;
    }
    Ok(count)
}

impl Transactions {
    /// Opens the coordinators of a broker, as many as its options say, and goes on with what they had begun to end.
    ///
    /// `serving`: how many of them clients may use, 0: transactions are off. The others end what they have.
    ///
    /// # Errors
    /// [`OpenTransactionsError`].
    pub async fn open(
        broker: &Broker,
        serving: u32,
        limits: CoordinatorLimits,
    ) -> Result<Arc<Self>, OpenTransactionsError> {
        let mut logs = Vec::new();
        for id in 0..broker.shared.coordinators.count() {
            let shared = broker.shared.clone();
            let opened = broker.call(home_of(broker, id), move |_| async move {
                let (engine, metadata) = (shared.engine.clone(), shared.metadata.clone());
                let opened = CoordinatorLog::open(id, engine, metadata, &shared.options.managed_ledger).await;
                opened.map_err(|error| error.to_string())
            });
            let opened = opened.await.map_err(|_| OpenTransactionsError::Stopping)?;
            let (log, coordinator) = opened.map_err(|reason| OpenTransactionsError::Log {
                coordinator: id,
                reason,
            })?;
            logs.push(log);
            broker.shared.coordinators.open(coordinator);
        }
        let transactions = Arc::new(Self::new(broker.clone(), u64::from(serving), limits, logs));
        for shard in 0..broker.shard_count() {
            let here = |id: &u64| home_of(broker, *id).index() == shard;
            let ids: Vec<u64> = (0..broker.shared.coordinators.count()).filter(here).collect();
            if !ids.is_empty() {
                let transactions = transactions.clone();
                broker.run_on(shard, move |_| transactions.run(ids)).await;
            }
        }
        Ok(transactions)
    }

    /// Resumes the ending transactions of a shard's coordinators and starts their background tasks, on that shard.
    fn run(self: &Arc<Self>, ids: Vec<u64>) {
        for id in &ids {
            let ending = self
                .coordinators()
                .with(*id, |coordinator: &mut Coordinator| coordinator.ending());
            for txn in ending.into_iter().flatten() {
                tracing::info!(%txn, "going on with the end of a transaction");
                spawn_local(self.clone().finish(txn));
            }
        }
        spawn_local(self.clone().look_after(ids));
    }
}

/// The shard where a coordinator's work is done.
pub(crate) fn home_of(broker: &Broker, coordinator: u64) -> ShardId {
    let shards = broker.shard_count().max(1) as u64;
    ShardId(u16::try_from(coordinator % shards).unwrap_or(0))
}
