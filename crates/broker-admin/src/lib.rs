//! Administration of a running broker, for front doors of whatever protocol: a small type for each thing that is administered
//! ([`TopicAdmin`], [`SubscriptionAdmin`], …), all together [`Resources`]; a handler holds the one that it is about.
//!
//! ```text
//!   front door: handlers ──► TopicAdmin, SubscriptionAdmin, … ──► Homes ──► home shards (pharos_broker::manage)
//! ```
//! Each verb goes to the topic's home shard and does its work there; numbers of cursors that are handed over to stream consumers
//! come from one more round over all shards, and are put together here, off the shards. Work on a shard per call grows with
//! subscriptions, never with messages; between calls nothing is done. Stored facts (tenants, namespaces, partitioned
//! metadata, schemas, policies) are read and written through the [`Catalog`](pharos_catalog::Catalog) without passing here.
//!
//! Always true: every verb takes one *topic*, never a partitioned one; a call on a partitioned topic is made once per
//! partition by the front door. The verbs named `…partitioned…` are the exception. All verbs may be called from any thread. Cancel
//! safety: dropping a future does not undo what it began; a write may or may not have happened.
//!
//! Reading order: `resources`, `homes`, `topics`, `subscriptions`, `stats`, `brokers`.

#![forbid(unsafe_code)]

mod assembly;
mod bookies;
mod broadcast;
mod brokers;
mod compaction;
mod error;
mod gather;
mod health;
mod homes;
mod internals;
mod messages;
mod meters;
mod metrics;
mod offload;
mod offload_policies;
mod partitioned;
mod place;
mod resources;
mod snapshot;
mod splits;
mod stats;
mod subscriptions;
mod topics;

#[cfg(test)]
mod tests;

pub use bookies::{BookieAdmin, BookieStore, Racks, WritableBookies};
pub use broadcast::BroadcastQuery;
pub use brokers::{BrokerAdmin, FamilySource, HealthSource, Stores};
pub use compaction::CompactionAdmin;
pub use error::AdminError;
pub use messages::{ExamineFrom, MessageAdmin, StoredEntry};
pub use offload::OffloadAdmin;
pub use place::Place;
pub use resources::Resources;
pub use snapshot::{
    ConnectionCounters, LookupCounters, MetricFamily, MetricKind, MetricSample, MetricsSnapshot, Stage,
    TopicMetrics,
};
pub use splits::SplitOptions;
pub use stats::{StatsAdmin, StatsFlags};
pub use subscriptions::SubscriptionAdmin;
pub use topics::{LastMessage, TopicAdmin};
