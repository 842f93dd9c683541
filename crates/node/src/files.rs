//! Division of the open file limit of the process: storage first.
//!
//! ```text
//!  0 ─ what is open at the start ─ HTTP ─ storage at most ─ slack ─┤ limit        the rest is for Pulsar connections
//! ```
//! Without this, clients that take all descriptors would keep storage from opening the next log.

use std::path::Path;
use std::sync::Arc;

use pharos_storage::Storage;
use pharos_transport::ConnectionsMax;

use crate::settings::Settings;

/// For what opens a file for a moment (a directory that is synced, a checkpoint), and for what is not counted.
const SLACK: u64 = 24;

/// Files of journals, and logs that are not full: those of recent starts, and one that is being written.
const STORAGE_MIN: u64 = 48;

/// Division of the open file limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Files {
    /// `None`: there is none.
    limit: Option<u64>,
}

impl Files {
    pub(crate) fn new(limit: Option<u64>) -> Self {
        Self { limit }
    }

    /// Connections of the HTTP server.
    pub(crate) fn http_max(self) -> usize {
        let share = self.limit.map_or(usize::MAX, |limit| {
            usize::try_from(limit / 10).unwrap_or(usize::MAX)
        });
        share.clamp(8, pharos_admin::CONNECTIONS_MAX)
    }

    /// Sessions over WebSocket.
    pub(crate) fn web_sockets_max(self, settings: &Settings) -> usize {
        if !settings.web_socket.service_enabled {
            return 0;
        }
        let share = self.limit.map_or(usize::MAX, |limit| {
            usize::try_from(limit / 16).unwrap_or(usize::MAX)
        });
        share.max(4).min(settings.web_socket.max_sessions as usize)
    }

    /// Files of the HTTP server and of WebSockets. Each of these has two, and is a connection of the Pulsar server besides.
    fn of_http(self, settings: &Settings) -> u64 {
        let http = self.http_max() + self.http_max().div_ceil(8);
        (http + 2 * self.web_sockets_max(settings)) as u64
    }

    /// Connections of the Pulsar server, asked at each: what storage has more than was thought is not given out again.
    pub(crate) fn connections_max(self, settings: &Settings, storage: &Arc<Storage>) -> ConnectionsMax {
        let Some(limit) = self.limit else {
            return ConnectionsMax::none();
        };
        let others = open_now().saturating_sub(storage.open_files()) + self.of_http(settings) + SLACK;
        let planned = planned(settings, storage.open_files()).min(limit / 3);
        let most = limit.saturating_sub(others + planned);
        tracing::info!(
            limit,
            storage = planned,
            connections = most,
            "open files are shared out"
        );
        let storage = Arc::clone(storage);
        ConnectionsMax::new(move || {
            let storage = planned.max(storage.open_files() + STORAGE_MIN / 2);
            usize::try_from(limit.saturating_sub(others + storage)).unwrap_or(usize::MAX)
        })
    }
}

impl Files {
    /// Connection limit if storage is on other machines: its connections are few.
    pub(crate) fn connections_max_without_storage(self, settings: &Settings) -> ConnectionsMax {
        let Some(limit) = self.limit else {
            return ConnectionsMax::none();
        };
        let most = limit.saturating_sub(open_now() + self.of_http(settings) + SLACK + STORAGE_MIN);
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        tracing::info!(limit, connections = most, "open files are shared out");
        ConnectionsMax::new(move || most)
    }
}

/// Number of files that storage may open when its devices are full of logs, beyond those open now.
fn planned(settings: &Settings, now: u64) -> u64 {
    let own = [settings.data_dir.clone()];
    let dirs = match settings.storage.ledger_dirs.0.as_slice() {
        [] => &own[..],
        named => named,
    };
    let log = settings.storage.entry_log_size.0.max(1);
    let logs: u64 = dirs.iter().map(|dir| free_bytes(dir) / log).sum();
    let segments = settings.storage.journal_size.0 / settings.storage.segment_size.0.max(1);
    let journals = settings.storage.journal_dirs.0.len().max(1) as u64;
    now + logs + journals * (segments + u64::from(settings.storage.journal_backups)) + STORAGE_MIN
}

fn free_bytes(dir: &Path) -> u64 {
    let found = rustix::fs::statvfs(dir);
    found.map_or(0, |found| found.f_bavail.saturating_mul(found.f_frsize))
}

/// Files that the process has open.
fn open_now() -> u64 {
    // Where that cannot be seen a few dozen is right.
    std::fs::read_dir("/proc/self/fd").map_or(64, |files| files.count() as u64)
}
