//! Administration of a running broker, for front doors of whatever protocol: one interface for each thing that is administered,
//! and [`Backend`], which carries all of them out on the topics' home shards.
//!
//! ```text
//!   front door: handlers ──► TopicAdmin, SubscriptionAdmin, StatsAdmin, …  ◄── Backend ──► pharos_broker::manage, Catalog
//! ```
//! Reading order: `resource`, `backend`.

#![forbid(unsafe_code)]

mod backend;
mod resource;

pub use backend::{Backend, FamilySource, HealthSource};
pub use resource::{
    AdminError, AdminResult, BroadcastQuery, BrokerAdmin, ConnectionCounters, ExamineFrom, LastMessage,
    LookupCounters, MessageAdmin, MetricFamily, MetricKind, MetricSample, MetricsSnapshot, OffloadAdmin,
    Place, Resources, Stage, StatsAdmin, StatsFlags, StoredEntry, SubscriptionAdmin, TopicAdmin,
    TopicMetrics,
};
