//! Room that a directory keeps back for when its device is full.
//!
//! Each journal and each ledger directory has a file `RESERVE` with nothing in it but room. On a full device a journal's becomes a
//! segment that takes deletions (and a little that helps to get there), and a ledger directory's is removed, so that what is in
//! memory can be flushed, logs compacted and a checkpoint written. Appends are refused until it is there again.
//!
//! Always true: what has the name `RESERVE` has its room durably, and removing it while the store is stopped loses nothing.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pharos_runtime::fs::{Fs, FsFile, OpenHow};
use pharos_storage_format::names::{RESERVE, RESERVE_TMP};

/// The reserve of one directory.
#[derive(Debug, Default)]
pub(crate) struct Reserve {
    whole: AtomicBool,
}

impl Reserve {
    /// True if the reserve is complete.
    pub(crate) fn is_whole(&self) -> bool {
        self.whole.load(Ordering::Acquire)
    }

    /// Finds what an earlier run kept back, at least `bytes`.
    pub(crate) fn adopt(&self, fs: &dyn Fs, dir: &Path, bytes: u64) {
        let found = fs
            .open(&dir.join(RESERVE), OpenHow::READ)
            .and_then(|file| file.len());
        self.set_whole(bytes == 0 || found.is_ok_and(|found| found >= bytes));
    }

    /// Keeps room back; `fill` gives a new file its room and makes that durable.
    ///
    /// # Errors
    /// As the file system says; then nothing is kept.
    pub(crate) fn keep(
        &self,
        fs: &dyn Fs,
        dir: &Path,
        how: OpenHow,
        fill: impl FnOnce(&dyn FsFile) -> io::Result<()>,
    ) -> io::Result<()> {
        let temporary = dir.join(RESERVE_TMP);
        let filled = fs
            .open(&temporary, how)
            .and_then(|file: Arc<dyn FsFile>| fill(&*file));
        let kept = filled.and_then(|()| {
            fs.rename(&temporary, &dir.join(RESERVE))?;
            fs.sync_dir(dir)
        });
        if kept.is_err() {
            // Best effort, whichever name it has: the next try, or the next start, does it again.
            let _ = fs.remove(&temporary);
            let _ = fs.remove(&dir.join(RESERVE));
        }
        self.set_whole(kept.is_ok());
        kept
    }

    /// Removes the file, so that others have the room. `true`: it was there.
    pub(crate) fn give_up(&self, fs: &dyn Fs, dir: &Path) -> bool {
        if !self.whole.swap(false, Ordering::AcqRel) {
            return false;
        }
        let removed = fs.remove(&dir.join(RESERVE)).and_then(|()| fs.sync_dir(dir));
        if let Err(error) = &removed {
            tracing::warn!(%error, dir = %dir.display(), "cannot remove the reserve");
        }
        removed.is_ok()
    }

    /// Gives the file another name in its directory, durably.
    ///
    /// # Errors
    /// As the file system says; the reserve is gone then.
    pub(crate) fn become_file(&self, fs: &dyn Fs, dir: &Path, to: &Path) -> io::Result<()> {
        self.set_whole(false);
        fs.rename(&dir.join(RESERVE), to)?;
        fs.sync_dir(dir)
    }

    fn set_whole(&self, whole: bool) {
        self.whole.store(whole, Ordering::Release);
    }
}
