//! Clusters: names, and where those are that messages go to.

use pharos_admin_api::ClusterData;
use pharos_types::NamespaceName;

use super::store::{Created, StoreError};
use super::{Catalog, PolicyEvent, keys};

/// Failure of an operation on a cluster.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ClusterError {
    /// No such cluster.
    #[error("Cluster does not exist")]
    NotFound,
    /// There is one of that name.
    #[error("Cluster already exists")]
    AlreadyExists,
    /// The name has a foreign character.
    #[error("Cluster name is not valid")]
    InvalidName,
    /// Tenants or namespaces still use it.
    #[error("Cluster not empty")]
    NotEmpty,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The clusters.
#[derive(Clone, Copy)]
pub struct Clusters<'a> {
    pub(super) catalog: &'a Catalog,
}

impl Clusters<'_> {
    /// Names of all clusters, sorted.
    #[must_use]
    pub fn names(self) -> Vec<String> {
        self.catalog.inner.known.read().clusters.keys().cloned().collect()
    }

    /// Returns the data of a cluster.
    #[must_use]
    pub fn get(self, name: &str) -> Option<ClusterData> {
        let state = self.catalog.inner.known.read();
        state.clusters.get(name).map(|record| (*record.value).clone())
    }

    /// Makes a cluster known.
    ///
    /// # Errors
    /// `InvalidName`, `AlreadyExists`, `Store`.
    pub async fn create(self, name: &str, data: ClusterData) -> Result<(), ClusterError> {
        if NamespaceName::new(name, "x").is_err() {
            return Err(ClusterError::InvalidName);
        }
        let key = keys::cluster(name);
        let _guard = self.catalog.inner.facts.names.take(key.clone()).await;
        if self.catalog.inner.known.read().clusters.contains_key(name) {
            return Err(ClusterError::AlreadyExists);
        }
        let (record, outcome) = match self.catalog.inner.facts.create(&key, data).await? {
            Created::New(record) => (record, Ok(())),
            Created::Found(record) => (record, Err(ClusterError::AlreadyExists)),
        };
        self.catalog
            .inner
            .known
            .write()
            .clusters
            .insert(name.to_owned(), record);
        outcome
    }

    /// Replaces what is known about a cluster.
    ///
    /// # Errors
    /// `NotFound`, `Store`.
    pub async fn update(self, name: &str, data: ClusterData) -> Result<(), ClusterError> {
        let key = keys::cluster(name);
        let _guard = self.catalog.inner.facts.names.take(key.clone()).await;
        let known = self.catalog.inner.known.read().clusters.get(name).cloned();
        let known = known.ok_or(ClusterError::NotFound)?;
        let missing = || ClusterError::NotFound;
        let record = self
            .catalog
            .inner
            .facts
            .update(&key, known, missing, |_| Ok::<_, ClusterError>(data.clone()))
            .await?;
        self.catalog
            .inner
            .known
            .write()
            .clusters
            .insert(name.to_owned(), record);
        // Topics that are replicated there go by it.
        self.catalog.inner.known.tell_policies(PolicyEvent::Broker);
        Ok(())
    }

    /// Forgets a cluster.
    ///
    /// # Errors
    /// `NotFound`; `NotEmpty` while a namespace or topic is replicated to it or it has isolation policies; `Store`.
    pub async fn delete(self, name: &str) -> Result<(), ClusterError> {
        let key = keys::cluster(name);
        let _guard = self.catalog.inner.facts.names.take(key.clone()).await;
        {
            let state = self.catalog.inner.known.read();
            if !state.clusters.contains_key(name) {
                return Err(ClusterError::NotFound);
            }
            let uses = |clusters: &[String]| clusters.iter().any(|cluster| cluster == name);
            let mut namespaces = state.namespaces.values();
            if namespaces.any(|namespace| {
                let mut topics = namespace.topic_policies.values();
                uses(&namespace.policies.value.replication_clusters())
                    || topics.any(|record| uses(&record.value.replication_clusters()))
            }) {
                return Err(ClusterError::NotEmpty);
            }
            if state
                .isolation
                .get(name)
                .is_some_and(|record| !record.value.is_empty())
            {
                return Err(ClusterError::NotEmpty);
            }
        }
        // Nothing may be left below the key of the cluster.
        self.catalog.clusters().failure_domains().remove_all(name).await?;
        self.catalog.inner.facts.delete(&keys::isolation(name)).await?;
        self.catalog.inner.known.write().isolation.remove(name);
        self.catalog.inner.facts.delete(&key).await?;
        self.catalog.inner.known.write().clusters.remove(name);
        Ok(())
    }
}
