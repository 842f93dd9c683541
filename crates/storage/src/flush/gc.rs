//! Removing entry logs that are not needed any more.

use std::io;
use std::sync::Arc;

use pharos_runtime::Nanos;
use pharos_runtime::fs::is_transient;
use pharos_storage_format::file::LogFile;
use pharos_storage_format::log_header::LOG_DATA_AT;
use pharos_storage_format::names::INDEX;

use super::Flusher;
use crate::shared::Shared;
use crate::stats::bump;

impl Flusher {
    /// Removes one log without live entries; `true` when there was one.
    ///
    /// A log whose ledgers were all deleted goes at once: the deletions are durable in a journal or in a checkpoint, and
    /// a start does not miss a log that no ledger needs. One that was emptied by copying waits for the checkpoint that
    /// names the copies.
    pub(super) fn remove_one_log(&mut self, now: Nanos) -> bool {
        self.close_dead_current();
        for dir in 0..self.writers.len() {
            let found = {
                let logs = self.shared.logs(dir);
                let dead = logs
                    .by_id
                    .values()
                    .find(|log| log.is_removable(self.shared.generation()));
                dead.map(|log| Arc::clone(&log.file))
            };
            let Some(file) = found else { continue };
            let shared = &self.shared;
            let begun = self.removals.begin(&*shared.fs, &shared.options, &file, now);
            let removed = begun.and_then(|()| forget_name(shared, &file));
            let mut logs = self.shared.logs(dir);
            if let Err(error) = removed {
                tracing::warn!(%error, path = %file.path.display(), "cannot remove a dead entry log");
                if let Some(log) = logs.by_id.get_mut(&file.id) {
                    log.stuck = true;
                }
            } else {
                logs.by_id.remove(&file.id);
                bump(&self.shared.counters.logs_removed, 1);
            }
            drop(logs);
            self.shared.extents.forget(file.dir, file.id);
            return true;
        }
        false
    }

    /// A log that is still written but has nothing live gets nothing more, so that it can go.
    fn close_dead_current(&mut self) {
        if self.work.is_some() {
            return;
        }
        for (dir, writer) in self.writers.iter_mut().enumerate() {
            let Some(id) = writer.current_log() else { continue };
            let dead = {
                let logs = self.shared.logs(dir);
                let log = logs.by_id.get(&id);
                log.is_some_and(|log| log.live_bytes == 0 && log.end > LOG_DATA_AT)
            };
            if dead {
                writer.close_current();
            }
        }
    }
}

/// Removes a log's file for good, then its index.
pub(crate) fn remove_files(shared: &Shared, file: &LogFile) -> io::Result<()> {
    shared.fs.remove(&file.path)?;
    forget_name(shared, file)
}

/// Makes durable that the file of a log has no name as a log any more, then removes its index.
fn forget_name(shared: &Shared, file: &LogFile) -> io::Result<()> {
    // For the room, and before the index goes: a log that comes back after a crash has nothing live, and one without an
    // index would be read as a whole to make it again.
    match file.path.parent().map(|dir| shared.fs.sync_dir(dir)) {
        // The index stays then, without a log, until the next start.
        Some(Err(error)) if is_transient(&error) => return Ok(()),
        Some(Err(error)) => return Err(error),
        Some(Ok(())) | None => {}
    }
    // An index without a log is ignored, and removed by the next start.
    let _ = shared.fs.remove(&file.path.with_extension(INDEX));
    Ok(())
}
