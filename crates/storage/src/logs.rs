//! The entry logs of one ledger directory and how much of each is needed.
//!
//! One lock guards the list; it is held for a few lines, and may be taken while a ledger's state is locked.

use std::collections::BTreeMap;
use std::sync::Arc;

use pharos_storage_format::checkpoint::LogEnd;
use pharos_storage_format::file::LogFile;

/// A log in use.
#[derive(Debug)]
pub(crate) struct Log {
    pub(crate) file: Arc<LogFile>,
    /// The first byte that is no durable data.
    pub(crate) end: u64,
    /// End of its index.
    pub(crate) index_end: u64,
    /// Bytes of records that some ledger's runs name.
    pub(crate) live_bytes: u64,
    /// Gets nothing more.
    pub(crate) closed: bool,
    /// True if the log must not be rewritten: something in it could not be read.
    pub(crate) pinned: bool,
    /// Entries were copied out of it; until the checkpoint of this generation is durable, they may be needed here.
    pub(crate) moved_before: Option<u64>,
    /// Its file could not be removed; the next start tries again.
    pub(crate) stuck: bool,
}

impl Log {
    pub(crate) fn new(file: Arc<LogFile>) -> Self {
        Self {
            file,
            end: 0,
            index_end: 0,
            live_bytes: 0,
            closed: false,
            pinned: false,
            moved_before: None,
            stuck: false,
        }
    }

    /// True if its file can be removed when checkpoint `generation` is durable.
    pub(crate) fn is_removable(&self, generation: u64) -> bool {
        let settled = self.moved_before.is_none_or(|needed| needed <= generation);
        self.closed && self.live_bytes == 0 && settled && !self.stuck
    }
}

/// The logs of one directory.
#[derive(Debug, Default)]
pub(crate) struct Logs {
    pub(crate) by_id: BTreeMap<u32, Log>,
    /// The id of the next log.
    pub(crate) next: u32,
}

impl Logs {
    /// Some records of a log are needed no more.
    pub(crate) fn release(&mut self, log: u32, bytes: u64) {
        if let Some(log) = self.by_id.get_mut(&log) {
            log.live_bytes = log.live_bytes.saturating_sub(bytes);
        }
    }

    /// Returns the logs of a directory for a checkpoint.
    pub(crate) fn ends(&self, dir: u16) -> impl Iterator<Item = LogEnd> {
        self.by_id
            .iter()
            .filter(|(_, log)| log.end > 0)
            .map(move |(id, log)| LogEnd {
                dir: u32::from(dir),
                log: *id,
                end: log.end,
                index_end: log.index_end,
            })
    }
}
