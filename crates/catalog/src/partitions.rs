//! Partitioned topics: how many partitions, growing, going.
//!
//! The base name owns the metadata; every partition is a topic of its own. Base and plain topic share one name lock,
//! so that a name is never both.
//!
//! Deletion has two steps, because the partitions' data goes in between: [`PartitionedTopics::begin_delete`] marks the
//! metadata (no partition can be loaded or made any more), [`PartitionedTopics::delete`] forgets it. A crash in
//! between leaves the mark, and the next start finishes (`deleting`).

use std::collections::BTreeMap;
use std::pin::Pin;
use std::task::Poll;

use pharos_admin_api::PartitionedTopicMetadata;
use pharos_types::{Domain, NamespaceName, TopicName};

use super::known::Homeless;
use super::known::Record;
use super::other_cluster::OtherCluster;
use super::store::{Created, StoreError};
use super::topics::TopicError;
use super::{Catalog, keys};

/// Number of partition records in flight at once; enough to fill a group commit of the store.
const BATCH: usize = 256;

/// The most partitions when the options set no limit: every one is a topic of its own.
const PARTITIONS_MAX: u32 = 100_000;

/// Failure of an operation on a partitioned topic.
#[derive(Clone, Debug, thiserror::Error)]
pub enum PartitionedTopicError {
    /// No partitioned topic of that name.
    #[error("Partitioned Topic not found: {0} has zero partitions")]
    NotPartitioned(TopicName),
    /// It, or a plain topic of that name, exists.
    #[error("This topic already exists")]
    AlreadyExists,
    /// No such namespace.
    #[error("Namespace not found")]
    NamespaceNotFound,
    /// No such tenant.
    #[error("Tenant not found")]
    TenantNotFound,
    /// Its namespace is not on this cluster.
    #[error(transparent)]
    OtherCluster(Box<OtherCluster>),
    /// Zero, or more than the limit.
    #[error("Number of partitions should be between 1 and {max}")]
    OutOfRange {
        /// The limit.
        max: u32,
    },
    /// Fewer than there are; partitions never go away.
    #[error("Desired partitions {wanted} can't be less than the current partitions {current}")]
    Fewer {
        /// Current number of partitions.
        current: u32,
        /// Requested number of partitions.
        wanted: u32,
    },
    /// The topic is being deleted; try again.
    #[error("Topic {0} is being deleted")]
    Deleting(TopicName),
    /// The name is itself that of a partition, or the namespace or the topic is on its way out.
    #[error("{0}")]
    NotAllowed(String),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<Homeless> for PartitionedTopicError {
    fn from(missing: Homeless) -> Self {
        match missing {
            Homeless::Tenant => Self::TenantNotFound,
            Homeless::Namespace => Self::NamespaceNotFound,
            Homeless::OtherCluster(other) => Self::OtherCluster(other),
        }
    }
}

impl From<TopicError> for PartitionedTopicError {
    fn from(error: TopicError) -> Self {
        match error {
            TopicError::NamespaceNotFound => Self::NamespaceNotFound,
            TopicError::TenantNotFound => Self::TenantNotFound,
            TopicError::OtherCluster(other) => Self::OtherCluster(other),
            TopicError::AlreadyExists => Self::AlreadyExists,
            TopicError::Deleting(name) => Self::Deleting(name),
            TopicError::Store(error) => Self::Store(error),
            error @ (TopicError::TopicNotFound(_)
            | TopicError::NotAPartition(_)
            | TopicError::NotAllowed(_)) => Self::NotAllowed(error.to_string()),
        }
    }
}

/// The partitioned topics.
#[derive(Clone, Copy)]
pub struct PartitionedTopics<'a> {
    pub(super) catalog: &'a Catalog,
}

