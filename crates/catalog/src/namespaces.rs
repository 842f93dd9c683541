//! Namespaces and their policies.

use std::sync::Arc;

use pharos_types::hash::bundle_hash;
use pharos_types::{NamespaceName, TopicName};
use serde_json::{Value, json};

use super::carriers::carrier_bundle;
use super::known::{Facts, KnownFacts, Namespace, PolicyEvent};
use super::store::{Created, StoreError};
use super::{Catalog, CatalogOptions, Policies, keys};

/// The most bundles a namespace may be made with: their borders are stored as text and must fit one value.
pub const BUNDLES_MAX: u32 = 65_536;

/// Failure of an operation on a namespace.
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
    /// The policies name a cluster that the tenant may not use.
    #[error("Cluster [{cluster}] is not in the list of allowed clusters list for tenant [{tenant}]")]
    ClusterNotAllowed {
        /// The cluster.
        cluster: String,
        /// The tenant.
        tenant: String,
    },
    /// The policies name an unknown cluster.
    #[error("Invalid cluster id: {0}")]
    UnknownCluster(String),
    /// The policies name no cluster.
    #[error("ClusterIds should not be null or empty")]
    NoCluster,
    /// It names others, and not this one, where topics are.
    #[error(
        "the clusters must contain this one ({0}) while there are topics: what is published here is stored here"
    )]
    NotHere(String),
    /// Nothing says where a cluster is that it names.
    #[error(
        "cluster {0} has neither brokerServiceUrl nor brokerServiceUrlTls: messages cannot be sent there"
    )]
    NoAddress(String),
    /// The namespace still has topics.
    #[error("Cannot delete non empty namespace")]
    NotEmpty,
    /// The number of bundles is 0 or beyond [`BUNDLES_MAX`].
    #[error("Invalid number of bundles. Number of bundles has to be in the range of 1 to {BUNDLES_MAX}")]
    InvalidBundles,
    /// The namespace has no such bundle.
    #[error("{0} is no bundle of the namespace")]
    NoBundle(String),
    /// A bundle cannot be cut there.
    #[error("the borders do not cut the bundle {0}: they must rise, and be inside of it")]
    BadBorders(String),
    /// The namespace is reserved for the broker itself.
    #[error("namespace {0} cannot be changed")]
    Reserved(NamespaceName),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The namespaces.
#[derive(Clone, Copy)]
pub struct Namespaces<'a> {
    pub(super) catalog: &'a Catalog,
}

impl<'a> Namespaces<'a> {
    /// The namespaces of a tenant, sorted; empty when there is no such tenant.
    #[must_use]
    pub fn of(self, tenant: &str) -> Vec<NamespaceName> {
        let state = self.catalog.inner.known.read();
        let names = state.namespaces.keys();
        names
            .filter(|name| name.tenant() == tenant && !self.catalog.inner.options.is_heartbeat(name))
            .cloned()
            .collect()
    }

    /// True if a namespace exists.
    #[must_use]
    pub fn has(self, name: &NamespaceName) -> bool {
        self.catalog.inner.known.read().namespaces.contains_key(name)
    }

    /// Makes a namespace. Members missing from `policies` that every namespace has (bundles, replication clusters) are
    /// filled in.
    ///
    /// # Errors
    /// `TenantNotFound`, `ClusterNotAllowed`, `NoAddress`, `AlreadyExists`, `InvalidBundles`, `Store`.
    pub async fn create(self, name: &NamespaceName, policies: Policies) -> Result<(), NamespaceError> {
        let _tenant = self
            .catalog
            .inner
            .facts
            .names
            .take(keys::tenant(name.tenant()))
            .await;
        let key = keys::namespace(name);
        let _guard = self.catalog.inner.facts.names.take(key.clone()).await;
        {
            let state = self.catalog.inner.known.read();
            if !state.tenants.contains_key(name.tenant()) {
                return Err(NamespaceError::TenantNotFound);
            }
            if state.namespaces.contains_key(name) {
                return Err(NamespaceError::AlreadyExists);
            }
        }
        let policies = complete(policies, &self.catalog.inner.options)?;
        let own = &self.catalog.inner.options.cluster_name;
        check_replication(&self.catalog.inner.known.read(), own, name, &policies, false)?;
        let (record, outcome) = match self.catalog.inner.facts.create(&key, policies).await? {
            Created::New(record) => (record, Ok(())),
            Created::Found(record) => (record, Err(NamespaceError::AlreadyExists)),
        };
        let mut state = self.catalog.inner.known.write();
        state.namespaces.insert(name.clone(), Namespace::new(record));
        outcome
    }

