//! What the admin front door asks of the broker.
//!
//! One small interface for each thing that is administered ([`TopicAdmin`], [`SubscriptionAdmin`], …), all together
//! [`Resources`]; a handler holds the one that it is about. The broker implements them by asking the home shards. Whatever is a
//! stored fact (tenants, namespaces, partitioned metadata, schemas, policies) is read and written through the
//! [`Catalog`](pharos_catalog::Catalog) without passing here.
//!
//! Always true: every verb takes one *topic*, never a partitioned one; a call on a partitioned topic is made once per
//! partition by the front door. The verbs named `…partitioned…` are the exception. Verbs with a default body answer
//! [`AdminError::NotImplemented`]; nothing is accepted and then ignored. All verbs may be called from any thread. Cancel safety:
//! dropping a future does not undo what it began; a write may or may not have happened.

use std::sync::Arc;

use bytes::Bytes;

use pharos_cluster::BrokerAddresses;
use pharos_ledger::BoxFuture;
use pharos_types::{Position, TopicName};

mod all;
mod brokers;
mod errors;
mod messages;
mod metrics;
mod offload;
mod stats;
mod subscriptions;
mod topics;

pub use all::Resources;
pub use brokers::BrokerAdmin;
pub use messages::MessageAdmin;
pub use metrics::{
    ConnectionCounters, LookupCounters, MetricFamily, MetricKind, MetricSample, MetricsSnapshot, Stage,
    TopicMetrics,
};
pub use offload::OffloadAdmin;
pub use stats::StatsAdmin;
pub use subscriptions::SubscriptionAdmin;
pub use topics::TopicAdmin;

/// Why an admin verb was not carried out. Each carries the sentence that the client shows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AdminError {
    /// Something named in the call does not exist (404).
    #[error("{0}")]
    NotFound(String),
    /// It exists already, is not empty, or is being changed by another request (409).
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

/// What broadcast stream consumers to list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BroadcastQuery {
    /// How many of the slowest, at most 1000.
    pub slowest: usize,
    /// Whether to list all of them as well.
    pub consumers: bool,
}

fn not_implemented<'a, T: Send + 'a>(what: &str) -> AdminResult<'a, T> {
    let error = AdminError::NotImplemented(format!("{what} is not available in this release"));
    Box::pin(std::future::ready(Err(error)))
}
