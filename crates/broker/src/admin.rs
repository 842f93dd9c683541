//! What the admin front door asks of the broker.
//!
//! The HTTP server holds an `Arc<dyn AdminBackend>` and speaks only in these verbs; the broker implements them by
//! asking the home shards. Whatever is a stored fact (tenants, namespaces, partitioned metadata, schemas, policies) is
//! read and written through [`AdminBackend::catalog`] without passing here.
//!
//! Always true: every verb takes one *topic*, never a partitioned one; a call on a partitioned topic is made once per
//! partition by the front door. The verbs named `…partitioned…` are the exception. Verbs with a default body answer
//! [`AdminError::NotImplemented`]; nothing is accepted and then ignored.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use pharos_admin_api::{
    AnalyzeBacklogResult, BroadcastDetails, ManagedLedgerInfo, OffloadProcessStatus,
    PersistentTopicInternalStats, TopicStats,
};
use pharos_cluster::BrokerAddresses;
use pharos_ledger::BoxFuture;
use pharos_types::{Position, SubscriptionName, TopicName};

use pharos_catalog::Catalog;

mod errors;
mod metrics;

pub use metrics::{
    BroadcastTotals, ConnectionCounters, EntrySizes, LookupCounters, MetricFamily, MetricKind, MetricSample,
    MetricsSnapshot, PastTotals, Stage, TopicMetrics,
};

/// Why an admin verb was not carried out. Each carries the sentence that the client shows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AdminError {
    /// Something named in the call does not exist (404).
    #[error("{0}")]
    NotFound(String),
    /// It exists already, is not empty, or is being changed by somebody else (409).
    #[error("{0}")]
    Conflict(String),
    /// A name or value is wrong, or producers or consumers stand in the way (412).
    #[error("{0}")]
    Precondition(String),
    /// Not possible for this kind of topic (405).
    #[error("{0}")]
    NotAllowed(String),
    /// An argument makes no sense (400).
    #[error("{0}")]
    Invalid(String),
    /// A schema or partition count is not acceptable (422).
    #[error("{0}")]
    Unprocessable(String),
    /// A partition count is out of range (406).
    #[error("{0}")]
    NotAcceptable(String),
    /// Another broker serves the topic: ask it (307).
    #[error("{topic} is served by {}", .addresses.http_url)]
    Elsewhere {
        /// The topic that was asked for, or a partition of it.
        topic: TopicName,
        /// Where its broker is.
        addresses: Arc<BrokerAddresses>,
    },
    /// Not now: starting, stopping or overloaded; try again (503).
    #[error("{0}")]
    Unavailable(String),
    /// The role may not do this (403).
    #[error("{0}")]
    Forbidden(String),
    /// This broker cannot do that yet (501).
    #[error("{0}")]
    NotImplemented(String),
    /// A fault of ours (500).
    #[error("{0}")]
    Internal(String),
}

/// Short for the answer of a verb.
pub type AdminResult<'a, T> = BoxFuture<'a, Result<T, AdminError>>;

/// What to leave out of, or to work out for, a topic's stats. The default is the cheapest complete picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatsFlags {
    /// Count the backlog exactly rather than from counters.
    pub precise_backlog: bool,
    /// Fill `backlogSize` of subscriptions.
    pub subscription_backlog_size: bool,
    /// Fill the publish time of the oldest message in each backlog; costs a read per subscription.
    pub earliest_time_in_backlog: bool,
    /// Leave `publishers` empty.
    pub exclude_publishers: bool,
    /// Leave `consumers` of every subscription empty.
    pub exclude_consumers: bool,
}

impl Default for StatsFlags {
    fn default() -> Self {
        Self {
            precise_backlog: false,
            subscription_backlog_size: true,
            earliest_time_in_backlog: false,
            exclude_publishers: false,
            exclude_consumers: false,
        }
    }
}

/// A place in a topic, as a client names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Before the first entry that exists.
    Earliest,
    /// After the last entry.
    Latest,
    /// At an entry, or at a message within its batch.
    At {
        /// The entry.
        position: Position,
        /// Index in the batch; `None` for the whole entry.
        batch_index: Option<u32>,
        /// After that message rather than at it.
        excluded: bool,
    },
}

