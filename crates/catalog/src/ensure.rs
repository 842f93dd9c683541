//! May this topic be used, and is it made when it does not exist: what a producer, a consumer and a lookup ask first.

use std::collections::BTreeMap;

use pharos_types::TopicName;

use super::carriers::carrier_of;
use super::known::Homeless;
use super::known::Namespace;
use super::other_cluster::OtherCluster;
use super::policy::AutoTopicType;
use super::store::StoreError;
use super::topics::TopicError;
use super::{Catalog, PartitionedTopicError};

/// Reason why a topic may not be used.
#[derive(Clone, Debug, thiserror::Error)]
pub enum EnsureTopicError {
    /// The topic does not exist and may not be created.
    #[error("Topic {0} not found")]
    TopicNotFound(TopicName),
    /// No such namespace.
    #[error("Namespace not found")]
    NamespaceNotFound,
    /// No such tenant.
    #[error("Tenant not found")]
    TenantNotFound,
    /// Its namespace is not on this cluster.
    #[error(transparent)]
    OtherCluster(Box<OtherCluster>),
    /// The topic is being deleted; try again.
    #[error("Topic {0} is being deleted")]
    Deleting(TopicName),
    /// The name contradicts the partitions that are on record, or a limit is in the way.
    #[error("{0}")]
    NotAllowed(String),
    /// The store failed; try again.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<Homeless> for EnsureTopicError {
    fn from(missing: Homeless) -> Self {
        match missing {
            Homeless::Tenant => Self::TenantNotFound,
            Homeless::Namespace => Self::NamespaceNotFound,
            Homeless::OtherCluster(other) => Self::OtherCluster(other),
        }
    }
}

impl From<TopicError> for EnsureTopicError {
    fn from(error: TopicError) -> Self {
        match error {
            TopicError::TopicNotFound(name) => Self::TopicNotFound(name),
            TopicError::NamespaceNotFound => Self::NamespaceNotFound,
            TopicError::TenantNotFound => Self::TenantNotFound,
            TopicError::OtherCluster(other) => Self::OtherCluster(other),
            TopicError::Deleting(name) => Self::Deleting(name),
            TopicError::NotAPartition(reason) | TopicError::NotAllowed(reason) => Self::NotAllowed(reason),
            // Only a partitioned topic of that name can stand in the way of a topic that does not exist.
            error @ TopicError::AlreadyExists => Self::NotAllowed(error.to_string()),
            TopicError::Store(error) => Self::Store(error),
        }
    }
}

/// Reason why the number of partitions is unknown.
#[derive(Clone, Debug, thiserror::Error)]
pub enum PartitionedMetadataError {
    /// Neither such a topic nor the permission to make it.
    #[error("Topic {0} not found")]
    TopicNotFound(TopicName),
    /// No such namespace. On the wire this is TopicNotFound as well.
    #[error("Namespace not found")]
    NamespaceNotFound,
    /// No such tenant. On the wire this is TopicNotFound as well.
    #[error("Tenant not found")]
    TenantNotFound,
    /// Its namespace is not on this cluster.
    #[error(transparent)]
    OtherCluster(Box<OtherCluster>),
    /// A limit is in the way of making it.
    #[error("{0}")]
    NotAllowed(String),
    /// The store failed; try again.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<Homeless> for PartitionedMetadataError {
    fn from(missing: Homeless) -> Self {
        match missing {
            Homeless::Tenant => Self::TenantNotFound,
            Homeless::Namespace => Self::NamespaceNotFound,
            Homeless::OtherCluster(other) => Self::OtherCluster(other),
        }
    }
}

/// Kind of topic that automatic creation would create.
enum AutoCreation {
    Off,
    Topic,
    Partitioned(u32),
}

/// Record of a name.
enum Existence {
    /// A partitioned topic.
    Partitioned(u32),
    /// A topic, or a partition that need not exist yet.
    Plain,
    /// A partitioned topic that is being deleted, or a partition that its topic does not have.
    Gone,
    /// Nothing; what would be made.
    Missing(AutoCreation),
}

