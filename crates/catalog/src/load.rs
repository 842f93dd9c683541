//! Opening: reading every fact once, and making the first ones on a fresh store.

use std::collections::HashMap;
use std::sync::Arc;

use pharos_admin_api::{ClusterData, PartitionedTopicMetadata, TenantInfo};
use pharos_metadata::{Item, MetadataStore, Version};
use pharos_types::{NamespaceName, TopicName};
use serde::de::DeserializeOwned;
use tracing::warn;

use super::changed_settings::policies_with;
use super::deleting::Deleting;
use super::keys::OfCluster;
use super::known::{Facts, KnownFacts, Namespace, Record};
use super::pattern::CompiledPatterns;
use super::schema::Histories;
use super::store::{FactStore, StoreError, decode, facts_under};
use super::{Catalog, CatalogOptions, Inner, Policies, TopicRecord, keys, schema};

/// Failure to open a catalog.
#[derive(Debug, thiserror::Error)]
pub enum OpenCatalogError {
    /// The store failed, or holds something that no release wrote.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// An option is out of range.
    #[error("invalid catalog option {option}: {reason}")]
    Option {
        /// Its name in the configuration.
        option: &'static str,
        /// Reason for the failure.
        reason: &'static str,
    },
}

impl Catalog {
    /// Loads every fact from `store`. A store without any cluster is fresh: it gets the cluster of the options, the
    /// tenants `public` and `pulsar`, and the namespaces `public/default` and `pulsar/system`.
    ///
    /// # Errors
    /// [`OpenCatalogError`]; the process should not start.
    pub async fn open(
        store: Arc<dyn MetadataStore>,
        options: CatalogOptions,
    ) -> Result<Self, OpenCatalogError> {
        check(&options)?;
        let state = load(&*store, &options).await?;
        let schemas = Histories::new(load_schemas(&*store).await?);
        let is_fresh = state.clusters.is_empty();
        let policies = policies_with(&options, state.changed_settings.as_ref());
        let catalog = Self {
            inner: Arc::new(Inner {
                options,
                facts: FactStore::new(store),
                known: KnownFacts::new(state, policies),
                schemas,
                patterns: CompiledPatterns::default(),
            }),
        };
        if is_fresh {
            catalog.make_first_facts().await?;
        }
        Ok(catalog)
    }

    /// Repeatable: what a crash left of an earlier attempt is found and kept. The cluster comes last because it is
    /// the sign that the store is no longer fresh.
    async fn make_first_facts(&self) -> Result<(), StoreError> {
        let cluster = self.inner.options.cluster_name.clone();
        for (tenant, namespace) in [("public", "default"), ("pulsar", "system")] {
            let info = TenantInfo {
                admin_roles: Vec::new(),
                allowed_clusters: vec![cluster.clone()],
            };
            let tenant_name = tenant.to_owned();
            let record = self
                .inner
                .facts
                .create_or_find(&keys::tenant(tenant), info)
                .await?;
            self.inner.known.write().tenants.insert(tenant_name, record);
            let Ok(name) = NamespaceName::new(tenant, namespace) else {
                continue;
            };
            let policies = Policies::first(&[cluster.as_str()], self.inner.options.default_num_bundles);
            let record = self
                .inner
                .facts
                .create_or_find(&keys::namespace(&name), policies)
                .await?;
            let mut state = self.inner.known.write();
            state
                .namespaces
                .entry(name)
                .or_insert_with(|| Namespace::new(record));
        }
        let url = |url: &str| (!url.is_empty()).then(|| url.to_owned());
        let data = ClusterData {
            service_url: url(&self.inner.options.web_service_url),
            service_url_tls: url(&self.inner.options.web_service_url_tls),
            broker_service_url: url(&self.inner.options.broker_service_url),
            broker_service_url_tls: url(&self.inner.options.broker_service_url_tls),
            ..ClusterData::default()
        };
        let record = self
            .inner
            .facts
            .create_or_find(&keys::cluster(&cluster), data)
            .await?;
        self.inner.known.write().clusters.insert(cluster, record);
        Ok(())
    }
}

fn check(options: &CatalogOptions) -> Result<(), OpenCatalogError> {
    let at_least_one = |option, value: u32| match value {
        0 => Err(OpenCatalogError::Option {
            option,
            reason: "must be at least 1",
        }),
        _ => Ok(()),
    };
    at_least_one(
        "defaultNumPartitions",
        options.policies.auto_topic_creation.partitions,
    )?;
    at_least_one("defaultNumberOfNamespaceBundles", options.default_num_bundles)?;
    if NamespaceName::new(&options.cluster_name, "x").is_err() {
        return Err(OpenCatalogError::Option {
            option: "clusterName",
            reason: "must be letters, digits and -=:._ only",
        });
    }
    Ok(())
}

