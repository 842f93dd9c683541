//! The shared facts: clusters, tenants, namespaces with their policies, the topics that exist, and their schemas.
//!
//! One [`Catalog`] serves every shard and the admin door. It reads from a copy in memory that was loaded at start, and
//! writes to the metadata store first (durable) and to the copy after; who has seen a fact has seen a durable one.
//!
//! Locks. `state` guards the copy for a few lines and is never held over an await. Writes of one name go through
//! `names::NameLocks` one after the other, because they look, write and then change the copy; writes of different
//! names run side by side and the store commits them together. Where two name locks nest, the wider one is taken
//! first: tenant, then namespace, then topic. A topic write does not lock its namespace: it announces itself in the
//! copy (`Namespace::creating`), which stops the namespace from being deleted under it.
//!
//! Other brokers may write to the same store: [`Catalog::follow`] brings what they change into the copy, and a write that meets
//! their change (compare-and-set) is decided again on what is there. What spans two keys is not guarded against them: a
//! namespace that one broker deletes while another makes a topic in it.
//!
//! ```text
//! store keys (local names are URL-encoded)
//!   admin/clusters/<cluster>                              ClusterData
//!   admin/policies/<tenant>                               TenantInfo
//!   admin/policies/<tenant>/<namespace>                   Policies
//!   admin/partitioned-topics/<tenant>/<ns>/<domain>/<t>   PartitionedTopicMetadata
//!   admin/topic-policies/<tenant>/<ns>/<domain>/<t>       a JSON object
//!   admin/topics/<tenant>/<ns>/persistent/<t>             TopicRecord: the topic exists
//!   admin/schemas/<tenant>/<ns>/<t>/<version>             one schema version
//! ```

#![forbid(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use pharos_admin_api::{ClusterData, PartitionedTopicMetadata, TenantInfo};
use pharos_metadata::{MetadataStore, Version};
use pharos_types::{NamespaceName, TopicName};
use tokio::sync::broadcast;

mod clusters;
mod deleting;
mod effective;
mod ensure;
mod follow;
mod keys;
mod list;
mod load;
mod names;
mod namespaces;
mod options;
mod partitions;
mod policies;
pub mod policy;
pub mod schema;
mod store;
mod store_error;
mod tenants;
mod topic_policies;
mod topics;
mod watcher;

pub use clusters::ClusterError;
pub use deleting::Unfinished;
pub use ensure::{EnsureTopicError, PartitionedMetadataError};
pub use list::{ListMode, PatternError, TopicListing, TopicPattern};
pub use load::OpenCatalogError;
pub use namespaces::{BUNDLES_MAX, Leaving, NamespaceError};
pub use options::CatalogOptions;
pub use partitions::PartitionedTopicError;
pub use policies::{BROADCAST_SUBSCRIPTIONS, DURABILITY, GLOBAL, Policies, TopicPolicies, durability_of};
pub use store::StoreError;
pub use tenants::TenantError;
pub use topics::{TopicError, TopicRecord};
pub use watcher::{TopicListUpdate, TopicListWatcher};

/// Changes of the topic list that a watcher may fall behind before it must list again.
const TOPIC_EVENTS: usize = 4_096;
/// Changes of policies that a follower may fall behind before it must look at everything again.
const POLICY_EVENTS: usize = 1_024;

/// The shared facts. Cheap to clone; see the module's documentation.
#[derive(Clone)]
pub struct Catalog {
    inner: Arc<Inner>,
}

struct Inner {
    store: Arc<dyn MetadataStore>,
    options: CatalogOptions,
    /// The copy that reads are served from.
    state: RwLock<Facts>,
    /// Who is writing which name.
    names: names::NameLocks,
    /// Whose turn it is to have large schemas compared.
    examining: tokio::sync::Semaphore,
    /// Changes of the set of topics, sent while `state` is locked so that they come in the order of the changes.
    topic_events: broadcast::Sender<TopicEvent>,
    /// Rises with each change of policies, after the copy was changed and before it is sent.
    policy_version: AtomicU64,
    /// Changes of policies, sent after the copy was changed.
    policy_events: broadcast::Sender<PolicyEvent>,
}

