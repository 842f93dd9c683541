//! Deleting a topic: decided at one moment, marked durably, then carried out to the end, over a crash if it must.
//!
//! 1. The name is held: a request for it from now on waits (`hold`).
//! 2. The mark is stored (`catalog::deleting`). If it is refused the topic is there as before.
//! 3. Producers and consumers are closed, the log and the cursors go, then schemas, policies and the record.
//!
//! What fails or crashes after step 2 is gone on with by [`Home::run_unfinished`], which begins with every start.

use std::rc::Rc;
use std::time::Duration;

use pharos_catalog::{self as catalog, Carriers, PartitionedTopicError, Unfinished, carriers_of};
use pharos_feed::ids::TopicId;
use pharos_mesh::{Ask, Placed};
use pharos_requests::error::{Gone, TopicError, chain};
use pharos_runtime::{clock, spawn_local};
use pharos_types::{Domain, TopicName};
use tokio::sync::oneshot;

use super::Home;
use super::hold::Held;

/// Initial and maximum interval at which unfinished deletions are resumed: the pause doubles while any of them fails.
const UNFINISHED_INTERVAL: Duration = Duration::from_secs(1);
const UNFINISHED_INTERVAL_MAX: Duration = Duration::from_secs(30);

/// Condition for the deletion of a loaded topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeleteIf {
    /// Its producers and consumers are closed.
    Always,
    /// No producer and no consumer is on it.
    Unused,
    /// Delete this topic only, if it has been unused for the time in the policies.
    Inactive(TopicId),
}

/// A topic that is held to be deleted. Dropped, it is there as before.
pub struct DeleteTurn {
    go: oneshot::Sender<()>,
    outcome: oneshot::Receiver<Result<(), TopicError>>,
}

impl DeleteTurn {
    /// Deletes it.
    ///
    /// # Errors
    /// `NotFound`: it was never there. `Metadata`, `Storage`: it is there as before, or will be gone once the stores do their part.
    pub async fn delete(self) -> Result<(), TopicError> {
        // Its holder is gone: the outcome says so.
        let _ = self.go.send(());
        self.outcome.await.map_err(|_| Gone)?
    }
}

impl Home {
    /// Deletes a topic: its clients are closed, its log, cursors and records go.
    ///
    /// # Errors
    /// `InUse`, `NotFound`: nothing was done. `Metadata`, `Storage`: it is there as before, or will be gone once the stores
    /// do their part.
    pub(crate) async fn delete_topic(
        self: &Rc<Self>,
        name: &TopicName,
        when: DeleteIf,
    ) -> Result<(), TopicError> {
        let held = self.hold_to_delete(name, when).await?;
        self.delete_held(held).await
    }

    /// Holds a topic that may be deleted, for a decision that follows.
    ///
    /// # Errors
    /// `InUse`.
    pub(crate) async fn hold_for_delete(
        self: &Rc<Self>,
        name: &TopicName,
        when: DeleteIf,
    ) -> Result<DeleteTurn, TopicError> {
        let held = self.hold_to_delete(name, when).await?;
        let ((go, decided), (done, outcome)) = (oneshot::channel(), oneshot::channel());
        let home = self.clone();
        spawn_local(async move {
            match decided.await {
                // The caller waits for the answer no more: the work is done all the same.
                Ok(()) => drop(done.send(home.delete_held(held).await)),
                Err(_) => held.reopen(),
            }
        });
        Ok(DeleteTurn { go, outcome })
    }

    pub(super) async fn hold_to_delete(
        self: &Rc<Self>,
        name: &TopicName,
        when: DeleteIf,
    ) -> Result<Held, TopicError> {
        let now_ms = clock::wall_ms();
        self.hold(name, |topic| {
            let may = match when {
                DeleteIf::Always => true,
                DeleteIf::Unused => !topic.is_in_use(),
                DeleteIf::Inactive(id) => topic.0.id() == id && topic.is_given_up(now_ms),
            };
            if may { Ok(()) } else { Err(TopicError::InUse) }
        })
        .await
    }