async fn load(store: &dyn MetadataStore, options: &CatalogOptions) -> Result<Facts, StoreError> {
    let mut state = Facts::default();
    for item in facts_under(store, keys::CONFIGURATION).await? {
        if item.key == keys::CONFIGURATION {
            state.changed_settings = Some(record(&item)?);
        }
    }
    for item in facts_under(store, keys::CLUSTERS).await? {
        match keys::cluster_of(&item.key) {
            Some(OfCluster::Itself(name)) => {
                state.clusters.insert(name.to_owned(), record(&item)?);
            }
            Some(OfCluster::Isolation(cluster)) => {
                state.isolation.insert(cluster.to_owned(), record(&item)?);
            }
            Some(OfCluster::FailureDomain(cluster, name)) => {
                let key = (cluster.to_owned(), name.to_owned());
                state.failure_domains.insert(key, record(&item)?);
            }
            None => warn!(key = item.key, "metadata key is no cluster, ignored"),
        }
    }
    load_policies(store, &mut state).await?;
    if let Some(name) = &options.heartbeat_namespace {
        let unstored = Record {
            value: Arc::new(Policies::default()),
            version: Version(0),
        };
        let namespaces = &mut state.namespaces;
        namespaces
            .entry(name.clone())
            .or_insert_with(|| Namespace::new(unstored));
    }
    for item in facts_under(store, keys::PARTITIONED).await? {
        let value: Record<PartitionedTopicMetadata> = record(&item)?;
        if let Some((topic, namespace)) = home(&mut state, keys::PARTITIONED, &item.key) {
            if value.value.deleted {
                namespace.deletions.insert(topic.clone(), Deleting::Marked);
            }
            namespace.partitioned.insert(topic, value);
        }
    }
    for item in facts_under(store, keys::TOPICS).await? {
        let value: Record<TopicRecord> = record(&item)?;
        if let Some((topic, namespace)) = home(&mut state, keys::TOPICS, &item.key) {
            if value.value.deleting {
                namespace.deletions.insert(topic.clone(), Deleting::Marked);
            }
            namespace.topics.insert(topic, value);
        }
    }
    for item in facts_under(store, keys::TOPIC_POLICIES).await? {
        let value = record(&item)?;
        if let Some((topic, namespace)) = home(&mut state, keys::TOPIC_POLICIES, &item.key) {
            namespace.topic_policies.insert(topic, value);
        }
    }
    Ok(state)
}

async fn load_policies(store: &dyn MetadataStore, state: &mut Facts) -> Result<(), StoreError> {
    for item in facts_under(store, keys::POLICIES).await? {
        let path = item.key.strip_prefix(keys::POLICIES).unwrap_or_default();
        match path.parse::<NamespaceName>() {
            Ok(name) => {
                state.namespaces.insert(name, Namespace::new(record(&item)?));
            }
            Err(_) if !path.contains('/') => {
                state.tenants.insert(path.to_owned(), record(&item)?);
            }
            Err(_) => warn!(key = item.key, "metadata key is no namespace, ignored"),
        }
    }
    Ok(())
}

async fn load_schemas(
    store: &dyn MetadataStore,
) -> Result<HashMap<String, Arc<schema::History>>, StoreError> {
    let mut histories: HashMap<String, schema::History> = HashMap::new();
    for item in facts_under(store, keys::SCHEMAS).await? {
        let Some((id, version)) = keys::schema_of(&item.key) else {
            warn!(key = item.key, "metadata key is no schema, ignored");
            continue;
        };
        let entry = schema::SchemaEntry::decode(&item.key, version, &item.value)?;
        histories.entry(id.to_owned()).or_default().push(entry);
    }
    let shared = histories.into_iter().map(|(id, history)| (id, Arc::new(history)));
    Ok(shared.collect())
}

fn record<T: DeserializeOwned>(item: &Item) -> Result<Record<T>, StoreError> {
    Ok(Record {
        value: Arc::new(decode(&item.key, &item.value)?),
        version: item.version,
    })
}

/// The topic of a key and its namespace; nothing, and a warning, when either is unknown.
fn home<'a>(state: &'a mut Facts, prefix: &str, key: &str) -> Option<(TopicName, &'a mut Namespace)> {
    let topic = keys::topic_of(prefix, key);
    let namespace = topic
        .as_ref()
        .and_then(|topic| state.namespaces.get_mut(topic.namespace()));
    if let (Some(topic), Some(namespace)) = (topic, namespace) {
        return Some((topic, namespace));
    }
    warn!(key, "metadata key belongs to no known namespace, ignored");
    None
}
