//! Settings of replication to other clusters.

use pharos_client::plugin::AuthPlugin;
use pharos_replication::{RemoteDefaults, ReplicationLimits, remote_credentials};

use super::{ByteSize, ReplicationStart, Secret, Settings};

/// What replicators may have, and who this cluster is to others.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplicationSettings {
    /// Entries of a replicator that are on their way.
    pub producer_queue_size: u32,
    /// Bytes that are on their way to one cluster.
    pub max_in_flight_size: ByteSize,
    /// Where a new replicator begins.
    pub start_at: ReplicationStart,
    /// Pulsar's class of what is shown to other clusters; empty: nothing.
    pub auth_plugin: String,
    /// Its parameters.
    pub auth_params: Secret,
}

impl Default for ReplicationSettings {
    fn default() -> Self {
        Self {
            producer_queue_size: 1000,
            max_in_flight_size: ByteSize::mib(64),
            start_at: ReplicationStart::Latest,
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
