//! Following what other brokers write to the same store.
//!
//! ```text
//!  watch ─► key ─► is it what the copy has? ─► done
//!                        │ no
//!                        ▼
//!                  its name is taken ─► read from the store ─► into the copy ─► topic and policy events
//! ```
//! The name is taken because a writer of this process stores first and changes the copy after: between the two the store is
//! ahead, and what is read then must not be overwritten by the older fact. Every change of the store is followed by a look at
//! it, so the copy ends up as the store is. When changes were missed, everything is compared.

use std::collections::BTreeMap;
use std::sync::Arc;

use pharos_metadata::{Event, Version, Versioned};
use pharos_types::{NamespaceName, TopicName};
use serde::de::DeserializeOwned;

use super::changed_settings::RuntimeSettings;
use super::deleting::Deleting;
use super::keys::OfCluster;
use super::known::{Facts, Namespace, PolicyEvent, Record, TopicEvent};
use super::schema::{History, SchemaEntry, SchemaVersion};
use super::store::{StoreError, decode, facts_under};
use super::{Catalog, keys};

/// Keys that are compared before others get a turn.
const COMPARED_AT_ONCE: usize = 256;

/// Subject of a key in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Fact {
    Cluster(String),
    Isolation(String),
    FailureDomain(String, String),
    Settings,
    Tenant(String),
    Namespace(NamespaceName),
    Partitioned(TopicName),
    Topic(TopicName),
    TopicPolicies(TopicName),
    Schema(String, SchemaVersion),
}

impl Fact {
    /// The fact under a key; `None` when it is none of the catalog's.
    fn of(key: &str) -> Option<Self> {
        if key == keys::CONFIGURATION {
            return Some(Self::Settings);
        }
        if let Some(of) = keys::cluster_of(key) {
            return Some(match of {
                OfCluster::Itself(name) => Self::Cluster(name.to_owned()),
                OfCluster::Isolation(cluster) => Self::Isolation(cluster.to_owned()),
                OfCluster::FailureDomain(cluster, name) => {
                    Self::FailureDomain(cluster.to_owned(), name.to_owned())
                }
            });
        }
        if let Some(path) = key.strip_prefix(keys::POLICIES) {
            return match path.parse() {
                Ok(name) => Some(Self::Namespace(name)),
                Err(_) => (!path.contains('/')).then(|| Self::Tenant(path.to_owned())),
            };
        }
        if let Some((id, version)) = keys::schema_of(key) {
            return Some(Self::Schema(id.to_owned(), version));
        }
        let topic = |prefix| keys::topic_of(prefix, key);
        topic(keys::PARTITIONED)
            .map(Self::Partitioned)
            .or_else(|| topic(keys::TOPICS).map(Self::Topic))
            .or_else(|| topic(keys::TOPIC_POLICIES).map(Self::TopicPolicies))
    }

    /// The name under which it is written.
    fn lock(&self) -> String {
        match self {
            Self::Cluster(name) | Self::Isolation(name) | Self::FailureDomain(name, _) => keys::cluster(name),
            Self::Settings => keys::CONFIGURATION.to_owned(),
            Self::Tenant(name) => keys::tenant(name),
            Self::Namespace(name) => keys::namespace(name),
            Self::Partitioned(name) | Self::Topic(name) => keys::topic(name),
            Self::TopicPolicies(base) => keys::topic_policies(base),
            Self::Schema(id, _) => keys::schemas(id),
        }
    }
}

impl Catalog {
    /// Follows what others write to the store, from what was there when the catalog was opened. Returns when the store is shut
    /// down. Once is enough; needless where no other process can write.
    pub async fn follow(&self) {
        Follower { catalog: self }.run().await;
    }
}

/// Brings into the copy what others write.
struct Follower<'a> {
    catalog: &'a Catalog,
}

