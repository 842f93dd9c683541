//! Topics that exist: one small record per persistent topic, one per partition.
//!
//! The record marks the topic as existing and carries its properties; its ledgers belong to the managed ledger.
//! Non-persistent topics exist while they are loaded and are only noted here.

use std::collections::BTreeMap;
use std::sync::Arc;

use pharos_types::{Domain, NamespaceName, TopicName};
use serde::{Deserialize, Serialize};

use super::carriers::carrier_of;
use super::known::{Facts, Homeless, KnownFacts, Namespace, PolicyEvent};
use super::other_cluster::OtherCluster;
use super::store::{Created, StoreError};
use super::{Catalog, keys};

/// Failure of an operation on a topic.
#[derive(Clone, Debug, thiserror::Error)]
pub enum TopicError {
    /// No such topic.
    #[error("Topic {0} not found")]
    TopicNotFound(TopicName),
    /// It, or a partitioned topic of that name, exists.
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
    /// A partition name that does not fit the partitioned topic.
    #[error("{0}")]
    NotAPartition(String),
    /// The topic is being deleted; try again.
    #[error("Topic {0} is being deleted")]
    Deleting(TopicName),
    /// A rule or limit is in the way.
    #[error("{0}")]
    NotAllowed(String),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Stored record of an existing topic.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopicRecord {
    /// Creation time, in milliseconds since 1970.
    pub created_ms: u64,
    /// Its deletion was begun: the next start that finds this goes on with it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub deleting: bool,
    /// Properties set by its creator.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub properties: BTreeMap<String, String>,
}

impl Catalog {
    /// True if the topic exists: a persistent one in the store, a non-persistent one on some shard. A partitioned
    /// topic as a whole is no topic; see [`Catalog::partitioned`].
    #[must_use]
    pub fn topic_exists(&self, name: &TopicName) -> bool {
        if let Some((source, _)) = carrier_of(name) {
            return self.topic_exists(&source);
        }
        let state = self.inner.known.read();
        let namespace = state.namespaces.get(name.namespace());
        namespace.is_some_and(|namespace| namespace.has_topic(name))
    }

    /// True if there is a topic of that name, also while it is being deleted.
    #[must_use]
    pub fn has_record(&self, name: &TopicName) -> bool {
        let state = self.inner.known.read();
        let namespace = state.namespaces.get(name.namespace());
        namespace.is_some_and(|namespace| namespace.has_record(name))
    }

    /// The record of a persistent topic.
    #[must_use]
    pub fn topic(&self, name: &TopicName) -> Option<Arc<TopicRecord>> {
        let state = self.inner.known.read();
        let namespace = state.namespaces.get(name.namespace())?;
        namespace.topics.get(name).map(|record| Arc::clone(&record.value))
    }

    /// Makes a topic on an operator's order, whatever the rules of automatic creation say. A non-persistent topic is
    /// only checked, it exists once it is loaded.
    ///
    /// # Errors
    /// [`TopicError`]; `NotAPartition` for a partition name that does not fit its partitioned topic.
    ///
    /// Cancel safety: the topic may or may not exist then; asking again is fine.
    pub async fn create_topic(
        &self,
        name: &TopicName,
        properties: BTreeMap<String, String>,
    ) -> Result<(), TopicError> {
        match self.create_record(name, properties).await? {
            true => Ok(()),
            false => Err(TopicError::AlreadyExists),
        }
    }

    /// Last step of deleting a topic: forgets it; its data and cursors must be gone already. What was granted on it goes with
    /// it and, unless it is a partition, its schemas and policies.
    ///
    /// # Errors
    /// `TopicNotFound`; `NotAllowed` for a partitioned topic; `Store`.
    pub async fn delete_topic(&self, name: &TopicName) -> Result<(), TopicError> {
        let key = keys::topic(name);
        let _guard = self.inner.facts.names.take(key.clone()).await;
        {
            let state = self.inner.known.read();
            let namespace = state.namespace(name)?;
            if namespace.partitioned.contains_key(name) {
                return Err(TopicError::NotAllowed(format!("{name} is a partitioned topic")));
            }
            if !namespace.has_record(name) {
                return Err(TopicError::TopicNotFound(name.clone()));
            }
        }
        if name.partition().is_none() {
            // Before the record: a crash in between must not leave them to a later topic of the same name.
            self.schemas().delete_all(name).await?;
            self.delete_topic_policies(name).await?;
        }
        self.delete_topic_grants(name).await?;
        if name.domain() == Domain::Persistent {
            self.inner.facts.delete(&key).await?;
        }
        self.inner.known.remove_topic(name);
        Ok(())
    }

