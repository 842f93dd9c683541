//! Reported status of a topic's runs.

use pharos_managed_ledger::CompactionError;

/// Result of the last run since the topic was loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CompactionStatus {
    /// None was begun.
    #[default]
    NotRun,
    /// A run is in progress, or waits for its turn.
    Running,
    /// The run succeeded.
    Success,
    /// The run failed, with the reason.
    Failed(String),
}

/// Runs since the topic was loaded.
#[derive(Clone, Copy, Debug, Default)]
pub struct CompactionCounts {
    /// Runs that are done.
    pub succeeded: u64,
    /// Runs that failed.
    pub failed: u64,
    /// Messages that the last one that is done removed.
    pub last_removed: u64,
    /// Messages that all of them removed.
    pub removed: u64,
    /// Time of the last successful run, in milliseconds since 1970; 0 for never.
    pub succeeded_ms: u64,
    /// Time of the last failed run, in milliseconds since 1970; 0 for never.
    pub failed_ms: u64,
    /// Duration of the last run, in nanoseconds.
    pub last_nanos: u64,
    /// Payload bytes that the last one read.
    pub last_read: u64,
    /// Payload bytes that the last one wrote.
    pub last_written: u64,
}

/// Reason why no run was started.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CompactionAskError {
    /// A run is in progress.
    #[error("the topic is being compacted")]
    Running,
    /// The topic is on its way out.
    #[error("the topic is being closed; try again")]
    Closing,
    /// The topic cannot be compacted.
    #[error(transparent)]
    Refused(CompactionError),
}
