//! The words of the admin REST API: JSON shapes and paths, shared by the server and by the command line.
//!
//! Keys are those of Apache Pulsar 4.2, byte for byte, so that existing tools parse our answers. Members that are
//! absent are left out rather than written as `null`; members we do not know are ignored when read. What only Pharos
//! has carries the prefix `pharos`.
//!
//! ```
//! let metadata: pharos_admin_api::PartitionedTopicMetadata = serde_json::from_str(r#"{"partitions":3}"#).unwrap();
//! assert_eq!(metadata.partitions, 3);
//! ```

#![forbid(unsafe_code)]

mod broadcast;
mod cluster;
mod isolation;
mod lenient;
mod message_id;
mod offload;
pub mod paths;
mod policies;
pub mod query;
pub mod routes;
mod schema;
pub mod shape;
mod topic_internals;
mod topic_stats;
mod transactions;

pub use broadcast::{BroadcastCarrier, BroadcastConsumer, BroadcastDetails, BroadcastSummary};
pub use cluster::{
    BookieInfo, BookieName, BookiesClusterInfo, BrokerInfo, BundlesData, ClusterData,
    InternalConfigurationData, LookupData, NamespaceOwnershipStatus, PartitionedTopicMetadata, TenantInfo,
    TopicGrant, TopicRevocation,
};
pub use isolation::{
    AutoFailoverPolicyData, BrokerNamespaceIsolationData, FailureDomain, NamespaceIsolationData,
};
pub use lenient::lenient;
pub use message_id::{MessageIdJson, ResetCursorData};
pub use offload::{LongRunningProcessStatus, OffloadPolicies, OffloadProcessStatus};
pub use policies::{
    AutoSubscriptionCreationOverride, AutoTopicCreationOverride, BacklogQuota, BookieAffinityGroupData,
    DelayedDeliveryPolicies, DispatchRate, InactiveTopicPolicies, PersistencePolicies, PublishRate,
    RetentionPolicies, SubscribeRate,
};
pub use schema::{
    DeleteSchemaResponse, GetAllVersionsSchemaResponse, GetSchemaResponse, IsCompatibilityResponse,
    LongSchemaVersion, PostSchemaPayload, PostSchemaResponse,
};
pub use topic_internals::{
    CursorInfo, CursorStats, LedgerInfo, LedgerSummary, ManagedLedgerInfo, PartitionedManagedLedgerInfo,
    PartitionedTopicInternalStats, PersistentTopicInternalStats, PositionInfo, PositionRange,
};
pub use topic_stats::{
    AnalyzeBacklogResult, CompactionMeters, CompactionStats, ConsumerStats, DrainingHash,
    PartitionedTopicStats, PublisherStats, ReplicatorStats, SubscriptionStats, TopicStats,
};

pub use transactions::{
    TransactionBufferStats, TransactionCoordinatorInfo, TransactionCoordinatorStats,
    TransactionInBufferStats, TransactionInPendingAckStats, TransactionMetadata, TransactionPendingAckStats,
};

use serde::{Deserialize, Serialize};

/// The body of every error answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ErrorData {
    /// What went wrong, for a person; clients show it as it is.
    pub reason: String,
}
