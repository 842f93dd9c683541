//! Settings of an offloader.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pharos_runtime::fs::{Fs, RealFs};

/// Sizes, limits and times. Names as in Pulsar's configuration where there are any.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bytes of a block, which is one part of an upload and is built in memory (`…OffloadMaxBlockSizeInBytes`). At least 5 MiB,
    /// which is what S3 takes. Default 16 MiB.
    pub block_bytes: usize,
    /// Bytes that a read fetches when more than one entry is wanted (`…OffloadReadBufferSizeInBytes`). Default 1 MiB.
    pub read_bytes: u64,
    /// Ledgers uploaded at the same time (`managedLedgerOffloadMaxThreads`). Each holds up to two blocks in memory. Default 2.
    pub uploads_max: usize,
    /// Fetches under way at the same time (`managedLedgerOffloadReadThreads`). Default 16.
    pub reads_max: usize,
    /// Bytes of all fetches under way together. Default 64 MiB; one larger fetch is still made, alone.
    pub fetch_bytes_max: u32,
    /// Bytes that were fetched and checked and are kept for the next read. Default 32 MiB.
    pub buffer_bytes_max: usize,
    /// The folder in which, or below which, folders may be used as targets; `None`: nowhere.
    pub folders_in: Option<PathBuf>,
    /// The file system on which folders are.
    pub fs: Arc<dyn Fs>,
    /// S3 credentials.
    pub credentials: Credentials,
    /// Encryption of new objects in S3.
    pub encryption: Encryption,
    /// Timeout of one request. Default 2 minutes.
    pub request_timeout: Duration,
    /// Maximum retries of a request that failed temporarily, within `retry_timeout`. Default 5.
    pub retries_max: usize,
    /// See `retries_max`. Default 1 minute.
    pub retry_timeout: Duration,
}

/// Encryption of written objects in S3, with keys that stay there. All who may read an object get it decrypted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Encryption {
    /// As the bucket says by itself.
    #[default]
    Bucket,
    /// With keys of S3 itself (SSE-S3).
    S3,
    /// With a key of the key management service (SSE-KMS).
    Kms {
        /// Key id; empty for the service's default S3 key.
        key_id: String,
    },
}

/// Source of S3 credentials.
#[derive(Clone, Default)]
pub enum Credentials {
    /// As Amazon's tools find them: `AWS_ACCESS_KEY_ID` and its companions, a web identity, the container's or the machine's role.
    #[default]
    Environment,
    /// These.
    Static {
        /// The key's id.
        key_id: String,
        /// The key.
        secret: String,
    },
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Environment => "Environment",
            Self::Static { .. } => "Static",
        })
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            block_bytes: 16 << 20,
            read_bytes: 1 << 20,
            uploads_max: 2,
            reads_max: 16,
            fetch_bytes_max: 64 << 20,
            buffer_bytes_max: 32 << 20,
            folders_in: None,
            fs: Arc::new(RealFs),
            credentials: Credentials::Environment,
            encryption: Encryption::Bucket,
            request_timeout: Duration::from_secs(120),
            retries_max: 5,
            retry_timeout: Duration::from_secs(60),
        }
    }
}