    /// The properties of a topic, or of a partitioned topic as a whole.
    ///
    /// # Errors
    /// `TopicNotFound`.
    pub fn topic_properties(&self, name: &TopicName) -> Result<BTreeMap<String, String>, TopicError> {
        let state = self.inner.known.read();
        let namespace = state.namespace(name)?;
        if let Some(whole) = namespace.partitioned.get(name) {
            return Ok(whole.value.properties.clone().unwrap_or_default());
        }
        match namespace.topics.get(name) {
            Some(record) => Ok(record.value.properties.clone()),
            None => Err(TopicError::TopicNotFound(name.clone())),
        }
    }

    /// Adds or replaces the properties in `set` and removes those in `remove`; the others stay.
    ///
    /// # Errors
    /// `TopicNotFound`, `Store`.
    pub async fn update_topic_properties(
        &self,
        name: &TopicName,
        set: BTreeMap<String, String>,
        remove: &[String],
    ) -> Result<(), TopicError> {
        let change = |properties: &mut BTreeMap<String, String>| {
            properties.extend(set.clone());
            properties.retain(|property, _| !remove.contains(property));
        };
        let key = keys::topic(name);
        let _guard = self.inner.facts.names.take(key.clone()).await;
        if self.partitioned().get(name).is_some() {
            self.partitioned().change_properties(name, change).await?;
            self.inner.known.tell_policies(PolicyEvent::Topic(name.clone()));
            return Ok(());
        }
        let known = {
            let state = self.inner.known.read();
            state.namespace(name)?.topics.get(name).cloned()
        };
        let missing = || TopicError::TopicNotFound(name.clone());
        let record = self
            .inner
            .facts
            .update(&key, known.ok_or_else(missing)?, missing, |record| {
                let mut record = record.clone();
                change(&mut record.properties);
                Ok::<_, TopicError>(record)
            })
            .await?;
        if let Some(known) = self.inner.known.write().topic_mut(name) {
            *known = record;
        }
        self.inner.known.tell_policies(PolicyEvent::Topic(name.clone()));
        Ok(())
    }

    /// Notes that a non-persistent topic was unloaded; from now on it does not exist.
    pub fn note_unloaded(&self, name: &TopicName) {
        if name.domain() == Domain::NonPersistent {
            self.inner.known.remove_topic(name);
        }
    }

    /// Makes the record of a topic unless it exists. Says whether it is new.
    ///
    /// Rules of automatic creation are the caller's; everything else that may speak against it is checked here.
    pub(super) async fn create_record(
        &self,
        name: &TopicName,
        properties: BTreeMap<String, String>,
    ) -> Result<bool, TopicError> {
        let key = keys::topic(name);
        let _guard = self.inner.facts.names.take(key.clone()).await;
        let Some(_announced) = self.announce(name)? else {
            return Ok(false);
        };
        if name.domain() == Domain::NonPersistent {
            let mut state = self.inner.known.write();
            if let Some(namespace) = state.namespaces.get_mut(name.namespace()) {
                namespace.loaded.insert(name.clone());
            }
            return Ok(true);
        }
        let record = TopicRecord {
            created_ms: pharos_runtime::clock::wall_ms(),
            deleting: false,
            properties,
        };
        let (record, is_new) = match self.inner.facts.create(&key, record).await? {
            Created::New(record) => (record, true),
            Created::Found(record) => (record, false),
        };
        let exempt = self.inner.options.is_heartbeat(name.namespace());
        if self.inner.known.insert_topic(name, record, exempt) {
            return Ok(is_new);
        }
        // The partitioned topic went away while its partition was being written.
        self.inner.facts.delete(&key).await?;
        Err(TopicError::Deleting(name.clone()))
    }

