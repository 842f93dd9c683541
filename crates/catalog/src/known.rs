//! Known facts of this process: the copy that reads are served from, and the receivers of its changes.
//!
//! The lock guards the copy for a few lines and is never held over an await. Everything stored here is durable
//! already.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use pharos_admin_api::{ClusterData, FailureDomain, PartitionedTopicMetadata, TenantInfo};
use pharos_metadata::Version;
use pharos_types::{Domain, NamespaceName, TopicName};
use tokio::sync::broadcast;

use super::changed_settings::ChangedSettings;
use super::deleting::{Asked, Deleting};
use super::other_cluster::OtherCluster;
use super::policies::{DURABILITY, Policies, TopicPolicies};
use super::policy::BrokerPolicies;
use super::topics::TopicRecord;

/// Changes of the topic list that a watcher may fall behind before it must list again.
pub(super) const TOPIC_EVENTS: usize = 4_096;
/// Changes of policies that a follower may fall behind before it must look at everything again.
const POLICY_EVENTS: usize = 1_024;

/// A topic (no partitioned topic as a whole) came or went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TopicEvent {
    /// The topic was created.
    Created(TopicName),
    /// The topic was deleted.
    Deleted(TopicName),
}

/// Possible change of the effective policies of topics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicyEvent {
    /// For all topics of a namespace.
    Namespace(NamespaceName),
    /// For a topic; with its base name also for its partitions.
    Topic(TopicName),
    /// For all topics: what the broker says.
    Broker,
}

/// The copy, and those who listen to it.
pub(super) struct KnownFacts {
    facts: RwLock<Facts>,
    /// Broker's level of policies, with the settings changed at run time. Has its own lock, because it is also read
    /// while facts are locked.
    broker_policies: RwLock<Arc<BrokerPolicies>>,
    /// Changes of the set of topics, sent while `facts` is locked so that they come in the order of the changes.
    topic_events: broadcast::Sender<TopicEvent>,
    /// Rises with each change of policies, after the copy was changed and before it is sent.
    policy_version: AtomicU64,
    /// Changes of policies, sent after the copy was changed.
    policy_events: broadcast::Sender<PolicyEvent>,
}

/// A fact and the version of it that the store has.
#[derive(Clone, Debug)]
pub(super) struct Record<T> {
    pub(super) value: Arc<T>,
    pub(super) version: Version,
}

/// All facts, by name.
#[derive(Default)]
pub(super) struct Facts {
    pub(super) clusters: BTreeMap<String, Record<ClusterData>>,
    /// By cluster.
    pub(super) isolation: BTreeMap<String, Record<super::IsolationPolicies>>,
    /// By cluster and name.
    pub(super) failure_domains: BTreeMap<(String, String), Record<FailureDomain>>,
    pub(super) tenants: BTreeMap<String, Record<TenantInfo>>,
    pub(super) namespaces: BTreeMap<NamespaceName, Namespace>,
    /// Settings that were changed while brokers run.
    pub(super) changed_settings: Option<Record<ChangedSettings>>,
}

/// A namespace and what is in it.
pub(super) struct Namespace {
    pub(super) policies: Record<Policies>,
    /// Persistent topics that exist, partitions one by one.
    pub(super) topics: BTreeMap<TopicName, Record<TopicRecord>>,
    /// Non-persistent topics that some shard has loaded. Never stored.
    pub(super) loaded: BTreeSet<TopicName>,
    /// Partitioned topics of both domains.
    pub(super) partitioned: BTreeMap<TopicName, Record<PartitionedTopicMetadata>>,
    /// Policies of single topics, by base name.
    pub(super) topic_policies: BTreeMap<TopicName, Record<TopicPolicies>>,
    /// Topics and partitioned topics on their way out.
    pub(super) deletions: BTreeMap<TopicName, Deleting>,
    /// Topic creations under way; while there are any the namespace cannot be deleted.
    pub(super) creating: usize,
    /// A deletion is under way; no topic creation may begin.
    pub(super) deleting: u32,
}

impl Namespace {
    pub(super) fn new(policies: Record<Policies>) -> Self {
        Self {
            policies,
            topics: BTreeMap::new(),
            loaded: BTreeSet::new(),
            partitioned: BTreeMap::new(),
            topic_policies: BTreeMap::new(),
            deletions: BTreeMap::new(),
            creating: 0,
            deleting: 0,
        }
    }