    /// Sets one policy to the value that REST carries; null removes it. Other changes at the same time are kept.
    ///
    /// # Errors
    /// `NotFound`, `Reserved`, `Store`; for `replication_clusters` also `NoCluster`, `UnknownCluster`, `ClusterNotAllowed`,
    /// `NotHere`, `NoAddress`.
    pub async fn set_policy(
        self,
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
    pub async fn remove_policy(self, name: &NamespaceName, policy: &str) -> Result<(), NamespaceError> {
        self.update_policies(name, |policies| policies.remove(policy))
            .await
    }

    /// Changes policies as one step: `change` may be called twice and must then do the same.
    ///
    /// # Errors
    /// As [`set_policy`](Self::set_policy).
    pub async fn update_policies(
        self,
        name: &NamespaceName,
        change: impl Fn(&mut Policies),
    ) -> Result<(), NamespaceError> {
        if self.catalog.inner.options.is_heartbeat(name) {
            return Err(NamespaceError::Reserved(name.clone()));
        }
        let key = keys::namespace(name);
        let _guard = self.catalog.inner.facts.names.take(key.clone()).await;
        let known = {
            let state = self.catalog.inner.known.read();
            let namespace = state.namespaces.get(name).ok_or(NamespaceError::NotFound)?;
            namespace.policies.clone()
        };
        let missing = || NamespaceError::NotFound;
        let own = &self.catalog.inner.options.cluster_name;
        let record = self
            .catalog
            .inner
            .facts
            .update(&key, known, missing, |policies| {
                let mut policies = policies.clone();
                let clusters = policies.replication_clusters();
                change(&mut policies);
                // Only a change is checked: a cluster that was withdrawn later must not block every other policy.
                let wanted = policies.replication_clusters();
                if wanted != clusters {
                    let facts = self.catalog.inner.known.read();
                    check_known(&facts, &wanted)?;
                    // A topic that is made at this moment stays, and is served again once the namespace names this cluster.
                    check_replication(&facts, own, name, &policies, facts.has_topics(name))?;
                }
                Ok(policies)
            })
            .await?;
        if let Some(namespace) = self.catalog.inner.known.write().namespaces.get_mut(name) {
            namespace.policies = record;
        }
        self.catalog
            .inner
            .known
            .tell_policies(PolicyEvent::Namespace(name.clone()));
        Ok(())
    }

    /// Lets nothing new be made in a namespace whose topics are about to be deleted, until the answer is dropped. What is being
    /// made at this moment may still appear.
    ///
    /// # Errors
    /// `NotFound`, `Reserved`.
    pub fn begin_delete(self, name: &'a NamespaceName) -> Result<Leaving<'a>, NamespaceError> {
        if self.catalog.inner.options.is_heartbeat(name) {
            return Err(NamespaceError::Reserved(name.clone()));
        }
        let mut state = self.catalog.inner.known.write();
        let namespace = state.namespaces.get_mut(name).ok_or(NamespaceError::NotFound)?;
        namespace.deleting += 1;
        Ok(Leaving {
            known: &self.catalog.inner.known,
            name,
        })
    }

    /// Deletes a namespace without topics. A caller that wants those gone, the system's included, deletes them first: what they
    /// store is not the catalog's.
    ///
    /// # Errors
    /// `NotFound`; `NotEmpty` also while a topic is being created in it; `Reserved`; `Store`.
    pub async fn delete(self, name: &NamespaceName) -> Result<(), NamespaceError> {
        if self.catalog.inner.options.is_heartbeat(name) {
            return Err(NamespaceError::Reserved(name.clone()));
        }
        let key = keys::namespace(name);
        let _guard = self.catalog.inner.facts.names.take(key.clone()).await;
        let leftovers = {
            let mut state = self.catalog.inner.known.write();
            let namespace = state.namespaces.get_mut(name).ok_or(NamespaceError::NotFound)?;
            let has_topics = !namespace.topics.is_empty() || !namespace.partitioned.is_empty();
            if namespace.creating > 0 || has_topics {
                return Err(NamespaceError::NotEmpty);
            }
            namespace.deleting += 1;
            let leftovers = namespace.topic_policies.keys().map(keys::topic_policies);
            leftovers.collect::<Vec<String>>()
        };
        let leaving = Leaving {
            known: &self.catalog.inner.known,
            name,
        };
        for leftover in leftovers {
            self.catalog.inner.facts.delete(&leftover).await?;
        }
        self.catalog.inner.facts.delete(&key).await?;
        self.catalog.inner.known.write().namespaces.remove(name);
        drop(leaving);
        Ok(())
    }

    /// Checks that a topic of this namespace may name these clusters as its own.
    ///
    /// # Errors
    /// `TenantNotFound`, `UnknownCluster`, `ClusterNotAllowed`, `NotHere`, `NoAddress`.
    pub fn check_topic_clusters(
        self,
        name: &NamespaceName,
        clusters: &[String],
    ) -> Result<(), NamespaceError> {
        let mut policies = Policies::default();
        policies.set("replication_clusters", json!(clusters));
        let own = &self.catalog.inner.options.cluster_name;
        let facts = self.catalog.inner.known.read();
        check_known(&facts, clusters)?;
        check_replication(&facts, own, name, &policies, true)
    }
}

impl Catalog {
    /// The policies of a namespace; `None` when it does not exist. Cheap.
    #[must_use]
    pub fn policies(&self, name: &NamespaceName) -> Option<Arc<Policies>> {
        let state = self.inner.known.read();
        let namespace = state.namespaces.get(name)?;
        Some(Arc::clone(&namespace.policies.value))
    }

    /// Returns the bundle range of the topic, as `0x40000000_0x80000000`; `None` if the namespace does not exist.
    #[must_use]
    pub fn bundle_of(&self, topic: &TopicName) -> Option<String> {
        let policies = self.policies(topic.namespace())?;
        if let Some(bundle) = carrier_bundle(topic) {
            return Some(bundle);
        }
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

    /// True if a missing subscription of this topic may be created when a consumer requests it.
    #[must_use]
    pub fn may_create_subscription(&self, topic: &TopicName) -> bool {
        self.levels(topic).auto_subscription_creation().allow
    }
}

/// Fills in what every namespace has. A request may say how many bundles and leave the borders to us.
fn complete(mut policies: Policies, options: &CatalogOptions) -> Result<Policies, NamespaceError> {
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

/// Checks that a namespace may be on the clusters that its policies name. One that has topics here must stay here; Pulsar would
/// delete them.
fn check_replication(
    facts: &Facts,
    own: &str,
    name: &NamespaceName,
    policies: &Policies,
    has_topics: bool,
) -> Result<(), NamespaceError> {
    let tenant = facts.tenants.get(name.tenant());
    let tenant = tenant.ok_or(NamespaceError::TenantNotFound)?;
    let clusters = policies.replication_clusters();
    for cluster in &clusters {
        let is_allowed = tenant.value.allowed_clusters.contains(cluster);
        if !is_allowed || !facts.clusters.contains_key(cluster) {
            return Err(NamespaceError::ClusterNotAllowed {
                cluster: cluster.clone(),
                tenant: name.tenant().to_owned(),
            });
        }
    }
    let is_own = |cluster: &&String| *cluster == own;
    if clusters.iter().all(|cluster| is_own(&cluster)) {
        return Ok(());
    }
    if !clusters.iter().any(|cluster| is_own(&cluster)) {
        return match has_topics {
            true => Err(NamespaceError::NotHere(own.to_owned())),
            // Nothing is sent there from here.
            false => Ok(()),
        };
    }
    let has_address = |cluster: &String| {
        let data = facts.clusters.get(cluster).map(|record| &record.value);
        let urls = data.map(|data| [&data.broker_service_url, &data.broker_service_url_tls]);
        let mut urls = urls.into_iter().flatten().flatten();
        urls.any(|url| !url.trim().is_empty())
    };
    let unknown = clusters
        .iter()
        .find(|cluster| !is_own(cluster) && !has_address(cluster));
    unknown.map_or(Ok(()), |cluster| Err(NamespaceError::NoAddress(cluster.clone())))
}

/// Checks that the clusters are not empty and all known.
fn check_known(facts: &Facts, clusters: &[String]) -> Result<(), NamespaceError> {
    if clusters.is_empty() {
        return Err(NamespaceError::NoCluster);
    }
    let unknown = clusters
        .iter()
        .find(|cluster| !facts.clusters.contains_key(*cluster));
    unknown.map_or(Ok(()), |cluster| {
        Err(NamespaceError::UnknownCluster(cluster.clone()))
    })
}

/// A namespace that is being deleted: nothing new is made in it until this is dropped.
pub struct Leaving<'a> {
    known: &'a KnownFacts,
    name: &'a NamespaceName,
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        if let Some(namespace) = self.known.write().namespaces.get_mut(self.name) {
            namespace.deleting = namespace.deleting.saturating_sub(1);
        }
    }
}
