//! End of the flusher.

use std::sync::atomic::Ordering;

use pharos_ledger::StorageFault;
use pharos_runtime::Nanos;
use pharos_storage_format::names::{SEGMENT, file_name, parse};

use super::{Flusher, LogWriter, Trouble};
use crate::shared::Pace;

impl Flusher {
    /// The journals are finished: everything in memory goes to the logs, and a last checkpoint says that the journals
    /// hold nothing more.
    pub(super) fn step_to_end(&mut self, now: Nanos) -> Result<Pace, Trouble> {
        if self.shared.preparers.load(Ordering::Acquire) > 0 {
            return Ok(Pace::Wait(None));
        }
        let fill = self.shared.cache.fill();
        if fill.since.is_some() || !self.shared.parked().is_empty() {
            self.begin(now);
            return Ok(Pace::Again);
        }
        let progress = self.shared.cache.progress();
        self.write_checkpoint(progress, true)?;
        self.writers.iter_mut().for_each(LogWriter::close_current);
        while self.remove_one_log(now) {}
        self.removals.finish(&*self.shared.fs);
        self.let_segments_go();
        self.end();
        Ok(Pace::Stopped)
    }

    /// The store was poisoned: nothing is written any more, only the directories are freed when that is asked for.
    pub(super) fn step_poisoned(&mut self) -> Pace {
        if !self.shared.is_stopping() || self.shared.preparers.load(Ordering::Acquire) > 0 {
            return Pace::Wait(None);
        }
        self.end();
        Pace::Stopped
    }

    /// There is no room to end properly; the journals still have what they promised to keep.
    pub(super) fn give_up(&mut self) -> Pace {
        if self.shared.preparers.load(Ordering::Acquire) > 0 {
            return Pace::Wait(None);
        }
        tracing::warn!("what is in memory cannot be written now; the next start replays the journals");
        let fault = StorageFault::transient("seal", "nothing more could be written before the stop");
        for ledger in self.sealing.drain(..).chain(self.shared.parked().drain(..)) {
            ledger.lock().on_failed(&fault);
        }
        self.end();
        Pace::Stopped
    }

    /// The journals hold nothing that is needed, so their segments need not wait for the next start to go, or become spares.
    fn let_segments_go(&self) {
        for journal in &self.shared.journals {
            if self.shared.options.journal_backups > 0 || journal.segments().by_id.values().any(|s| s.damaged)
            {
                continue;
            }
            let names = self.shared.fs.list(&journal.dir).unwrap_or_default();
            for id in names.iter().filter_map(|name| parse(name, SEGMENT)) {
                let path = journal.dir.join(file_name(id, SEGMENT));
                let bytes = journal.segment_bytes(id);
                if let Err(error) = journal.let_go(&self.shared, id, &path, bytes) {
                    tracing::debug!(%error, path = %path.display(), "cannot remove a journal segment");
                }
            }
        }
    }

    fn end(&mut self) {
        self.finished = true;
        self.shared.unlock_dirs();
    }
}