    /// True if topics may not be created here because the namespace is being deleted.
    pub(super) fn is_leaving(&self) -> bool {
        self.deleting > 0 || self.policies.value.is_deleted()
    }
}

impl KnownFacts {
    pub(super) fn new(facts: Facts, broker_policies: Arc<BrokerPolicies>) -> Self {
        Self {
            facts: RwLock::new(facts),
            broker_policies: RwLock::new(broker_policies),
            topic_events: broadcast::Sender::new(TOPIC_EVENTS),
            policy_version: AtomicU64::new(0),
            policy_events: broadcast::Sender::new(POLICY_EVENTS),
        }
    }

    // A panic while the lock is held can only come from a bug in a few lines of map access; the maps are whole either
    // way, so the poison mark says nothing and is dropped.
    pub(super) fn read(&self) -> RwLockReadGuard<'_, Facts> {
        self.facts.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn write(&self) -> RwLockWriteGuard<'_, Facts> {
        self.facts.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn broker_policies(&self) -> Arc<BrokerPolicies> {
        let policies = self
            .broker_policies
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&policies)
    }

    pub(super) fn set_broker_policies(&self, policies: Arc<BrokerPolicies>) {
        *self
            .broker_policies
            .write()
            .unwrap_or_else(PoisonError::into_inner) = policies;
    }

    // ---- who hears of it ---------------------------------------------------------------------------------------

    pub(super) fn topic_events(&self) -> broadcast::Receiver<TopicEvent> {
        self.topic_events.subscribe()
    }

    pub(super) fn policy_events(&self) -> broadcast::Receiver<PolicyEvent> {
        self.policy_events.subscribe()
    }

    pub(super) fn policy_version(&self) -> u64 {
        self.policy_version.load(Ordering::Acquire)
    }

    pub(super) fn tell(&self, event: TopicEvent) {
        // An error only says that there is no watch.
        let _ = self.topic_events.send(event);
    }

    pub(super) fn tell_policies(&self, event: PolicyEvent) {
        self.policy_version.fetch_add(1, Ordering::Release);
        // An error only says that there is no follower.
        let _ = self.policy_events.send(event);
    }

    // ---- topics ------------------------------------------------------------------------------------------------

    /// Puts a stored topic into the copy, unless its partitioned topic is gone meanwhile. `exempt`: whatever partitions there are.
    pub(super) fn insert_topic(&self, name: &TopicName, record: Record<TopicRecord>, exempt: bool) -> bool {
        let mut state = self.write();
        let Some(namespace) = state.namespaces.get_mut(name.namespace()) else {
            return false;
        };
        if !exempt && (namespace.is_deleting(name) || namespace.check_partition(name).is_err()) {
            return false;
        }
        if namespace.topics.insert(name.clone(), record).is_none() {
            self.tell(TopicEvent::Created(name.clone()));
        }
        true
    }

    /// A topic is gone.
    pub(super) fn remove_topic(&self, name: &TopicName) {
        let mut state = self.write();
        let Some(namespace) = state.namespaces.get_mut(name.namespace()) else {
            return;
        };
        namespace.loaded.remove(name);
        let was_told = namespace.deletions.remove(name).is_some();
        if namespace.topics.remove(name).is_some() && !was_told {
            self.tell(TopicEvent::Deleted(name.clone()));
        }
    }

    /// The metadata of a partitioned topic, as it is stored.
    pub(super) fn partitioned(&self, name: &TopicName) -> Option<Record<PartitionedTopicMetadata>> {
        let state = self.read();
        let namespace = state.namespaces.get(name.namespace())?;
        namespace.partitioned.get(name).cloned()
    }

    pub(super) fn put_partitioned(&self, name: &TopicName, record: Record<PartitionedTopicMetadata>) {
        if let Some(namespace) = self.write().namespaces.get_mut(name.namespace()) {
            namespace.partitioned.insert(name.clone(), record);
        }
    }

    /// The property of a topic that says how durable it is; for a partition, its own, then its topic's.
    pub(super) fn durability_word(&self, topic: &TopicName) -> Option<String> {
        let state = self.read();
        let namespace = state.namespaces.get(topic.namespace())?;
        let of = |name: &TopicName| match namespace.partitioned.get(name) {
            Some(whole) => whole.value.properties.as_ref()?.get(DURABILITY).cloned(),
            None => namespace
                .topics
                .get(name)?
                .value
                .properties
                .get(DURABILITY)
                .cloned(),
        };
        of(topic).or_else(|| topic.partition().and_then(|_| of(&topic.base())))
    }

    // ---- deletions ---------------------------------------------------------------------------------------------

    /// Closes a name before its mark is written. Dropping the answer leaves it in doubt.
    pub(super) fn ask_deletion<'a>(&'a self, name: &'a TopicName) -> Option<Asked<'a>> {
        let mut state = self.write();
        let namespace = state.namespaces.get_mut(name.namespace())?;
        namespace.deletions.insert(name.clone(), Deleting::Asked);
        Some(Asked { known: self, name })
    }

    /// The mark is durable.
    pub(super) fn marked(&self, name: &TopicName) {
        let mut state = self.write();
        let Some(namespace) = state.namespaces.get_mut(name.namespace()) else {
            return;
        };
        namespace.deletions.insert(name.clone(), Deleting::Marked);
        if namespace.topics.contains_key(name) {
            self.tell(TopicEvent::Deleted(name.clone()));
        }
    }

    /// The name is free, or in use again.
    pub(super) fn end_deletion(&self, name: &TopicName) {
        if let Some(namespace) = self.write().namespaces.get_mut(name.namespace()) {
            namespace.deletions.remove(name);
        }
    }
}