/// The last message of a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastMessage {
    /// Its entry; `None` when the topic never had a message (clients get -1:-1).
    pub position: Option<Position>,
    /// Index in its batch; `None` when it is no batch.
    pub batch_index: Option<u32>,
    /// Members of that batch.
    pub batch_size: Option<u32>,
}

/// A stored entry, to look at.
#[derive(Clone, Debug)]
pub struct StoredEntry {
    /// Where it is.
    pub position: Position,
    /// Message metadata and payload as on the wire, without the frame around them.
    pub payload: Bytes,
}

/// What an `examine` counts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExamineFrom {
    /// The first message, forwards.
    Earliest,
    /// The last message, backwards.
    Latest,
}

/// What broadcast listeners to list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BroadcastQuery {
    /// How many of the slowest, at most 1000.
    pub slowest: usize,
    /// Whether to list all of them as well.
    pub consumers: bool,
}

/// The verbs. Implemented by the broker; object-safe, held as `Arc<dyn AdminBackend>`.
///
/// Callable from any thread. Cancel safety: dropping a future does not undo what it began; a write may or may not have
/// happened.
pub trait AdminBackend: Send + Sync {
    /// The shared facts.
    fn catalog(&self) -> &Catalog;

    /// What the node's settings say of offloading, in the shape of the policy `offloadPolicies`; `None` when they name no
    /// driver. All other policies have the broker's level in the catalog.
    fn default_offload_policies(&self) -> Option<serde_json::Value> {
        None
    }

