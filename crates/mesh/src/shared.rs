//! State shared by all shards.

use std::sync::Arc;

use pharos_accounts::budget::Budget;
use pharos_accounts::tenants::Tenants;
use pharos_accounts::unwritten::Unwritten;
use pharos_catalog::{Catalog, EnsureTopicError};
use pharos_feed::entry::EntryCodec;
use pharos_ledger::LedgerEngine;
use pharos_metadata::MetadataStore;
use pharos_requests::error::TopicError;
use pharos_runtime::{Pool, ShutdownToken};
use pharos_transactions::Coordinators;
use pharos_types::TopicName;
use tokio::sync::Semaphore;

use crate::options::Options;
use crate::placement::Placement;

/// Bytes of sends without a receipt that all connections together may have before each stops reading.
pub const PUBLISH_BUDGET_BYTES: u64 = 256 << 20;

/// Topics that are compacted at once; others wait.
pub const COMPACTIONS_MAX: usize = 2;

/// State shared by all shards. Immutable, or safe to share by its own means.
pub struct Shared {
    /// Settings.
    pub options: Options,
    /// Tenants, namespaces, topics that exist, schemas.
    pub catalog: Catalog,
    /// Reads the entries that front doors store.
    pub codec: &'static dyn EntryCodec,
    /// Ledger engine.
    pub engine: Arc<dyn LedgerEngine>,
    /// Metadata store of the ledger lists.
    pub metadata: Arc<dyn MetadataStore>,
    /// Ownership of topics.
    pub placement: Placement,
    /// Says when to stop.
    pub shutdown: ShutdownToken,
    /// Budget of bytes that publishers have in flight, over all connections.
    pub publish_budget: Budget,
    /// Budget of bytes in flight between shards.
    pub mesh_budget: Budget,
    /// Bytes that dispatchers have handed out and sockets have not accepted.
    pub unwritten: Arc<Unwritten>,
    /// Turns of topic compaction, over all topics.
    pub compactions: Semaphore,
    /// Evaluates topic patterns and lists of topics, which takes longer than a shard may spend on a request.
    pub lists: Pool,
    /// Usage and remaining quota of tenants.
    pub tenants: Tenants,
    /// Transaction coordinators; empty if transactions are off.
    pub coordinators: Coordinators,
    /// Tells this run of the broker from others in generated names.
    pub instance: u64,
}

impl Shared {
    /// Checks that a topic may be used, and creates it where that is allowed.
    ///
    /// # Errors
    /// [`TopicError`]: not this broker's, not found, not allowed, or the metadata store failed.
    pub async fn ensure_topic(&self, topic: &TopicName, may_create: bool) -> Result<(), TopicError> {
        self.placement.settle(topic).await;
        self.placement.home(topic)?;
        let ensured = self.catalog.ensure_topic(topic, may_create).await;
        ensured.map(drop).map_err(topic_error)
    }
}

fn topic_error(error: EnsureTopicError) -> TopicError {
    match error {
        EnsureTopicError::TopicNotFound(name) => TopicError::NotFound(name.to_string()),
        EnsureTopicError::NamespaceNotFound | EnsureTopicError::TenantNotFound => {
            TopicError::NoNamespace(error.to_string())
        }
        EnsureTopicError::Deleting(name) => TopicError::Closing(name.to_string()),
        EnsureTopicError::NotAllowed(reason) => TopicError::NotAllowed(reason),
        EnsureTopicError::OtherCluster(other) => TopicError::NotAllowed(other.to_string()),
        EnsureTopicError::Store(error) => TopicError::Metadata(error.to_string()),
    }
}
