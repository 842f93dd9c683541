//! Namespaces and their policies.

use std::sync::Arc;

use pharos_types::hash::bundle_hash;
use pharos_types::{NamespaceName, TopicName};
use serde_json::{Value, json};

use super::store::{Created, StoreError};
use super::{Catalog, Namespace, Policies, PolicyEvent, keys};

/// The most bundles a namespace may be made with: their borders are stored as text and must fit one value.
pub const BUNDLES_MAX: u32 = 65_536;

/// Why something with a namespace was not done.
#[derive(Clone, Debug, thiserror::Error)]
pub enum NamespaceError {
    /// No such namespace.
    #[error("Namespace does not exist")]
    NotFound,
    /// No such tenant.
    #[error("Tenant does not exist")]
    TenantNotFound,
    /// There is one of that name.
    #[error("Namespace already exists")]
    AlreadyExists,
    /// It names a cluster that its tenant may not use.
    #[error("Cluster [{cluster}] is not in the list of allowed clusters list for tenant [{tenant}]")]
    ClusterNotAllowed {
        /// The cluster.
        cluster: String,
        /// The tenant.
        tenant: String,
    },
    /// It names a cluster that is not known.
    #[error("Invalid cluster id: {0}")]
    UnknownCluster(String),
    /// It names no cluster to be on.
    #[error("ClusterIds should not be null or empty")]
    NoCluster,
    /// It names a cluster other than this one; nothing copies messages there.
    #[error("replication to other clusters ({0}) is not available in this release")]
    Replication(String),
    /// It still has topics.
    #[error("Cannot delete non empty namespace")]
    NotEmpty,
    /// The number of bundles is 0 or beyond [`BUNDLES_MAX`].
    #[error("Invalid number of bundles. Number of bundles has to be in the range of 1 to {BUNDLES_MAX}")]
    InvalidBundles,
    /// It belongs to the broker itself.
    #[error("namespace {0} cannot be changed")]
    Reserved(NamespaceName),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Catalog {
    /// The namespaces of a tenant, sorted; empty when there is no such tenant.
    #[must_use]
    pub fn namespaces_of(&self, tenant: &str) -> Vec<NamespaceName> {
        let state = self.read();
        let names = state.namespaces.keys();
        names
            .filter(|name| name.tenant() == tenant && !self.is_heartbeat(name))
            .cloned()
            .collect()
    }

    /// Whether a namespace exists.
    #[must_use]
    pub fn has_namespace(&self, name: &NamespaceName) -> bool {
        self.read().namespaces.contains_key(name)
    }

    /// The policies of a namespace; `None` when it does not exist. Cheap.
    #[must_use]
    pub fn policies(&self, name: &NamespaceName) -> Option<Arc<Policies>> {
        let state = self.read();
        let namespace = state.namespaces.get(name)?;
        Some(Arc::clone(&namespace.policies.value))
    }

    /// Where the bundle of a topic begins and ends, as `0x40000000_0x80000000`; `None` when there is no such namespace.
    #[must_use]
    pub fn bundle_of(&self, topic: &TopicName) -> Option<String> {
        let policies = self.policies(topic.namespace())?;
        let boundaries = policies
            .get("bundles")
            .and_then(|bundles| bundles.get("boundaries")?.as_array());
        let borders: Vec<&str> = boundaries
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let Some(last) = borders.len().checked_sub(2) else {
            return Some("0x00000000_0xffffffff".to_owned());
        };
        let hash = bundle_hash(&topic.to_string());
        let number = |border: &str| u32::from_str_radix(border.strip_prefix("0x")?, 16).ok();
        let upper = borders.iter().skip(1);
        let index = upper
            .take(last)
            .position(|border| number(border).is_none_or(|border| hash < border));
        // The last bundle has its upper border as well.
        let index = index.unwrap_or(last);
        Some(format!("{}_{}", borders.get(index)?, borders.get(index + 1)?))
    }

    /// Whether a subscription of this topic that does not exist may be made when a consumer asks for it.
    #[must_use]
    pub fn may_create_subscription(&self, topic: &TopicName) -> bool {
        self.levels(topic).auto_subscription_creation().allow
    }

    /// Makes a namespace. Members missing from `policies` that every namespace has (bundles, replication clusters) are
    /// filled in.
    ///
    /// # Errors
    /// `TenantNotFound`, `ClusterNotAllowed`, `Replication`, `AlreadyExists`, `InvalidBundles`, `Store`.
    pub async fn create_namespace(
        &self,
        name: &NamespaceName,
        policies: Policies,
    ) -> Result<(), NamespaceError> {
        let _tenant = self.inner.names.take(keys::tenant(name.tenant())).await;
        let key = keys::namespace(name);
        let _guard = self.inner.names.take(key.clone()).await;
        {
            let state = self.read();
            if !state.tenants.contains_key(name.tenant()) {
                return Err(NamespaceError::TenantNotFound);
            }
            if state.namespaces.contains_key(name) {
                return Err(NamespaceError::AlreadyExists);
            }
        }
        let policies = self.complete(policies)?;
        self.check_replication(name, &policies)?;
        let (record, outcome) = match self.store_create(&key, policies).await? {
            Created::New(record) => (record, Ok(())),
            Created::Found(record) => (record, Err(NamespaceError::AlreadyExists)),
        };
        let mut state = self.write();
        state.namespaces.insert(name.clone(), Namespace::new(record));
        outcome
    }

    /// Sets one policy to the value that REST carries; null removes it. Other changes at the same time are kept.
    ///
    /// # Errors
    /// `NotFound`, `Reserved`, `Store`; for `replication_clusters` also `NoCluster`, `UnknownCluster`, `ClusterNotAllowed`,
    /// `Replication`.
    pub async fn set_policy(
        &self,
        name: &NamespaceName,
        policy: &str,
        value: Value,
    ) -> Result<(), NamespaceError> {
        self.update_policies(name, |policies| policies.set(policy, value.clone()))
            .await
    }

    /// Removes one policy; fine when it is not set.
    ///
    /// # Errors
    /// `NotFound`, `Reserved`, `Store`.
    pub async fn remove_policy(&self, name: &NamespaceName, policy: &str) -> Result<(), NamespaceError> {
        self.update_policies(name, |policies| policies.remove(policy))
            .await
    }

    /// Changes policies as one step: `change` may be called twice and must then do the same.
    ///
    /// # Errors
    /// As [`set_policy`](Self::set_policy).
    pub async fn update_policies(
        &self,
        name: &NamespaceName,
        change: impl Fn(&mut Policies),
    ) -> Result<(), NamespaceError> {
        if self.is_heartbeat(name) {
            return Err(NamespaceError::Reserved(name.clone()));
        }
        let key = keys::namespace(name);
        let _guard = self.inner.names.take(key.clone()).await;
        let known = {
            let state = self.read();
            let namespace = state.namespaces.get(name).ok_or(NamespaceError::NotFound)?;
            namespace.policies.clone()
        };
        let missing = || NamespaceError::NotFound;
        let record = self
            .store_update(&key, known, missing, |policies| {
                let mut policies = policies.clone();
                let clusters = policies.replication_clusters();
                change(&mut policies);
                // Only a change is checked: a cluster that was withdrawn later must not block every other policy.
                let wanted = policies.replication_clusters();
                if wanted != clusters {
                    self.check_known(&wanted)?;
                    self.check_replication(name, &policies)?;
                }
                Ok(policies)
            })
            .await?;
        if let Some(namespace) = self.write().namespaces.get_mut(name) {
            namespace.policies = record;
        }
        self.tell_policies(PolicyEvent::Namespace(name.clone()));
        Ok(())
    }

    /// Lets nothing new be made in a namespace whose topics are about to be deleted, until the answer is dropped. What is being
    /// made at this moment may still appear.
    ///
    /// # Errors
    /// `NotFound`, `Reserved`.
    pub fn begin_delete_namespace<'a>(
        &'a self,
        name: &'a NamespaceName,
    ) -> Result<Leaving<'a>, NamespaceError> {
        if self.is_heartbeat(name) {
            return Err(NamespaceError::Reserved(name.clone()));
        }
        let mut state = self.write();
        let namespace = state.namespaces.get_mut(name).ok_or(NamespaceError::NotFound)?;
        namespace.deleting += 1;
        Ok(Leaving { catalog: self, name })
    }

    /// Deletes a namespace without topics. A caller that wants those gone, the system's included, deletes them first: what they
    /// store is not the catalog's.
    ///
    /// # Errors
    /// `NotFound`; `NotEmpty` also while a topic is being created in it; `Reserved`; `Store`.
    pub async fn delete_namespace(&self, name: &NamespaceName) -> Result<(), NamespaceError> {
        if self.is_heartbeat(name) {
            return Err(NamespaceError::Reserved(name.clone()));
        }
        let key = keys::namespace(name);
        let _guard = self.inner.names.take(key.clone()).await;
        let leftovers = {
            let mut state = self.write();
            let namespace = state.namespaces.get_mut(name).ok_or(NamespaceError::NotFound)?;
            let has_topics = !namespace.topics.is_empty() || !namespace.partitioned.is_empty();
            if namespace.creating > 0 || has_topics {
                return Err(NamespaceError::NotEmpty);
            }
            namespace.deleting += 1;
            let leftovers = namespace.topic_policies.keys().map(keys::topic_policies);
            leftovers.collect::<Vec<String>>()
        };
        let leaving = Leaving { catalog: self, name };
        for leftover in leftovers {
            self.store_delete(&leftover).await?;
        }
        self.store_delete(&key).await?;
        self.write().namespaces.remove(name);
        drop(leaving);
        Ok(())
    }

    /// Whether it is the namespace of the broker's own heartbeat.
    pub(super) fn is_heartbeat(&self, name: &NamespaceName) -> bool {
        self.inner.options.heartbeat_namespace.as_ref() == Some(name)
    }

    /// Fills in what every namespace has. A request may say how many bundles and leave the borders to us.
    fn complete(&self, mut policies: Policies) -> Result<Policies, NamespaceError> {
        let options = &self.inner.options;
        let given = policies.get("bundles");
        if given.is_none_or(|bundles| bundles.get("boundaries").is_none_or(Value::is_null)) {
            let count = match given.and_then(|bundles| bundles.get("numBundles")) {
                Some(count) => count.as_u64().and_then(|count| u32::try_from(count).ok()),
                None => Some(options.default_num_bundles),
            };
            let count = count.filter(|count| (1..=BUNDLES_MAX).contains(count));
            let count = count.ok_or(NamespaceError::InvalidBundles)?;
            policies.set_bundles(count);
        }
        if policies.replication_clusters().is_empty() {
            policies.set("replication_clusters", json!([options.cluster_name]));
        }
        Ok(policies)
    }

    fn check_replication(&self, name: &NamespaceName, policies: &Policies) -> Result<(), NamespaceError> {
        let state = self.read();
        let tenant = state.tenants.get(name.tenant());
        let tenant = tenant.ok_or(NamespaceError::TenantNotFound)?;
        let clusters = policies.replication_clusters();
        for cluster in &clusters {
            let is_allowed = tenant.value.allowed_clusters.contains(cluster);
            if !is_allowed || !state.clusters.contains_key(cluster) {
                return Err(NamespaceError::ClusterNotAllowed {
                    cluster: cluster.clone(),
                    tenant: name.tenant().to_owned(),
                });
            }
        }
        let own = &self.inner.options.cluster_name;
        match clusters.into_iter().find(|cluster| cluster != own) {
            Some(other) => Err(NamespaceError::Replication(other)),
            None => Ok(()),
        }
    }

    /// Whether a namespace may be moved to these clusters as far as their names go.
    fn check_known(&self, clusters: &[String]) -> Result<(), NamespaceError> {
        if clusters.is_empty() {
            return Err(NamespaceError::NoCluster);
        }
        let state = self.read();
        let unknown = clusters
            .iter()
            .find(|cluster| !state.clusters.contains_key(*cluster));
        unknown.map_or(Ok(()), |cluster| {
            Err(NamespaceError::UnknownCluster(cluster.clone()))
        })
    }

    /// Whether a topic of this namespace may name these clusters as those it is on.
    ///
    /// # Errors
    /// `TenantNotFound`, `UnknownCluster`, `ClusterNotAllowed`, `Replication`.
    pub fn check_topic_clusters(
        &self,
        name: &NamespaceName,
        clusters: &[String],
    ) -> Result<(), NamespaceError> {
        self.check_known(clusters)?;
        let mut policies = Policies::default();
        policies.set("replication_clusters", json!(clusters));
        self.check_replication(name, &policies)
    }
}

/// A namespace that is being deleted: nothing new is made in it until this is dropped.
pub struct Leaving<'a> {
    catalog: &'a Catalog,
    name: &'a NamespaceName,
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        if let Some(namespace) = self.catalog.write().namespaces.get_mut(self.name) {
            namespace.deleting = namespace.deleting.saturating_sub(1);
        }
    }
}
