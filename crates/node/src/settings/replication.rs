//! Settings of replication to other clusters.

use std::time::Duration;

use pharos_client::plugin::AuthPlugin;
use pharos_replication::{RemoteDefaults, ReplicationLimits, SnapshotLimits, remote_credentials};

use super::{ByteSize, ReplicationStart, Secret, Settings};

/// No snapshots follow each other more closely.
const INTERVAL_MIN: Duration = Duration::from_millis(10);

/// What replicators may have, and who this cluster is to others.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplicationSettings {
    /// Entries of a replicator that are on their way.
    pub producer_queue_size: u32,
    /// Bytes that are on their way to one cluster.
    pub max_in_flight_size: ByteSize,
    /// Where a new replicator begins.
    pub start_at: ReplicationStart,
    /// How subscriptions are replicated.
    pub subscriptions: SubscriptionSettings,
    /// Pulsar's class of what is shown to other clusters; empty: nothing.
    pub auth_plugin: String,
    /// Its parameters.
    pub auth_params: Secret,
}

/// How subscriptions are replicated.
#[derive(Clone, Debug, PartialEq)]
pub struct SubscriptionSettings {
    /// Whether they are.
    pub enabled: bool,
    /// From one snapshot to the next.
    pub snapshot_interval: Duration,
    /// When a snapshot is given up.
    pub snapshot_timeout: Duration,
    /// Those that are kept for a subscription.
    pub max_cached_snapshots: u32,
}

impl Default for SubscriptionSettings {
    fn default() -> Self {
        let limits = SnapshotLimits::default();
        Self {
            enabled: limits.are_on,
            snapshot_interval: limits.interval,
            snapshot_timeout: limits.timeout,
            max_cached_snapshots: u32::try_from(limits.kept_max).unwrap_or(u32::MAX),
        }
    }
}

impl SubscriptionSettings {
    fn limits(&self) -> SnapshotLimits {
        SnapshotLimits {
            are_on: self.enabled,
            interval: self.snapshot_interval,
            timeout: self.snapshot_timeout,
            kept_max: self.max_cached_snapshots as usize,
        }
    }
}

impl Default for ReplicationSettings {
    fn default() -> Self {
        Self {
            producer_queue_size: 1000,
            max_in_flight_size: ByteSize::mib(64),
            start_at: ReplicationStart::Latest,
            subscriptions: SubscriptionSettings::default(),
            auth_plugin: String::new(),
            auth_params: Secret::default(),
        }
    }
}

impl ReplicationSettings {
    fn credentials(&self) -> Result<Option<AuthPlugin>, String> {
        remote_credentials(&self.auth_plugin, self.auth_params.reveal())
    }

    /// A sentence per fault.
    pub(super) fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if self.producer_queue_size == 0 {
            faults.push("replication.producer_queue_size must not be 0".to_owned());
        }
        if self.max_in_flight_size.0 == 0 {
            faults.push("replication.max_in_flight_size must not be 0".to_owned());
        }
        if self.subscriptions.snapshot_interval < INTERVAL_MIN {
            faults.push("replication.subscriptions.snapshot_interval must be at least 10ms".to_owned());
        }
        if self.subscriptions.snapshot_timeout < self.subscriptions.snapshot_interval {
            let text = "replication.subscriptions.snapshot_timeout must not be shorter than replication.subscriptions.snapshot_interval";
            faults.push(text.to_owned());
        }
        if !(3..=10_000).contains(&self.subscriptions.max_cached_snapshots) {
            faults.push("replication.subscriptions.max_cached_snapshots must be 3 to 10000".to_owned());
        }
        let credentials = self.credentials().err();
        faults.extend(credentials.map(|reason| format!("broker_client.auth_plugin: {reason}")));
        faults
    }
}

/// What replicators of each of so many shards may have.
pub(crate) fn limits(settings: &Settings, shards: usize) -> ReplicationLimits {
    let said = &settings.replication;
    let in_all = usize::try_from(said.max_in_flight_size.0).unwrap_or(usize::MAX);
    ReplicationLimits {
        entries_max: said.producer_queue_size as usize,
        bytes_max: (in_all / shards.max(1)).max(1 << 20),
        from_earliest: said.start_at == ReplicationStart::Earliest,
        snapshots: said.subscriptions.limits(),
        defaults: RemoteDefaults {
            // Checked when the settings were read.
            credentials: said.credentials().ok().flatten(),
            tls: settings.cluster.broker_tls.options(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::super::Value as _;
    use super::*;

    #[test]
    fn credentials_that_cannot_be_used_are_a_fault_that_tells_no_secret() {
        let mut settings = Settings::default();
        settings.replication.auth_plugin = "AuthenticationBasic".to_owned();
        settings.replication.auth_params = Secret::parse("hidden-word").unwrap();
        let faults = settings.faults();
        assert!(
            matches!(&faults[..], [fault] if fault.contains("userId") && !fault.contains("hidden-word")),
            "{faults:?}"
        );
        settings.replication.auth_plugin =
            "org.apache.pulsar.client.impl.auth.AuthenticationToken".to_owned();
        assert_eq!(settings.faults(), Vec::<String>::new());
        assert!(limits(&settings, 2).defaults.credentials.is_some());
        assert_eq!(limits(&settings, 2).bytes_max, 32 << 20);
    }
}