impl Catalog {
    /// Checks that a topic may be used, and makes it when it does not exist, `may_create` is set and automatic creation
    /// is allowed here. Says whether it was made now; then it has no ledgers yet.
    ///
    /// A carrier is there with its topic, and never made.
    ///
    /// A plain name is made a plain topic even where automatic topics are partitioned: the client has asked
    /// [`Catalog::partitioned_metadata`] before and was told that there are no partitions.
    ///
    /// # Errors
    /// [`EnsureTopicError`]. `NotAllowed`: a `-partition-N` name without such a partition on record, or the plain name
    /// of a partitioned topic; also when the topic exists.
    ///
    /// Cancel safety: the topic may or may not exist then; asking again is fine.
    pub async fn ensure_topic(&self, name: &TopicName, may_create: bool) -> Result<bool, EnsureTopicError> {
        if let Some((source, _)) = carrier_of(name) {
            let state = self.inner.known.read();
            let namespace = state.namespace(&source)?;
            return match namespace.has_topic(&source) {
                true => Ok(false),
                false => Err(EnsureTopicError::TopicNotFound(name.clone())),
            };
        }
        {
            let state = self.inner.known.read();
            let namespace = state.namespace_here(&self.inner.options, name)?;
            if namespace.is_deleting(name) {
                return Err(EnsureTopicError::Deleting(name.clone()));
            }
            if !self.inner.options.is_heartbeat(name.namespace()) {
                namespace
                    .check_partition(name)
                    .map_err(EnsureTopicError::NotAllowed)?;
                if namespace.partitioned.contains_key(name) {
                    let reason = format!("{name} is a partitioned topic; use its partitions");
                    return Err(EnsureTopicError::NotAllowed(reason));
                }
            }
            if namespace.has_topic(name) {
                return Ok(false);
            }
            // A partition on record belongs to a topic that exists; making it needs no permission.
            let is_on_record = name.partition().is_some() && namespace.partitioned.contains_key(&name.base());
            let off = matches!(self.auto_creation(namespace, name), AutoCreation::Off);
            if !may_create || (off && (!is_on_record || namespace.is_leaving())) {
                return Err(EnsureTopicError::TopicNotFound(name.clone()));
            }
        }
        Ok(self.create_record(name, BTreeMap::new()).await?)
    }

    /// Returns the number of partitions of a topic; 0 for one that is not partitioned, or that will be created
    /// without partitions when first used. With `auto_create` (`metadata_auto_creation_enabled`) a partitioned topic
    /// is created if that is the kind that automatic creation creates here; its partitions are created when first
    /// used.
    ///
    /// # Errors
    /// [`PartitionedMetadataError`].
    pub async fn partitioned_metadata(
        &self,
        name: &TopicName,
        auto_create: bool,
    ) -> Result<u32, PartitionedMetadataError> {
        let partitions = {
            let state = self.inner.known.read();
            let namespace = match state.namespace_here(&self.inner.options, name) {
                Ok(namespace) => namespace,
                // The client's lookup is then sent to the peer.
                Err(Homeless::OtherCluster(other)) if other.peer.is_some() => {
                    let known = state.namespace(name)?.partitioned.get(name);
                    return Ok(known.map_or(0, |whole| whole.value.partitions));
                }
                Err(missing) => return Err(missing.into()),
            };
            match self.look(namespace, name) {
                Existence::Partitioned(partitions) => return Ok(partitions),
                Existence::Plain => return Ok(0),
                Existence::Gone => return Err(PartitionedMetadataError::TopicNotFound(name.clone())),
                Existence::Missing(AutoCreation::Topic) if auto_create => return Ok(0),
                Existence::Missing(AutoCreation::Partitioned(partitions)) if auto_create => partitions,
                Existence::Missing(_) => return Err(PartitionedMetadataError::TopicNotFound(name.clone())),
            }
        };
        let made = self
            .partitioned()
            .create(name, partitions, BTreeMap::new(), false)
            .await;
        match made {
            Ok(()) => Ok(partitions),
            // Another caller was faster, maybe with another kind.
            Err(PartitionedTopicError::AlreadyExists) => {
                Ok(self.partitioned().get(name).map_or(0, |whole| whole.partitions))
            }
            Err(PartitionedTopicError::TenantNotFound) => Err(PartitionedMetadataError::TenantNotFound),
            Err(PartitionedTopicError::NamespaceNotFound) => Err(PartitionedMetadataError::NamespaceNotFound),
            Err(PartitionedTopicError::OtherCluster(other)) => {
                Err(PartitionedMetadataError::OtherCluster(other))
            }
            Err(PartitionedTopicError::Store(error)) => Err(error.into()),
            Err(error) => Err(PartitionedMetadataError::NotAllowed(error.to_string())),
        }
    }

