//! Replication of topics to other clusters.
//!
//! ```text
//!   ReplicatorSource ─ entries ─► outgoing ─ skip or send ─► SendWindow ─ receipts ─► the place that a cursor stores
//!   (the topic)                                                  │
//!   RemoteLinks ─ one RemoteLink for a cluster ─ connection, bytes on their way ◄─┘
//! ```
//! Each topic has a *replicator* for each other cluster: [`replicate`], a task that reads the topic's log in order
//! and sends each entry to the topic of the same name in the remote cluster. Its decisions are without I/O and clock:
//! [`SendWindow`] tracks what is in flight, [`outgoing`](outgoing::outgoing) decides about an entry, [`RetryPace`]
//! determines the time of the next try.
//!
//! Clusters exchange the state of subscriptions as entries of the log too, [`Marker`]s, which are replicated the same
//! way; [`Snapshots`] and [`SnapshotsAhead`] interpret them, without I/O and clock.
//!
//! Always true: the stored position is never behind an entry that has no receipt from the remote cluster; entries
//! leave in the order of the log; after a lost connection everything without a receipt is sent again, from the first
//! on. So nothing is lost or reordered, and repeated entries are recognized by their position
//! ([`SOURCE_POSITION`](pharos_wire::message::SOURCE_POSITION)).

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

/// Prefix of the names of replicators' cursors and producers.
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

/// Limits of replicators, and the start position of new ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicationLimits {
    /// Entries of one replicator that are on their way, at least 1.
    pub entries_max: usize,
    /// Bytes that are on their way to one cluster, over all topics of a shard. One entry goes whatever this is.
    pub bytes_max: usize,
    /// True if a new replicator begins with the existing entries of the log, instead of those published from then on.
    pub from_earliest: bool,
    /// Connection defaults for values that a cluster's data do not set.
    pub defaults: RemoteDefaults,
    /// Limits of replicated subscriptions.
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
