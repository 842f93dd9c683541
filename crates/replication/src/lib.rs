//! What a topic sends to other clusters.
//!
//! ```text
//!   ReplicatorSource ─ entries ─► outgoing ─ skip or send ─► SendWindow ─ receipts ─► the place that a cursor stores
//!   (the topic)                                                  │
//!   RemoteLinks ─ one RemoteLink for a cluster ─ connection, bytes on their way ◄─┘
//! ```
//! Of each topic and each other cluster there is a *replicator*: [`replicate`], a task that reads the topic's log in order and sends each
//! entry to the topic of the same name over there. What it decides by is without I/O and clock: [`SendWindow`] knows what is on
//! its way, [`outgoing`](outgoing::outgoing) what becomes of an entry, [`RetryPace`] when it is tried again.
//!
//! What clusters tell each other of subscriptions are entries of the log too, [`Marker`]s, and go the same way; [`Snapshots`] and [`SnapshotsAhead`]
//! know what they mean, without I/O and clock.
//!
//! Always true: the place that is stored is never behind an entry that has no receipt from over there; entries leave in the order
//! of the log; after a break all without a receipt is sent again, from the first on. So nothing is lost or reordered, and what is
//! sent again is told by its place ([`SOURCE_POSITION`](pharos_wire::message::SOURCE_POSITION)).

#![forbid(unsafe_code)]

mod credentials;
mod links;
mod markers;
mod meter;
pub mod outgoing;
mod pace;
mod remote;
mod run;
#[cfg(test)]
mod snapshot_tests;
mod snapshots;
#[cfg(test)]
mod tests;
mod window;

pub use credentials::remote_credentials;
pub use links::{RemoteLink, RemoteLinks};
pub use markers::{ClusterPlaces, Marker, is_of_subscriptions};
pub use meter::{ReplicatorCounts, ReplicatorMeter};
pub use pace::RetryPace;
pub use pharos_admin_api::ClusterData;
pub use remote::{RemoteCluster, RemoteDefaults, UnusableCluster, check_cluster_data};
pub use run::{Replicated, ReplicatorSource, SourceEntry, SourceFault, SourceSchema, replicate};
pub use snapshots::{SnapshotLimits, SnapshotStep, Snapshots, SnapshotsAhead};
pub use window::{Answered, SendWindow, SentAs, UnexpectedAnswer};

/// How the names of cursors and producers of replicators begin.
pub const PREFIX: &str = "pulsar.repl";

/// The cursor of the replicator to a cluster.
#[must_use]
pub fn cursor_name(remote: &str) -> String {
    format!("{PREFIX}.{remote}")
}

/// The cluster that a cursor's replicator goes to; `None`: it is no replicator's.
#[must_use]
pub fn cluster_of_cursor(name: &str) -> Option<&str> {
    name.strip_prefix(PREFIX)?.strip_prefix('.')
}

/// The producer of a replicator.
#[must_use]
pub fn producer_name(local: &str, remote: &str) -> String {
    format!("{PREFIX}.{local}-->{remote}")
}

/// The cluster that a replicator's producer comes from; `None`: it is no replicator's.
#[must_use]
pub fn cluster_of_producer(name: &str) -> Option<&str> {
    let (from, _) = cluster_of_cursor(name)?.split_once("-->")?;
    Some(from)
}

/// What replicators may have, and where new ones begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicationLimits {
    /// Entries of one replicator that are on their way, at least 1.
    pub entries_max: usize,
    /// Bytes that are on their way to one cluster, over all topics of a shard. One entry goes whatever this is.
    pub bytes_max: usize,
    /// Whether a new replicator begins with what is already in the log, instead of what comes from then on.
    pub from_earliest: bool,
    /// What connections have where a cluster's data say nothing.
    pub defaults: RemoteDefaults,
    /// How subscriptions are replicated.
    pub snapshots: SnapshotLimits,
}

impl Default for ReplicationLimits {
    fn default() -> Self {
        Self {
            entries_max: 1000,
            bytes_max: 32 << 20,
            from_earliest: false,
            defaults: RemoteDefaults::default(),
            snapshots: SnapshotLimits::default(),
        }
    }
}
