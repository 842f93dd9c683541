//! Offloading as JSON: the policies of a namespace or topic, and what came of an offload that was asked for.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::MessageIdJson;

/// `offloadPolicies` as tools send it: every member that Pulsar knows. Which of them mean something here, and which are
/// refused, the broker decides.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct OffloadPolicies {
    /// Where plug-ins would be.
    pub offloaders_directory: Option<String>,
    /// `aws-s3`, `S3`, `filesystem`.
    pub managed_ledger_offload_driver: Option<String>,
    /// The most ledgers that are offloaded at the same time.
    pub managed_ledger_offload_max_threads: Option<i32>,
    /// Threads that read.
    pub managed_ledger_offload_read_threads: Option<i32>,
    /// Buffers that are read ahead.
    pub managed_ledger_offload_prefetch_rounds: Option<i32>,
    /// Age after which a closed ledger is offloaded, in seconds; below 0 off.
    pub managed_ledger_offload_threshold_in_seconds: Option<i64>,
    /// Bytes that stay; below 0 off, 0 none.
    pub managed_ledger_offload_threshold_in_bytes: Option<i64>,
    /// Older name of the same.
    pub managed_ledger_offload_auto_trigger_size_threshold_bytes: Option<i64>,
    /// Milliseconds from offloading to the deletion of the broker's copy; below 0 never.
    pub managed_ledger_offload_deletion_lag_in_millis: Option<i64>,
    /// `tiered-storage-first` or `bookkeeper-first`, also as `TIERED_STORAGE_FIRST` or `BOOKKEEPER_FIRST`.
    pub managed_ledger_offloaded_read_priority: Option<String>,
    /// Of plug-ins.
    pub managed_ledger_extra_configurations: Option<BTreeMap<String, String>>,
    /// Of plug-ins.
    pub managed_ledger_offload_driver_metadata: Option<BTreeMap<String, String>>,
    /// S3 region.
    pub s3_managed_ledger_offload_region: Option<String>,
    /// S3 bucket.
    pub s3_managed_ledger_offload_bucket: Option<String>,
    /// URL of the S3 service.
    pub s3_managed_ledger_offload_service_endpoint: Option<String>,
    /// Upper limit of a block.
    pub s3_managed_ledger_offload_max_block_size_in_bytes: Option<i64>,
    /// Upper limit of a fetch.
    pub s3_managed_ledger_offload_read_buffer_size_in_bytes: Option<i64>,
    /// A key's id.
    pub s3_managed_ledger_offload_credential_id: Option<String>,
    /// A key.
    pub s3_managed_ledger_offload_credential_secret: Option<String>,
    /// A role to take.
    pub s3_managed_ledger_offload_role: Option<String>,
    /// Its session's name.
    pub s3_managed_ledger_offload_role_session_name: Option<String>,
    /// Google region.
    pub gcs_managed_ledger_offload_region: Option<String>,
    /// Google bucket.
    pub gcs_managed_ledger_offload_bucket: Option<String>,
    /// Google block.
    pub gcs_managed_ledger_offload_max_block_size_in_bytes: Option<i64>,
    /// Google fetch.
    pub gcs_managed_ledger_offload_read_buffer_size_in_bytes: Option<i64>,
    /// Google credentials.
    pub gcs_managed_ledger_offload_service_account_key_file: Option<String>,
    /// Hadoop profile.
    pub file_system_profile_path: Option<String>,
    /// `file:///…`.
    #[serde(rename = "fileSystemURI")]
    pub file_system_uri: Option<String>,
    /// Bucket, whatever the driver.
    pub managed_ledger_offload_bucket: Option<String>,
    /// Region, whatever the driver.
    pub managed_ledger_offload_region: Option<String>,
    /// URL of the service, whatever the driver.
    pub managed_ledger_offload_service_endpoint: Option<String>,
    /// Upper limit of a block, whatever the driver.
    pub managed_ledger_offload_max_block_size_in_bytes: Option<i64>,
    /// Upper limit of a fetch, whatever the driver.
    pub managed_ledger_offload_read_buffer_size_in_bytes: Option<i64>,
    /// Follows from the driver.
    pub s3_driver: Option<bool>,
    /// Follows from the driver.
    pub gcs_driver: Option<bool>,
    /// Follows from the driver.
    pub file_system_driver: Option<bool>,
}

/// `…/compaction`: what came of the last topic compaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct LongRunningProcessStatus {
    /// `NOT_RUN`, `RUNNING`, `SUCCESS` or `ERROR`.
    pub status: String,
    /// Why it failed; empty otherwise.
    #[serde(default)]
    pub last_error: String,
}

impl LongRunningProcessStatus {
    /// None was begun.
    #[must_use]
    pub fn not_run() -> Self {
        Self {
            status: "NOT_RUN".to_owned(),
            last_error: String::new(),
        }
    }

    /// Takes in what one partition says: the first of running, failed, done that one of them is.
    pub fn add(&mut self, part: Self) {
        let rank = |status: &str| {
            ["SUCCESS", "ERROR", "RUNNING"]
                .iter()
                .position(|word| *word == status)
        };
        if rank(&part.status) > rank(&self.status) {
            *self = part;
        }
    }
}

/// `…/offload`: what came of the last offload that was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct OffloadProcessStatus {
    /// `NOT_RUN`, `RUNNING`, `SUCCESS` or `ERROR`.
    pub status: String,
    /// Why it failed; empty otherwise.
    #[serde(default)]
    pub last_error: String,
    /// The first message that is not offloaded, after a success.
    #[serde(default)]
    pub first_unoffloaded_message: Option<MessageIdJson>,
}