/// A topic (no partitioned topic as a whole) came or went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TopicEvent {
    /// It exists from now on.
    Created(TopicName),
    /// It is gone.
    Deleted(TopicName),
}

/// What holds for topics may have changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicyEvent {
    /// For all topics of a namespace.
    Namespace(NamespaceName),
    /// For a topic; with its base name also for its partitions.
    Topic(TopicName),
}

/// A fact and the version of it that the store has.
#[derive(Clone, Debug)]
struct Record<T> {
    value: Arc<T>,
    version: Version,
}

/// All facts, by name.
#[derive(Default)]
struct Facts {
    clusters: BTreeMap<String, Record<ClusterData>>,
    tenants: BTreeMap<String, Record<TenantInfo>>,
    namespaces: BTreeMap<NamespaceName, Namespace>,
    /// By schema id, the `tenant/namespace/topic` that all partitions share.
    schemas: HashMap<String, Arc<schema::History>>,
}

/// A namespace and what is in it.
struct Namespace {
    policies: Record<Policies>,
    /// Persistent topics that exist, partitions one by one.
    topics: BTreeMap<TopicName, Record<TopicRecord>>,
    /// Non-persistent topics that some shard has loaded. Never stored.
    loaded: BTreeSet<TopicName>,
    /// Partitioned topics of both domains.
    partitioned: BTreeMap<TopicName, Record<PartitionedTopicMetadata>>,
    /// Policies of single topics, by base name.
    topic_policies: BTreeMap<TopicName, Record<TopicPolicies>>,
    /// Topics and partitioned topics on their way out.
    deletions: BTreeMap<TopicName, deleting::Deleting>,
    /// Topic creations under way; while there are any the namespace cannot be deleted.
    creating: usize,
    /// A deletion is under way; no topic creation may begin.
    deleting: u32,
}

impl Namespace {
    fn new(policies: Record<Policies>) -> Self {
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

    /// Whether topics may not be made here because the namespace is on its way out.
    fn is_leaving(&self) -> bool {
        self.deleting > 0 || self.policies.value.is_deleted()
    }
}

impl Catalog {
    /// The settings it was opened with.
    #[must_use]
    pub fn options(&self) -> &CatalogOptions {
        &self.inner.options
    }

    /// The store behind it, for facts that are kept elsewhere.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn MetadataStore> {
        &self.inner.store
    }

    /// Changes of the set of topics from now on. A receiver that lags must list again; [`TopicListWatcher`] does so.
    #[must_use]
    pub fn subscribe_topic_events(&self) -> broadcast::Receiver<TopicEvent> {
        self.inner.topic_events.subscribe()
    }

    /// Changes of policies from now on, each sent after readers can see it. A receiver that lags must look at everything.
    #[must_use]
    pub fn subscribe_policy_events(&self) -> broadcast::Receiver<PolicyEvent> {
        self.inner.policy_events.subscribe()
    }

    // A panic while the lock is held can only come from a bug in a few lines of map access; the maps are whole either
    // way, so the poison mark says nothing and is dropped.
    fn read(&self) -> RwLockReadGuard<'_, Facts> {
        self.inner.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Facts> {
        self.inner.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, event: TopicEvent) {
        // An error only says that there is no watch.
        let _ = self.inner.topic_events.send(event);
    }
}

impl Catalog {
    /// Rises whenever a policy changes: what was worked out from policies at this version holds until then.
    #[must_use]
    pub fn policy_version(&self) -> u64 {
        self.inner.policy_version.load(Ordering::Acquire)
    }

    fn tell_policies(&self, event: PolicyEvent) {
        self.inner.policy_version.fetch_add(1, Ordering::Release);
        // An error only says that there is no follower.
        let _ = self.inner.policy_events.send(event);
    }
}

impl std::fmt::Debug for Catalog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Catalog")
            .field("options", &self.inner.options)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