    async fn delete_held(self: &Rc<Self>, held: Held) -> Result<(), TopicError> {
        let catalog = &self.cx.shared.catalog;
        let name = held.name().clone();
        if let Err(error) = catalog.deletions().begin(&name).await {
            if !catalog.deletions().has(&name) {
                held.reopen();
            } else if let Some(topic) = held.topic() {
                // In doubt: nothing may be acknowledged that the mark would condemn.
                topic.close().await;
            }
            return Err(delete_error(error));
        }
        if let Some(topic) = held.topic() {
            topic.close_for_good().await;
        }
        if name.domain() == Domain::Persistent {
            let (engine, metadata) = self.stores_of(&name);
            let options = &self.cx.shared.options.managed_ledger;
            let (layout, condemned_from) = (options.layout, options.condemned_from);
            let was_carried = Carriers::of(catalog).were_there(&name);
            let carriers = carriers_of(&name).filter(|_| was_carried);
            // The topic first: carriers that live see that their source is gone.
            for name in [name.clone()].into_iter().chain(carriers) {
                let log_name = pharos_managed_ledger::storage_name(&name, layout);
                let engine = engine.clone();
                pharos_managed_ledger::delete_as(layout, condemned_from, &log_name, engine, &*metadata)
                    .await
                    .map(drop)
                    .map_err(|error| TopicError::Storage(chain(&error)))?;
            }
            let forgotten = Carriers::of(catalog).forget(held.name()).await;
            forgotten.map_err(delete_error)?;
            self.sweep_soon();
        }
        catalog.delete_topic(&name).await.map_err(delete_error)
    }

    /// Goes on with deletions that were begun, at the start and whenever one has failed, for as long as the shard lives.
    pub(crate) async fn run_unfinished(self: Rc<Self>) {
        let mut pause = UNFINISHED_INTERVAL;
        loop {
            let mut has_failed = false;
            for unfinished in self.cx.shared.catalog.deletions().unfinished() {
                has_failed |= !self.finish(unfinished).await;
            }
            pause = match has_failed {
                true => (pause * 2).min(UNFINISHED_INTERVAL_MAX),
                false => UNFINISHED_INTERVAL,
            };
            tokio::time::sleep(pause).await;
        }
    }

    /// Goes on with one; false when it fails again.
    async fn finish(self: &Rc<Self>, unfinished: Unfinished) -> bool {
        let catalog = &self.cx.shared.catalog;
        let (Unfinished::Topic(name) | Unfinished::Partitioned(name) | Unfinished::InDoubt(name)) =
            &unfinished;
        // One that was begun by a broker that is gone has no owner.
        if !matches!(self.cx.shared.placement.claim(name).await, Ok(Placed::Here(home)) if home == self.cx.id)
        {
            return true;
        }
        let outcome = match &unfinished {
            Unfinished::Topic(name) => self.delete_topic(name, DeleteIf::Always).await,
            Unfinished::Partitioned(name) => self.finish_partitioned(name).await,
            Unfinished::InDoubt(name) => {
                let settled = catalog.deletions().settle(name).await;
                settled.map_err(|error| TopicError::Metadata(error.to_string()))
            }
        };
        match outcome {
            Ok(()) => tracing::info!(topic = %name, "a deletion that was not finished is at its end"),
            // Another caller has finished it meanwhile.
            Err(TopicError::NotFound(_)) => {}
            Err(error) => {
                tracing::warn!(topic = %name, %error, "a deletion cannot be finished yet");
                return false;
            }
        }
        true
    }

    /// Deletes the partitions of a partitioned topic that is marked, and then its metadata.
    pub(crate) async fn finish_partitioned(&self, name: &TopicName) -> Result<(), TopicError> {
        let catalog = &self.cx.shared.catalog;
        let count = catalog
            .partitioned()
            .get(name)
            .map_or(0, |whole| whole.partitions);
        for partition in (0..count).map(|index| name.with_partition(index)) {
            if !catalog.has_record(&partition) {
                continue;
            }
            let home = self.cx.shared.placement.home(&partition)?;
            let delete = |answer| Ask::Delete {
                topic: partition,
                answer,
            };
            match self.cx.ask(home, delete).await? {
                Ok(()) | Err(TopicError::NotFound(_)) => {}
                Err(error) => return Err(error),
            }
        }
        catalog
            .partitioned()
            .delete(name)
            .await
            .map_err(partitioned_error)
    }
}

fn delete_error(error: catalog::TopicError) -> TopicError {
    match error {
        catalog::TopicError::TopicNotFound(name) => TopicError::NotFound(name.to_string()),
        catalog::TopicError::NamespaceNotFound | catalog::TopicError::TenantNotFound => {
            TopicError::NoNamespace(error.to_string())
        }
        catalog::TopicError::NotAllowed(reason) | catalog::TopicError::NotAPartition(reason) => {
            TopicError::NotAllowed(reason)
        }
        catalog::TopicError::Deleting(name) => TopicError::Closing(name.to_string()),
        catalog::TopicError::OtherCluster(other) => TopicError::NotAllowed(other.to_string()),
        catalog::TopicError::AlreadyExists | catalog::TopicError::Store(_) => {
            TopicError::Metadata(error.to_string())
        }
    }
}

pub(super) fn partitioned_error(error: PartitionedTopicError) -> TopicError {
    match error {
        PartitionedTopicError::NotPartitioned(name) => TopicError::NotFound(name.to_string()),
        error => TopicError::Metadata(error.to_string()),
    }
}