    /// Measures the backlog of every loaded topic now, and does what its quotas say.
    fn check_backlog_quotas(&self) -> AdminResult<'_, ()> {
        not_implemented("checking backlog quotas")
    }

    /// Creates a topic that is no partitioned one.
    ///
    /// # Errors
    /// `Conflict`: it, or a partitioned topic of that name, exists. `Precondition`: a partition name that does not
    /// fit the metadata. `NotFound`: no such namespace.
    fn create_topic(&self, topic: TopicName, properties: BTreeMap<String, String>) -> AdminResult<'_, ()>;

    /// Creates a partitioned topic and, unless `metadata_only`, its partitions.
    ///
    /// # Errors
    /// `Conflict`: exists. `NotAcceptable`: count out of range. `NotFound`: no such namespace.
    fn create_partitioned(
        &self,
        topic: TopicName,
        partitions: u32,
        properties: BTreeMap<String, String>,
        metadata_only: bool,
    ) -> AdminResult<'_, ()>;

    /// Grows a partitioned topic. Subscriptions of the existing partitions are created on the new ones at the earliest
    /// position, so that nothing is missed.
    ///
    /// # Errors
    /// `Conflict`: not partitioned. `Unprocessable`: fewer than now.
    fn grow_partitioned(&self, topic: TopicName, partitions: u32) -> AdminResult<'_, ()>;

    /// Creates the partitions that metadata speaks of and that do not exist.
    fn create_missed_partitions(&self, topic: TopicName) -> AdminResult<'_, ()>;

    /// Deletes a partitioned topic: its partitions, then its metadata, schemas and policies.
    ///
    /// # Errors
    /// `NotFound`; `Precondition` when there are producers or consumers and not `force`.
    fn delete_partitioned(&self, topic: TopicName, force: bool) -> AdminResult<'_, ()>;

    /// Deletes a topic with its subscriptions, schemas and data. `force` disconnects who is on it.
    ///
    /// # Errors
    /// `NotFound`; `Precondition` when there are producers or subscriptions in use and not `force`.
    fn delete_topic(&self, topic: TopicName, force: bool) -> AdminResult<'_, ()>;

    /// Stats of a topic; loads it when it exists and is not loaded.
    ///
    /// # Errors
    /// `NotFound`.
    fn stats(&self, topic: TopicName, flags: StatsFlags) -> AdminResult<'_, TopicStats>;

    /// Ledgers and cursors; loads the topic. `metadata`: with the engine's own description of each ledger.
    fn internal_stats(
        &self,
        topic: TopicName,
        metadata: bool,
    ) -> AdminResult<'_, PersistentTopicInternalStats>;

    /// Ledgers and cursors as stored; does not load the topic.
    fn internal_info(&self, topic: TopicName) -> AdminResult<'_, ManagedLedgerInfo>;

    /// The last message.
    ///
    /// # Errors
    /// `NotAllowed` on a non-persistent topic; `NotFound`.
    fn last_message(&self, topic: TopicName) -> AdminResult<'_, LastMessage>;

    /// Refuses appends from now on; says the last message.
    fn terminate(&self, topic: TopicName) -> AdminResult<'_, LastMessage>;

    /// Disconnects clients and forgets the loaded topic; it loads again when asked for.
    fn unload(&self, topic: TopicName) -> AdminResult<'_, ()>;

    /// Deletes ledgers that nobody needs, now.
    ///
    /// # Errors
    /// `NotAllowed` on a non-persistent topic.
    fn trim(&self, topic: TopicName) -> AdminResult<'_, ()>;

    /// Begins to offload the closed ledgers before a place.
    ///
    /// # Errors
    /// `Conflict`: an earlier call is not done. `Precondition`: no driver is set, or it cannot be used.
    fn offload(&self, topic: TopicName, before: Position) -> AdminResult<'_, ()> {
        drop((topic, before));
        not_implemented("offloading")
    }

    /// What came of the last [`offload`](Self::offload) since the topic was loaded.
    fn offload_status(&self, topic: TopicName) -> AdminResult<'_, OffloadProcessStatus> {
        drop(topic);
        not_implemented("offloading")
    }

    /// Checks offload policies that somebody wants to set.
    ///
    /// # Errors
    /// `Precondition` or `Invalid` with what is wrong.
    fn check_offload_policies(&self, policies: &serde_json::Value) -> Result<(), AdminError> {
        let _ = policies;
        Ok(())
    }

    /// Moves every subscription to the end and deletes closed ledgers.
    fn truncate(&self, topic: TopicName) -> AdminResult<'_, ()> {
        drop(topic);
        not_implemented("truncate")
    }

    /// Names of the topic's durable subscriptions.
    fn subscriptions(&self, topic: TopicName) -> AdminResult<'_, Vec<String>>;

    /// Creates a durable subscription at a place.
    ///
    /// # Errors
    /// `Conflict`: exists. `NotFound`: no such topic. `NotAllowed`: non-persistent.
    fn create_subscription(
        &self,
        topic: TopicName,
        subscription: SubscriptionName,
        place: Place,
        properties: BTreeMap<String, String>,
        replicated: bool,
    ) -> AdminResult<'_, ()>;

    /// Deletes a subscription; `force` disconnects its consumers.
    ///
    /// # Errors
    /// `NotFound`; `Precondition` when consumers are connected and not `force`.
    fn delete_subscription(
        &self,
        topic: TopicName,
        subscription: SubscriptionName,
        force: bool,
    ) -> AdminResult<'_, ()>;

    /// Moves a subscription to a place; consumers are disconnected and come back.
    ///
    /// # Errors
    /// `NotFound`; `Precondition` when the place does not exist; `NotAllowed` on a non-persistent topic.
    fn reset_to(&self, topic: TopicName, subscription: SubscriptionName, place: Place)
    -> AdminResult<'_, ()>;

    /// Moves a subscription to the first message published at or after a time in milliseconds since 1970.
    fn reset_to_time(
        &self,
        topic: TopicName,
        subscription: SubscriptionName,
        timestamp_ms: u64,
    ) -> AdminResult<'_, ()>;

    /// Acknowledges the next `count` entries of the backlog.
    fn skip(&self, topic: TopicName, subscription: SubscriptionName, count: u64) -> AdminResult<'_, ()>;

    /// Acknowledges the whole backlog.
    fn skip_all(&self, topic: TopicName, subscription: SubscriptionName) -> AdminResult<'_, ()>;

    /// Acknowledges what is older than `seconds`.
    fn expire_older(
        &self,
        topic: TopicName,
        subscription: SubscriptionName,
        seconds: u64,
    ) -> AdminResult<'_, ()>;

    /// Acknowledges everything up to a place.
    fn expire_to(
        &self,
        topic: TopicName,
        subscription: SubscriptionName,
        place: Place,
    ) -> AdminResult<'_, ()>;

    /// Properties of a subscription.
    fn subscription_properties(
        &self,
        topic: TopicName,
        subscription: SubscriptionName,
    ) -> AdminResult<'_, BTreeMap<String, String>>;

    /// Replaces the properties of a subscription.
    fn set_subscription_properties(
        &self,
        topic: TopicName,
        subscription: SubscriptionName,
        properties: BTreeMap<String, String>,
    ) -> AdminResult<'_, ()>;

    /// Listeners of a broadcast subscription.
    ///
    /// # Errors
    /// `NotFound`; `Precondition` when the subscription is of another kind.
    fn broadcast_details(
        &self,
        topic: TopicName,
        subscription: SubscriptionName,
        query: BroadcastQuery,
    ) -> AdminResult<'_, BroadcastDetails>;

    /// Reads through a backlog and counts.
    fn analyze_backlog(
        &self,
        topic: TopicName,
        subscription: SubscriptionName,
        from: Option<Place>,
    ) -> AdminResult<'_, AnalyzeBacklogResult> {
        drop((topic, subscription, from));
        not_implemented("analyzing a backlog")
    }

    /// Bytes from a place to the end of the topic.
    fn backlog_bytes(&self, topic: TopicName, from: Place) -> AdminResult<'_, u64> {
        drop((topic, from));
        not_implemented("backlog size")
    }

    /// The `nth` (from 1) entry of a subscription's backlog.
    fn peek(
        &self,
        topic: TopicName,
        subscription: SubscriptionName,
        nth: u64,
    ) -> AdminResult<'_, StoredEntry> {
        drop((topic, subscription, nth));
        not_implemented("peeking at messages")
    }

    /// The `nth` (from 1) message of the topic, counted from one of its ends.
    fn examine(&self, topic: TopicName, from: ExamineFrom, nth: u64) -> AdminResult<'_, StoredEntry> {
        drop((topic, from, nth));
        not_implemented("examining messages")
    }

    /// The entry at a position.
    fn entry_at(&self, topic: TopicName, position: Position) -> AdminResult<'_, StoredEntry> {
        drop((topic, position));
        not_implemented("reading messages by id")
    }

    /// The first message published at or after a time in milliseconds since 1970.
    fn message_at_time(&self, topic: TopicName, timestamp_ms: u64) -> AdminResult<'_, LastMessage> {
        drop((topic, timestamp_ms));
        not_implemented("finding messages by time")
    }

    /// Whether this broker serves a topic now. Takes none.
    fn serves(&self, topic: &TopicName) -> bool {
        let _ = topic;
        true
    }

    /// The broker that serves a topic, after taking it if none has it; `None`: this one.
    ///
    /// # Errors
    /// `Unavailable`: it could not be taken now.
    fn served_by(&self, topic: TopicName) -> AdminResult<'_, Option<Arc<BrokerAddresses>>> {
        drop(topic);
        Box::pin(async { Ok(None) })
    }

    /// Publishes one message to the heartbeat topic and reads it back.
    ///
    /// # Errors
    /// `Unavailable` with what failed.
    fn health(&self) -> AdminResult<'_, ()>;

    /// Why the broker does not take work now: it is stopping, or storage or metadata refuse writes, for good or for the moment.
    /// `None`: it does.
    fn why_not_ready(&self) -> Option<String>;

    /// Everything that the metrics page shows.
    fn metrics(&self) -> AdminResult<'_, MetricsSnapshot>;
}

fn not_implemented<'a, T: Send + 'a>(what: &str) -> AdminResult<'a, T> {
    let error = AdminError::NotImplemented(format!("{what} is not available in this release"));
    Box::pin(std::future::ready(Err(error)))
}