impl Follower<'_> {
    async fn run(&self) {
        let mut watch = self.catalog.inner.facts.store.watch(keys::ROOT);
        self.compare_all().await;
        while let Some(event) = watch.next().await {
            match event {
                Event::Put { key, version } => {
                    if self.version_of(&key) != Some(version) {
                        self.take_in(&key).await;
                    }
                }
                Event::Deleted { key } => {
                    if self.version_of(&key).is_some() {
                        self.take_in(&key).await;
                    }
                }
                Event::Lagged => self.compare_all().await,
            }
        }
    }

    /// The version of a key that the copy has; of a schema, which never changes, just any.
    fn version_of(&self, key: &str) -> Option<Version> {
        let state = self.catalog.inner.known.read();
        let namespace = |name: &TopicName| state.namespaces.get(name.namespace());
        match Fact::of(key)? {
            Fact::Cluster(name) => state.clusters.get(&name).map(|record| record.version),
            Fact::Isolation(cluster) => state.isolation.get(&cluster).map(|record| record.version),
            Fact::FailureDomain(cluster, name) => {
                let found = state.failure_domains.get(&(cluster, name));
                found.map(|record| record.version)
            }
            Fact::Settings => state.changed_settings.as_ref().map(|record| record.version),
            Fact::Tenant(name) => state.tenants.get(&name).map(|record| record.version),
            Fact::Namespace(name) => state
                .namespaces
                .get(&name)
                .map(|namespace| namespace.policies.version),
            Fact::Partitioned(name) => namespace(&name)?
                .partitioned
                .get(&name)
                .map(|record| record.version),
            Fact::Topic(name) => namespace(&name)?.topics.get(&name).map(|record| record.version),
            Fact::TopicPolicies(name) => namespace(&name)?
                .topic_policies
                .get(&name)
                .map(|record| record.version),
            Fact::Schema(id, version) => {
                let history = self.catalog.inner.schemas.of(&id);
                history.versions().any(|it| it == version).then_some(Version(0))
            }
        }
    }

    /// Brings the copy up to the store, key by key.
    async fn compare_all(&self) {
        let mut stored = BTreeMap::new();
        match facts_under(&*self.catalog.inner.facts.store, keys::ROOT).await {
            Ok(items) => stored.extend(items.into_iter().map(|item| (item.key, item.version))),
            Err(error) => {
                tracing::warn!(%error, "what other brokers changed is not known");
                return;
            }
        }
        let known = self.known_keys();
        let gone = known.into_iter().filter(|key| !stored.contains_key(key));
        let gone: Vec<String> = gone.collect();
        for (count, key) in gone.iter().chain(stored.keys()).enumerate() {
            if count % COMPARED_AT_ONCE == 0 {
                tokio::task::yield_now().await;
            }
            let known = self.version_of(key);
            let is_same = match Fact::of(key) {
                Some(Fact::Schema(..)) => known.is_some() == stored.contains_key(key),
                _ => known == stored.get(key).copied(),
            };
            if !is_same {
                self.take_in(key).await;
            }
        }
    }

    /// The keys of everything in the copy that is stored.
    fn known_keys(&self) -> Vec<String> {
        let state = self.catalog.inner.known.read();
        let mut all = Vec::new();
        all.extend(
            state
                .changed_settings
                .iter()
                .map(|_| keys::CONFIGURATION.to_owned()),
        );
        all.extend(state.clusters.keys().map(|name| keys::cluster(name)));
        all.extend(state.isolation.keys().map(|cluster| keys::isolation(cluster)));
        let domains = state.failure_domains.keys();
        all.extend(domains.map(|(cluster, name)| keys::failure_domain(cluster, name)));
        all.extend(state.tenants.keys().map(|name| keys::tenant(name)));
        for (name, namespace) in &state.namespaces {
            if !self.catalog.inner.options.is_heartbeat(name) {
                all.push(keys::namespace(name));
            }
            all.extend(namespace.partitioned.keys().map(keys::partitioned));
            all.extend(namespace.topics.keys().map(keys::topic));
            all.extend(namespace.topic_policies.keys().map(keys::topic_policies));
        }
        for (id, history) in self.catalog.inner.schemas.all() {
            all.extend(history.versions().map(|version| keys::schema(&id, version)));
        }
        all
    }

    /// Puts what the store has under a key into the copy.
    async fn take_in(&self, key: &str) {
        let Some(fact) = Fact::of(key) else { return };
        let _guard = self.catalog.inner.facts.names.take(fact.lock()).await;
        if let Err(error) = self.read_in(key, fact).await {
            // What is damaged stays as it was known; a store that cannot be read says so again at the next change.
            tracing::warn!(key, %error, "what another broker changed cannot be read");
        }
    }

    async fn read_in(&self, key: &str, fact: Fact) -> Result<(), StoreError> {
        if let Fact::Schema(id, _) = fact {
            return self.read_schemas(id).await;
        }
        let found = self.catalog.inner.facts.store.get(key).await?;
        match fact {
            Fact::Cluster(name) => {
                let found = record(key, found)?;
                put(&mut self.catalog.inner.known.write().clusters, name, found);
                // Topics that are replicated there go by it.
                self.catalog.inner.known.tell_policies(PolicyEvent::Broker);
            }
            Fact::Isolation(cluster) => {
                let found = record(key, found)?;
                put(&mut self.catalog.inner.known.write().isolation, cluster, found);
            }
            Fact::FailureDomain(cluster, name) => {
                let found = record(key, found)?;
                let mut state = self.catalog.inner.known.write();
                put(&mut state.failure_domains, (cluster, name), found);
            }
            Fact::Settings => RuntimeSettings::of(self.catalog).put(record(key, found)?),
            Fact::Tenant(name) => {
                let found = record(key, found)?;
                put(&mut self.catalog.inner.known.write().tenants, name, found);
            }
            Fact::Namespace(name) => {
                let found = record(key, found)?;
                self.put_namespace(&name, found);
                self.catalog
                    .inner
                    .known
                    .tell_policies(PolicyEvent::Namespace(name));
            }
            Fact::Partitioned(name) => {
                let found: Option<Record<pharos_admin_api::PartitionedTopicMetadata>> = record(key, found)?;
                let is_marked = found.as_ref().is_some_and(|record| record.value.deleted);
                if let Some(namespace) = self
                    .catalog
                    .inner
                    .known
                    .write()
                    .namespaces
                    .get_mut(name.namespace())
                {
                    namespace.note_mark(&name, is_marked);
                    put(&mut namespace.partitioned, name, found);
                }
            }
            Fact::Topic(name) => self.put_topic(name, record(key, found)?),
            Fact::TopicPolicies(base) => {
                let found = record(key, found)?;
                if let Some(namespace) = self
                    .catalog
                    .inner
                    .known
                    .write()
                    .namespaces
                    .get_mut(base.namespace())
                {
                    put(&mut namespace.topic_policies, base.clone(), found);
                }
                self.catalog.inner.known.tell_policies(PolicyEvent::Topic(base));
            }
            Fact::Schema(..) => {}
        }
        Ok(())
    }

    fn put_namespace(&self, name: &NamespaceName, found: Option<Record<super::Policies>>) {
        let mut state = self.catalog.inner.known.write();
        let Facts { namespaces, .. } = &mut *state;
        match (namespaces.get_mut(name), found) {
            (Some(namespace), Some(record)) => namespace.policies = record,
            (None, Some(record)) => _ = namespaces.insert(name.clone(), Namespace::new(record)),
            (Some(_), None) if self.catalog.inner.options.is_heartbeat(name) => {}
            (_, None) => _ = namespaces.remove(name),
        }
    }

    fn put_topic(&self, name: TopicName, found: Option<Record<super::TopicRecord>>) {
        let Some(record) = found else {
            return self.catalog.inner.known.remove_topic(&name);
        };
        {
            let mut state = self.catalog.inner.known.write();
            let Some(namespace) = state.namespaces.get_mut(name.namespace()) else {
                return;
            };
            let was_there = namespace.has_topic(&name);
            namespace.note_mark(&name, record.value.deleting);
            namespace.topics.insert(name.clone(), record);
            match (was_there, namespace.has_topic(&name)) {
                (false, true) => self.catalog.inner.known.tell(TopicEvent::Created(name.clone())),
                (true, false) => self.catalog.inner.known.tell(TopicEvent::Deleted(name.clone())),
                _ => {}
            }
        }
        // Properties may act on a topic that is loaded.
        self.catalog.inner.known.tell_policies(PolicyEvent::Topic(name));
    }

    /// The history as it is stored; its versions are few, and one that went may be any of them.
    async fn read_schemas(&self, id: String) -> Result<(), StoreError> {
        let mut history = History::default();
        for item in self
            .catalog
            .inner
            .facts
            .store
            .scan(&format!("{}/", keys::schemas(&id)))
            .await?
        {
            if let Some((_, version)) = keys::schema_of(&item.key) {
                history.push(SchemaEntry::decode(&item.key, version, &item.value)?);
            }
        }
        self.catalog.inner.schemas.put(id, history);
        Ok(())
    }
}

impl Namespace {
    /// Applies a topic's stored deletion mark, set or removed. A deletion that this process itself executes is kept.
    fn note_mark(&mut self, name: &TopicName, is_marked: bool) {
        match (is_marked, self.deletions.get(name)) {
            (true, _) => _ = self.deletions.insert(name.clone(), Deleting::Marked),
            (false, Some(Deleting::Marked)) => _ = self.deletions.remove(name),
            (false, _) => {}
        }
    }
}

fn put<K: Ord, T>(all: &mut BTreeMap<K, Record<T>>, name: K, found: Option<Record<T>>) {
    match found {
        Some(record) => _ = all.insert(name, record),
        None => _ = all.remove(&name),
    }
}

fn record<T: DeserializeOwned>(key: &str, found: Option<Versioned>) -> Result<Option<Record<T>>, StoreError> {
    let Some(found) = found else {
        return Ok(None);
    };
    Ok(Some(Record {
        value: Arc::new(decode(key, &found.value)?),
        version: found.version,
    }))
}
