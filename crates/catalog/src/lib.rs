//! The shared facts: clusters, tenants, namespaces with their policies, the topics that exist, and their schemas.
//!
//! One [`Catalog`] serves every shard and the admin door. It reads from a copy in memory that was loaded at start, and
//! writes to the metadata store first (durable) and to the copy after; who has seen a fact has seen a durable one.
//! `store::FactStore` has what is durable and the names that are being written, `known::KnownFacts` the copy and those who listen
//! to it, `schema::Histories` the schemas. Namespaces, topics and policies are asked of the catalog itself, the rest of a handle for
//! it: [`Clusters`], [`Tenants`], [`PartitionedTopics`], [`schema::Schemas`].
//!
//! Locks. `KnownFacts` guards the copy for a few lines and is never held over an await, `Histories` likewise; where both are held,
//! `KnownFacts` is taken first. Writes of one name go through
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
//!   admin/configuration                                   settings that were changed while brokers run
//!   admin/clusters/<cluster>                              ClusterData
//!   admin/clusters/<cluster>/namespaceIsolationPolicies   IsolationPolicies
//!   admin/clusters/<cluster>/failureDomain/<domain>       FailureDomain
//!   admin/policies/<tenant>                               TenantInfo
//!   admin/policies/<tenant>/<namespace>                   Policies
//!   admin/partitioned-topics/<tenant>/<ns>/<domain>/<t>   PartitionedTopicMetadata
//!   admin/topic-policies/<tenant>/<ns>/<domain>/<t>       a JSON object
//!   admin/topics/<tenant>/<ns>/persistent/<t>             TopicRecord: the topic exists
//!   admin/schemas/<tenant>/<ns>/<t>/<version>             one schema version
//! ```
//! In the metadata of Apache Pulsar the same facts have other names and bytes: `pulsar` presents them under these keys.

#![forbid(unsafe_code)]

use std::sync::Arc;

use pharos_metadata::MetadataStore;
use tokio::sync::broadcast;

mod bundles;
mod carriers;
mod changed_settings;
mod clusters;
mod deleting;
mod division;
mod effective;
mod ensure;
mod failure_domains;
mod follow;
mod isolation;
mod keys;
mod known;
mod list;
mod load;
mod names;
mod namespaces;
mod options;
mod other_cluster;
mod partitions;
mod pattern;
mod policies;
pub mod policy;
pub mod properties;
mod pulsar;
pub mod schema;
mod shadows;
mod store;
mod store_error;
mod tenants;
mod topic_grants;
mod topic_policies;
mod topics;
mod watcher;

pub use bundles::{BundleRange, count_bundles};
pub use carriers::{
    CARRIER_MOVED, CARRIERS, CarrierMove, CarrierMoveKind, CarrierSlots, Carriers, carrier_in, carrier_name,
    carrier_of, carriers_of,
};
pub use changed_settings::{ChangeSettingError, ChangeableSettings, ChangedSettings, RuntimeSettings};
pub use clusters::{ClusterError, Clusters};
pub use deleting::{Deletions, Unfinished};
pub use division::{BundleDivision, middle_of};
pub use ensure::{EnsureTopicError, PartitionedMetadataError};
pub use failure_domains::{FailureDomainError, FailureDomains};
pub use isolation::{Isolation, IsolationError, IsolationPolicies, isolation_of_broker};
pub use known::{PolicyEvent, TopicEvent};
pub use list::{ListMode, TopicListing, TopicLists};
pub use load::OpenCatalogError;
pub use namespaces::{BUNDLES_MAX, Leaving, NamespaceError, Namespaces};
pub use options::CatalogOptions;
pub use other_cluster::{OtherCluster, PeerCluster};
pub use partitions::{PartitionedTopicError, PartitionedTopics};
pub use pattern::{PatternError, TopicPattern};
pub use policies::{
    BROADCAST_CARRIERS, BROADCAST_SUBSCRIPTIONS, CARRIERS_MAX, DURABILITY, GLOBAL, Policies, TopicPolicies,
    durability_of,
};
pub use pulsar::{EventLog, EventLogError, EventLogs, Finding, PulsarFacts, TakenEventLog, Takeover};
pub use shadows::{SHADOW_SOURCE, ShadowError, Shadows};
pub use store::StoreError;
pub use tenants::{TenantError, Tenants};
pub use topics::{TopicError, TopicRecord};
pub use watcher::{TopicListUpdate, TopicListWatcher};

use known::KnownFacts;
use pattern::CompiledPatterns;
use schema::Histories;
use store::FactStore;

/// The shared facts. Cheap to clone; see the module's documentation.
#[derive(Clone)]
pub struct Catalog {
    inner: Arc<Inner>,
}

struct Inner {
    options: CatalogOptions,
    /// Durable facts.
    facts: FactStore,
    /// The copy that reads are served from.
    known: KnownFacts,
    /// Schemas by topic, and whose turn it is to have large ones compared.
    schemas: Histories,
    /// Topic patterns of clients.
    patterns: CompiledPatterns,
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
        &self.inner.facts.store
    }

    /// Changes of the set of topics from now on. A receiver that lags must list again; [`TopicListWatcher`] does so.
    #[must_use]
    pub fn subscribe_topic_events(&self) -> broadcast::Receiver<TopicEvent> {
        self.inner.known.topic_events()
    }

    /// Changes of policies from now on, each sent after readers can see it. A receiver that lags must look at everything.
    #[must_use]
    pub fn subscribe_policy_events(&self) -> broadcast::Receiver<PolicyEvent> {
        self.inner.known.policy_events()
    }

    /// Rises whenever a policy changes: what was worked out from policies at this version holds until then.
    #[must_use]
    pub fn policy_version(&self) -> u64 {
        self.inner.known.policy_version()
    }

    /// The clusters.
    #[must_use]
    pub fn clusters(&self) -> Clusters<'_> {
        Clusters { catalog: self }
    }

    /// The tenants.
    #[must_use]
    pub fn tenants(&self) -> Tenants<'_> {
        Tenants { catalog: self }
    }

    /// The namespaces.
    #[must_use]
    pub fn namespaces(&self) -> Namespaces<'_> {
        Namespaces { catalog: self }
    }

    /// The deletions of topics.
    #[must_use]
    pub fn deletions(&self) -> Deletions<'_> {
        Deletions { catalog: self }
    }

    /// The lists of topics that clients ask for.
    #[must_use]
    pub fn topic_lists(&self) -> TopicLists<'_> {
        TopicLists { catalog: self }
    }

    /// The partitioned topics.
    #[must_use]
    pub fn partitioned(&self) -> PartitionedTopics<'_> {
        PartitionedTopics { catalog: self }
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