    /// Checks that a LOOKUP of this name succeeds: the topic, or a partitioned topic of that name, exists or would be
    /// created on first use. Creates nothing.
    ///
    /// # Errors
    /// `TopicNotFound`, `NamespaceNotFound`, `TenantNotFound`; all of them TopicNotFound on the wire.
    pub fn check_lookup(&self, name: &TopicName) -> Result<(), PartitionedMetadataError> {
        if carrier_of(name).is_some() {
            return Err(PartitionedMetadataError::TopicNotFound(name.clone()));
        }
        let state = self.inner.known.read();
        let namespace = state.namespace_here(&self.inner.options, name)?;
        match self.look(namespace, name) {
            Existence::Gone | Existence::Missing(AutoCreation::Off) => {
                Err(PartitionedMetadataError::TopicNotFound(name.clone()))
            }
            Existence::Partitioned(_) | Existence::Plain | Existence::Missing(_) => Ok(()),
        }
    }

    fn look(&self, namespace: &Namespace, name: &TopicName) -> Existence {
        match namespace.partitioned.get(name) {
            Some(_) if namespace.is_deleting(name) => return Existence::Gone,
            Some(whole) => return Existence::Partitioned(whole.value.partitions),
            // One that is being deleted will be made again by the caller that is told so.
            None if namespace.has_record(name)
                && (name.partition().is_none() || !namespace.is_deleting(&name.base())) =>
            {
                return Existence::Plain;
            }
            None => {}
        }
        let is_partition = name.partition().is_some();
        if is_partition && namespace.partitioned.contains_key(&name.base()) {
            // It is one of the partitions, made when it is first used, or there is none of that number.
            return match namespace.check_partition(name) {
                Ok(()) => Existence::Plain,
                Err(_) => Existence::Gone,
            };
        }
        match self.auto_creation(namespace, name) {
            // The name of a partition is never made a partitioned topic.
            AutoCreation::Partitioned(_) if is_partition => Existence::Missing(AutoCreation::Topic),
            creation => Existence::Missing(creation),
        }
    }

    /// The broker's word on automatic creation, the namespace's over it, and over both that system topics are always
    /// made plain and nothing is made in a namespace that is going.
    fn auto_creation(&self, namespace: &Namespace, name: &TopicName) -> AutoCreation {
        if namespace.is_leaving() {
            return AutoCreation::Off;
        }
        if name.is_system() || self.inner.options.is_heartbeat(name.namespace()) {
            return AutoCreation::Topic;
        }
        let policies = self.levels_of_namespace(&namespace.policies.value);
        let creation = policies.auto_topic_creation();
        match (creation.allow, creation.kind) {
            (false, _) => AutoCreation::Off,
            (true, AutoTopicType::NonPartitioned) => AutoCreation::Topic,
            (true, AutoTopicType::Partitioned) => AutoCreation::Partitioned(creation.partitions),
        }
    }
}