impl Namespace {
    /// True if a topic exists and is not being deleted.
    pub(super) fn has_topic(&self, name: &TopicName) -> bool {
        self.has_record(name) && !self.is_deleting(name)
    }

    /// True if a topic of that name exists, even while it is being deleted.
    pub(super) fn has_record(&self, name: &TopicName) -> bool {
        match name.domain() {
            Domain::Persistent => self.topics.contains_key(name),
            Domain::NonPersistent => self.loaded.contains(name),
        }
    }

    /// The rule for names that end in `-partition-N`: a partitioned topic must have such a partition. Other names pass.
    pub(super) fn check_partition(&self, name: &TopicName) -> Result<(), String> {
        let Some(index) = name.partition() else {
            return Ok(());
        };
        match self.partitioned.get(&name.base()) {
            None => Err(format!("Partition metadata not found for the partition {name}")),
            Some(whole) if whole.value.deleted => Err(format!("{} is being deleted", name.base())),
            Some(whole) if index >= whole.value.partitions => Err(format!(
                "{name} is not one of the {} partitions of its topic",
                whole.value.partitions
            )),
            Some(_) => Ok(()),
        }
    }
}

/// Missing parent of a topic: its tenant or its namespace.
pub(super) enum Homeless {
    Tenant,
    Namespace,
    /// It is on another cluster.
    OtherCluster(Box<OtherCluster>),
}

impl Facts {
    /// The namespaces of a tenant, without looking at others: names with one beginning stand together.
    pub(super) fn namespaces_of(&self, tenant: &str) -> impl Iterator<Item = &Namespace> {
        // No namespace of the tenant stands before it.
        let first = NamespaceName::new(tenant, "-").ok();
        let from = first.map(|first| self.namespaces.range(first..));
        let from = from.into_iter().flatten();
        from.take_while(move |(name, _)| name.tenant() == tenant)
            .map(|(_, namespace)| namespace)
    }

    /// The namespace of a topic.
    pub(super) fn namespace(&self, topic: &TopicName) -> Result<&Namespace, Homeless> {
        match self.namespaces.get(topic.namespace()) {
            Some(namespace) => Ok(namespace),
            None => Err(self.homeless(topic)),
        }
    }

    pub(super) fn namespace_mut(&mut self, topic: &TopicName) -> Result<&mut Namespace, Homeless> {
        if !self.namespaces.contains_key(topic.namespace()) {
            return Err(self.homeless(topic));
        }
        self.namespaces
            .get_mut(topic.namespace())
            .ok_or(Homeless::Namespace)
    }

    pub(super) fn topic_mut(&mut self, topic: &TopicName) -> Option<&mut Record<TopicRecord>> {
        self.namespaces.get_mut(topic.namespace())?.topics.get_mut(topic)
    }

    fn homeless(&self, topic: &TopicName) -> Homeless {
        if self.tenants.contains_key(topic.namespace().tenant()) {
            Homeless::Namespace
        } else {
            Homeless::Tenant
        }
    }
}
