//! The log of one coordinator.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pharos_ledger::{Durability, LedgerEngine};
use pharos_managed_ledger::cursor_log::{CommitTicket, CursorLogOptions, Record, RollEvent};
use pharos_managed_ledger::{
    CommitError, CursorLog, ManagedLedger, OpenError, OpenMode, Options, storage_name,
};
use pharos_metadata::MetadataStore;
use pharos_runtime::{clock, spawn_local};
use pharos_transactions::{Coordinator, Transaction, keys};
use pharos_types::{Domain, TopicName, varint};

/// Interval between checks of a log for which the engine has no room at the moment.
const CATCH_UP_INTERVAL: Duration = Duration::from_millis(200);

/// Returns the topic of a coordinator's log, with Pulsar's name.
pub(crate) fn topic(coordinator: u64) -> Option<TopicName> {
    format!("persistent://pulsar/system/__transaction_log_{coordinator}")
        .parse()
        .ok()
}

/// A log, to be shared: it is locked for one group of records at a time.
#[derive(Clone)]
pub(crate) struct CoordinatorLog(Arc<Mutex<CursorLog>>);

impl CoordinatorLog {
    /// Opens the log of a coordinator, and restores that from it.
    ///
    /// # Errors
    /// [`OpenError`]; or a record that does not parse, as its text.
    pub(crate) async fn open(
        id: u64,
        engine: Arc<dyn LedgerEngine>,
        metadata: Arc<dyn MetadataStore>,
        options: &Options,
    ) -> Result<(Self, Coordinator), OpenLogError> {
        let name = topic(id).ok_or(OpenLogError::Name)?;
        let options = Options {
            durability: Durability::Sync,
            ..options.of(Domain::Persistent)
        };
        let name = storage_name(&name, options.layout);
        let now_ms = clock::wall_ms();
        let ledger = ManagedLedger::open(&name, engine, metadata, options, OpenMode::Create, now_ms).await?;
        let log = CursorLog::open(&ledger, CursorLogOptions::default(), now_ms).await?;
        let mut reserved = 0;
        if let Some((_, mut value)) = log.notes(keys::RESERVED).next() {
            reserved = varint::take(&mut value).map_err(|error| OpenLogError::Record(error.to_string()))?;
        }
        let mut coordinator = Coordinator::new(id, reserved);
        for (key, value) in log.notes(keys::LIVE) {
            let transaction =
                Transaction::decode(value).map_err(|error| OpenLogError::Record(error.to_string()))?;
            let least = keys::live_of(key).ok_or_else(|| OpenLogError::Record("key".to_owned()))?;
            coordinator.restore(least, transaction);
        }
        Ok((Self(Arc::new(Mutex::new(log))), coordinator))
    }

    fn lock(&self) -> MutexGuard<'_, CursorLog> {
        // What panicked with it queued a whole record or none.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the coordinator and queues what that means, as one; then commits. On a shard.
    ///
    /// # Errors
    /// What `change` answers; the log's reason not to take it, as its text.
    pub(crate) fn change<R, E: From<LogFailed>>(
        &self,
        change: impl FnOnce(&mut Vec<Record>) -> Result<R, E>,
    ) -> Result<(R, CommitTicket), E> {
        let changed = {
            let mut log = self.lock();
            let mut records = Vec::new();
            let changed = change(&mut records)?;
            for record in records {
                log.queue(record).map_err(|error| LogFailed(error.to_string()))?;
            }
            (changed, log.commit())
        };
        self.maintain();
        Ok(changed)
    }

    /// Commits what is queued again. On a shard.
    pub(crate) fn commit(&self) -> CommitTicket {
        let ticket = self.lock().commit();
        self.maintain();
        ticket
    }

    /// Starts whatever the log wants done, and comes again while it waits for the engine. On a shard.
    pub(crate) fn maintain(&self) {
        loop {
            let step = self.lock().take_maintenance(clock::wall_ms());
            let Some(step) = step else { break };
            let log = self.clone();
            spawn_local(async move {
                let done = step.await;
                let event = log.lock().on_maintenance(done, clock::wall_ms());
                match event {
                    RollEvent::Nothing | RollEvent::Rolled => {}
                    RollEvent::Retrying(error) => {
                        tracing::warn!(%error, "rolling a coordinator's log is tried again");
                    }
                    RollEvent::Failed(error) => tracing::error!(%error, "a coordinator's log has failed"),
                }
                log.maintain();
            });
        }
    }

    /// Comes back to the log if the engine had no room for it. On a shard.
    pub(crate) fn catch_up(&self) {
        let is_behind = self.lock().is_behind();
        if is_behind {
            self.maintain();
        }
    }
}

/// The log did not take a record.
#[derive(Debug)]
pub(crate) struct LogFailed(pub(crate) String);

/// Reason why a coordinator's log could not be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenLogError {
    /// The number makes no name.
    #[error("its name is none")]
    Name,
    /// The store's reason.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A stored record does not parse.
    #[error("malformed record: {0}")]
    Record(String),
}

/// Waits for a commit; tried again while what is in the way passes.
pub(crate) async fn durable(log: &CoordinatorLog, mut ticket: CommitTicket) -> Result<(), CommitError> {
    loop {
        match ticket.durable().await {
            Err(error) if error.is_transient() => {
                tokio::time::sleep(CATCH_UP_INTERVAL).await;
                ticket = log.commit();
            }
            outcome => return outcome,
        }
    }
}
