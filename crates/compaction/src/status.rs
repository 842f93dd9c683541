//! What is told of the runs of a topic.

use pharos_managed_ledger::CompactionError;

/// What came of the last run since the topic was loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CompactionStatus {
    /// None was begun.
    #[default]
    NotRun,
    /// One is under way, or waits for its turn.
    Running,
    /// It is done.
    Success,
    /// It failed; why.
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
    /// When the last one was done, in milliseconds since 1970; 0 for never.
    pub succeeded_ms: u64,
    /// When the last one failed, in milliseconds since 1970; 0 for never.
    pub failed_ms: u64,
    /// How long the last one took, in nanoseconds.
    pub last_nanos: u64,
    /// Payload bytes that the last one read.
    pub last_read: u64,
    /// Payload bytes that the last one wrote.
    pub last_written: u64,
}

/// Why no run was begun.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CompactionAskError {
    /// One is under way.
    #[error("the topic is being compacted")]
    Running,
    /// The topic is on its way out.
    #[error("the topic is being closed; try again")]
    Closing,
    /// It cannot be compacted.
    #[error(transparent)]
    Refused(CompactionError),
}