impl PartitionedTopics<'_> {
    /// Returns the record of a partitioned topic, also while it is being deleted.
    #[must_use]
    pub fn get(self, name: &TopicName) -> Option<PartitionedTopicMetadata> {
        self.catalog
            .inner
            .known
            .partitioned(name)
            .map(|record| (*record.value).clone())
    }

    /// Base names of the partitioned topics of a namespace, sorted.
    #[must_use]
    pub fn names(self, namespace: &NamespaceName, domain: Domain) -> Vec<TopicName> {
        let state = self.catalog.inner.known.read();
        let Some(namespace) = state.namespaces.get(namespace) else {
            return Vec::new();
        };
        let names = namespace.partitioned.keys();
        names
            .filter(|name| name.domain() == domain && !namespace.is_deleting(name))
            .cloned()
            .collect()
    }

    /// Partitions on record that do not exist as topics.
    ///
    /// # Errors
    /// `NotPartitioned`.
    pub fn missing(self, name: &TopicName) -> Result<Vec<TopicName>, PartitionedTopicError> {
        let whole = self
            .get(name)
            .ok_or_else(|| PartitionedTopicError::NotPartitioned(name.clone()))?;
        let partitions = (0..whole.partitions).map(|index| name.with_partition(index));
        Ok(partitions
            .filter(|name| !self.catalog.topic_exists(name))
            .collect())
    }

    /// Makes a partitioned topic, and its partitions when `with_partitions` is set; otherwise they are made when they
    /// are first used.
    ///
    /// # Errors
    /// [`PartitionedTopicError`]. After `Store` the metadata may be there without all partitions: see
    /// [`PartitionedTopics::create_missing`].
    pub async fn create(
        self,
        name: &TopicName,
        partitions: u32,
        properties: BTreeMap<String, String>,
        with_partitions: bool,
    ) -> Result<(), PartitionedTopicError> {
        self.check_count(partitions)?;
        if name.partition().is_some() {
            let reason = format!("{name} is the name of a partition");
            return Err(PartitionedTopicError::NotAllowed(reason));
        }
        check_last(name, partitions)?;
        let _guard = self.catalog.inner.facts.names.take(keys::topic(name)).await;
        // As a topic does, it holds the namespace until it is in the copy.
        let _held = self.catalog.hold_namespace(name)?;
        {
            let state = self.catalog.inner.known.read();
            let namespace = state.namespace(name)?;
            if namespace.is_deleting(name) {
                return Err(PartitionedTopicError::Deleting(name.clone()));
            }
            if namespace.has_topic(name) || namespace.partitioned.contains_key(name) {
                return Err(PartitionedTopicError::AlreadyExists);
            }
        }
        let metadata = PartitionedTopicMetadata {
            partitions,
            deleted: false,
            properties: (!properties.is_empty()).then_some(properties),
        };
        let (record, outcome) = match self
            .catalog
            .inner
            .facts
            .create(&keys::partitioned(name), metadata)
            .await?
        {
            Created::New(record) => (record, Ok(())),
            Created::Found(record) => (record, Err(PartitionedTopicError::AlreadyExists)),
        };
        self.catalog.inner.known.put_partitioned(name, record);
        outcome?;
        if with_partitions {
            self.create_missing(name).await?;
        }
        Ok(())
    }

    /// Makes the partitions on record that do not exist. Those of a non-persistent topic exist once they are loaded.
    ///
    /// # Errors
    /// `NotPartitioned`, `NotAllowed` when a limit is hit, `Store`; some partitions may have been made.
    pub async fn create_missing(self, name: &TopicName) -> Result<(), PartitionedTopicError> {
        if name.domain() == Domain::NonPersistent {
            return Ok(());
        }
        let missing = self.missing(name)?;
        for batch in missing.chunks(BATCH) {
            let creations = batch
                .iter()
                .map(|name| self.catalog.create_record(name, BTreeMap::new()));
            for outcome in join(creations).await {
                outcome?;
            }
        }
        Ok(())
    }

    /// Grows a partitioned topic to `partitions` and makes the new ones. The same number again is fine.
    ///
    /// So that no message is missed, subscriptions must be on the new partitions' ledgers before this is called: from
    /// here on producers may use them.
    ///
    /// # Errors
    /// `NotPartitioned`, `OutOfRange`, `Fewer`, `NotAllowed` while it is being deleted, `Store`.
    pub async fn grow(self, name: &TopicName, partitions: u32) -> Result<(), PartitionedTopicError> {
        self.check_count(partitions)?;
        check_last(name, partitions)?;
        let _guard = self.catalog.inner.facts.names.take(keys::topic(name)).await;
        self.change(name, |whole| {
            if whole.deleted {
                return Err(PartitionedTopicError::Deleting(name.clone()));
            }
            if partitions < whole.partitions {
                return Err(PartitionedTopicError::Fewer {
                    current: whole.partitions,
                    wanted: partitions,
                });
            }
            whole.partitions = partitions;
            Ok(())
        })
        .await?;
        self.create_missing(name).await
    }

    /// First step of deletion: from here on its partitions can be neither loaded nor made. Repeatable. Says how many
    /// partitions there are.
    ///
    /// # Errors
    /// `NotPartitioned`; `Store`, after which it is as it was, or [in doubt](crate::Deletions::has).
    pub async fn begin_delete(self, name: &TopicName) -> Result<u32, PartitionedTopicError> {
        let _guard = self.catalog.inner.facts.names.take(keys::topic(name)).await;
        self.mark_deleted(name, |_| true)
            .await
            .map(Option::unwrap_or_default)
    }

    /// As [`Self::begin_delete`], unless a partition exists. Says whether it was begun.
    ///
    /// # Errors
    /// As there.
    pub async fn begin_delete_unmade(self, name: &TopicName) -> Result<bool, PartitionedTopicError> {
        let _guard = self.catalog.inner.facts.names.take(keys::topic(name)).await;
        // From here on none can be made, and one that is being made is given up.
        let is_unmade =
            |partitions| !(0..partitions).any(|index| self.catalog.has_record(&name.with_partition(index)));
        Ok(self.mark_deleted(name, is_unmade).await?.is_some())
    }

    /// Last step of deletion: forgets the metadata, what is left of the partitions' records, the schemas and the
    /// policies. The partitions' data must be gone already.
    ///
    /// # Errors
    /// `NotPartitioned`, `Store`; then it is still marked and this can be called again.
    pub async fn delete(self, name: &TopicName) -> Result<(), PartitionedTopicError> {
        let _guard = self.catalog.inner.facts.names.take(keys::topic(name)).await;
        let partitions = self.mark_deleted(name, |_| true).await?.unwrap_or_default();
        let names: Vec<TopicName> = (0..partitions)
            .map(|index| name.with_partition(index))
            .filter(|name| self.catalog.has_record(name))
            .collect();
        for batch in names.chunks(BATCH) {
            let deletions = batch.iter().map(|name| self.catalog.delete_topic(name));
            for outcome in join(deletions).await {
                match outcome {
                    Ok(()) | Err(TopicError::TopicNotFound(_)) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        self.catalog.schemas().delete_all(name).await?;
        self.catalog.delete_topic_policies(name).await?;
        self.catalog.delete_topic_grants(name).await?;
        self.catalog.inner.facts.delete(&keys::partitioned(name)).await?;
        if let Some(namespace) = self
            .catalog
            .inner
            .known
            .write()
            .namespaces
            .get_mut(name.namespace())
        {
            namespace.partitioned.remove(name);
            namespace.deletions.remove(name);
        }
        Ok(())
    }

    /// Closes the name to every client, and marks it if `may`, asked with the number of partitions, says so. `None` when
    /// it does not. The name is held by the caller.
    async fn mark_deleted(
        self,
        name: &TopicName,
        may: impl Fn(u32) -> bool,
    ) -> Result<Option<u32>, PartitionedTopicError> {
        let known = self
            .get(name)
            .ok_or_else(|| PartitionedTopicError::NotPartitioned(name.clone()))?;
        if known.deleted {
            return Ok(Some(known.partitions));
        }
        let asked = self.catalog.inner.known.ask_deletion(name);
        if !may(known.partitions) {
            std::mem::forget(asked);
            self.catalog.inner.known.end_deletion(name);
            return Ok(None);
        }
        let marked = self.change(name, |whole| {
            whole.deleted = true;
            Ok::<_, PartitionedTopicError>(())
        });
        match marked.await {
            Ok(record) => {
                std::mem::forget(asked);
                self.catalog.inner.known.marked(name);
                Ok(Some(record.value.partitions))
            }
            Err(error) => {
                self.catalog.deletions().unask(name, asked).await;
                Err(error)
            }
        }
    }

    /// Changes the properties of a partitioned topic. Its name is held by the caller.
    pub(super) async fn change_properties(
        self,
        name: &TopicName,
        change: impl Fn(&mut BTreeMap<String, String>),
    ) -> Result<(), TopicError> {
        let changed = self.change(name, |whole| {
            let mut properties = whole.properties.take().unwrap_or_default();
            change(&mut properties);
            whole.properties = (!properties.is_empty()).then_some(properties);
            Ok::<_, PartitionedTopicError>(())
        });
        match changed.await {
            Ok(_) => Ok(()),
            Err(PartitionedTopicError::Store(error)) => Err(error.into()),
            Err(_) => Err(TopicError::TopicNotFound(name.clone())),
        }
    }

    /// Rewrites the metadata. The name is held by the caller.
    async fn change(
        self,
        name: &TopicName,
        change: impl Fn(&mut PartitionedTopicMetadata) -> Result<(), PartitionedTopicError>,
    ) -> Result<Record<PartitionedTopicMetadata>, PartitionedTopicError> {
        let missing = || PartitionedTopicError::NotPartitioned(name.clone());
        let known = self.catalog.inner.known.partitioned(name).ok_or_else(missing)?;
        let record = self
            .catalog
            .inner
            .facts
            .update(&keys::partitioned(name), known, missing, |whole| {
                let mut whole: PartitionedTopicMetadata = whole.clone();
                change(&mut whole)?;
                Ok(whole)
            })
            .await?;
        self.catalog.inner.known.put_partitioned(name, record.clone());
        Ok(record)
    }

    fn check_count(self, partitions: u32) -> Result<(), PartitionedTopicError> {
        let max = match self.catalog.inner.options.max_num_partitions {
            0 => PARTITIONS_MAX,
            max => max.min(PARTITIONS_MAX),
        };
        if (1..=max).contains(&partitions) {
            Ok(())
        } else {
            Err(PartitionedTopicError::OutOfRange { max })
        }
    }
}

/// Checks that the name of the last partition, the longest one, can be stored.
fn check_last(name: &TopicName, partitions: u32) -> Result<(), PartitionedTopicError> {
    let last = name.with_partition(partitions.saturating_sub(1));
    last.check_stored()
        .map_err(|error| PartitionedTopicError::NotAllowed(error.to_string()))
}

/// Polls a batch of futures until all are done; the outcomes in their order. Any wake polls all that are left, which
/// is fine for a batch that the store commits as one.
async fn join<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let mut futures: Vec<Pin<Box<F>>> = futures.into_iter().map(Box::pin).collect();
    let mut outcomes: Vec<Option<F::Output>> = futures.iter().map(|_| None).collect();
    std::future::poll_fn(|context| {
        for (future, outcome) in futures.iter_mut().zip(&mut outcomes) {
            if outcome.is_none()
                && let Poll::Ready(value) = future.as_mut().poll(context)
            {
                *outcome = Some(value);
            }
        }
        if outcomes.iter().all(Option::is_some) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
    outcomes.into_iter().flatten().collect()
}
