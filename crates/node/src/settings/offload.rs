//! Settings of tiered storage.

use std::time::Duration;

use super::{ByteSize, Limit, ReadPriority, ServerSideEncryption};

/// When ledgers go to an object store, and to which. Policies of namespaces and topics may say otherwise.
#[derive(Clone, Debug, PartialEq)]
pub struct OffloadSettings {
    /// `aws-s3`, `S3`, `filesystem`, or empty for none.
    pub driver: String,
    /// Bytes of closed ledgers that stay.
    pub threshold_size: Limit<ByteSize>,
    /// Age at which closed ledgers go.
    pub threshold_time: Limit<Duration>,
    /// How long the own copy of an offloaded ledger stays.
    pub deletion_lag: Limit<Duration>,
    /// Which copy is read while there are two.
    pub read_priority: ReadPriority,
    /// Bucket.
    pub s3_bucket: String,
    /// Its region.
    pub s3_region: String,
    /// URL of the service, unless it is Amazon's.
    pub s3_endpoint: String,
    /// How it encrypts new objects.
    pub s3_server_side_encryption: ServerSideEncryption,
    /// The key for that.
    pub s3_kms_key_id: String,
    /// `file:///…`
    pub filesystem_uri: String,
    /// Part of an upload.
    pub max_block_size: ByteSize,
    /// What a read fetches.
    pub read_buffer_size: ByteSize,
    /// What is kept of it.
    pub read_cache_size: ByteSize,
    /// Ledgers that are copied at the same time.
    pub max_threads: u32,
    /// Fetches at the same time.
    pub read_threads: u32,
}

impl Default for OffloadSettings {
    fn default() -> Self {
        Self {
            driver: String::new(),
            threshold_size: Limit::Unlimited,
            threshold_time: Limit::Unlimited,
            deletion_lag: Limit::At(Duration::from_secs(4 * 3600)),
            read_priority: ReadPriority::Tiered,
            s3_bucket: String::new(),
            s3_region: String::new(),
            s3_endpoint: String::new(),
            s3_server_side_encryption: ServerSideEncryption::Bucket,
            s3_kms_key_id: String::new(),
            filesystem_uri: String::new(),
            max_block_size: ByteSize::mib(16),
            read_buffer_size: ByteSize::mib(1),
            read_cache_size: ByteSize::mib(32),
            max_threads: 2,
            read_threads: 16,
        }
    }
}

impl OffloadSettings {
    /// What one value alone cannot tell; a sentence per fault. Whether the driver can be used is seen when it is started.
    pub(super) fn faults(&self) -> Vec<String> {
        let block = (ByteSize::mib(5)..=ByteSize::mib(1024)).contains(&self.max_block_size);
        let buffer = (ByteSize::kib(64)..=ByteSize::mib(64)).contains(&self.read_buffer_size);
        let rules = [
            (
                block,
                "offload.max_block_size must be from 5MiB, the least that S3 takes, to 1GiB",
            ),
            (buffer, "offload.read_buffer_size must be from 64KiB to 64MiB"),
            (
                self.s3_kms_key_id.is_empty() || self.s3_server_side_encryption == ServerSideEncryption::Kms,
                "offload.s3_kms_key_id does nothing unless offload.s3_server_side_encryption is aws:kms",
            ),
            (
                (1..=64).contains(&self.max_threads),
                "offload.max_threads must be from 1 to 64",
            ),
            (
                (1..=1024).contains(&self.read_threads),
                "offload.read_threads must be from 1 to 1024",
            ),
        ];
        let broken = rules.into_iter().filter(|(holds, _)| !holds);
        broken.map(|(_, sentence)| sentence.to_owned()).collect()
    }
}