    /// Checks that `name` may be made and holds its namespace; `None` when it exists.
    fn announce(&self, name: &TopicName) -> Result<Option<Announced<'_>>, TopicError> {
        let exempt = self.inner.options.is_heartbeat(name.namespace());
        let mut state = self.inner.known.write();
        let is_full = has_enough_topics(
            self.options().max_topics_per_tenant,
            &state,
            name.namespace().tenant(),
        );
        state.namespace_here(&self.inner.options, name)?;
        let namespace = state.namespace_mut(name)?;
        if namespace.is_deleting(name) {
            return Err(TopicError::Deleting(name.clone()));
        }
        if namespace.has_topic(name) {
            return Ok(None);
        }
        if namespace.partitioned.contains_key(name) {
            return Err(TopicError::AlreadyExists);
        }
        if !exempt {
            namespace
                .check_partition(name)
                .map_err(TopicError::NotAPartition)?;
        }
        if namespace.is_leaving() {
            return Err(TopicError::NotAllowed("Namespace is being deleted".into()));
        }
        if !name.is_system() {
            if is_full {
                let reason = "Exceed maximum number of topics of the tenant (limits.max_topics_per_tenant).";
                return Err(TopicError::NotAllowed(reason.into()));
            }
            self.check_room(namespace)?;
        }
        namespace.creating += 1;
        Ok(Some(Announced {
            known: &self.inner.known,
            namespace: name.namespace().clone(),
        }))
    }

    /// Keeps the namespace of `name` from being deleted until the answer is dropped.
    pub(super) fn hold_namespace(&self, name: &TopicName) -> Result<Announced<'_>, TopicError> {
        let mut state = self.inner.known.write();
        state.namespace_here(&self.inner.options, name)?;
        let namespace = state.namespace_mut(name)?;
        if namespace.is_leaving() {
            return Err(TopicError::NotAllowed("Namespace is being deleted".into()));
        }
        namespace.creating += 1;
        Ok(Announced {
            known: &self.inner.known,
            namespace: name.namespace().clone(),
        })
    }

    fn check_room(&self, namespace: &Namespace) -> Result<(), TopicError> {
        let policies = self.levels_of_namespace(&namespace.policies.value);
        let limit = policies.max_topics_per_namespace();
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        // Counting leaves out system topics and walks all names, so it is only done near the limit.
        if limit == 0 || namespace.topics.len() + namespace.creating < limit {
            return Ok(());
        }
        let topics = namespace.topics.keys().filter(|topic| !topic.is_system());
        if topics.count() + namespace.creating < limit {
            return Ok(());
        }
        let reason = "Exceed maximum number of topics in namespace.";
        Err(TopicError::NotAllowed(reason.into()))
    }
}

/// Holds a namespace while a topic is being made in it.
pub(super) struct Announced<'a> {
    known: &'a KnownFacts,
    namespace: NamespaceName,
}

impl Drop for Announced<'_> {
    fn drop(&mut self) {
        if let Some(namespace) = self.known.write().namespaces.get_mut(&self.namespace) {
            namespace.creating = namespace.creating.saturating_sub(1);
        }
    }
}

impl From<Homeless> for TopicError {
    fn from(missing: Homeless) -> Self {
        match missing {
            Homeless::Tenant => Self::TenantNotFound,
            Homeless::Namespace => Self::NamespaceNotFound,
            Homeless::OtherCluster(other) => Self::OtherCluster(other),
        }
    }
}

/// True if a tenant has reached its topic limit, including topics being created and system topics.
fn has_enough_topics(most: u32, state: &Facts, tenant: &str) -> bool {
    if most == 0 {
        return false;
    }
    let topics: usize = state
        .namespaces_of(tenant)
        .map(|namespace| namespace.topics.len() + namespace.loaded.len() + namespace.creating)
        .sum();
    topics >= usize::try_from(most).unwrap_or(usize::MAX)
}
