//! Writing a checkpoint.

use std::io;
use std::sync::atomic::Ordering;

use pharos_runtime::fs::OpenHow;
use pharos_storage_format::checkpoint::Checkpoint;
use pharos_storage_format::names::{CHECKPOINT, CHECKPOINT_TMP};

use super::{Flusher, Trouble};
use crate::OpenStoreError;
use crate::cache::JournalProgress;
use crate::shared::Shared;
use crate::stats::bump;

impl Flusher {
    /// Makes durable what ledgers and logs say now, with journals covered up to `progress`.
    pub(super) fn write_checkpoint(
        &mut self,
        progress: Vec<JournalProgress>,
        clean: bool,
    ) -> Result<(), Trouble> {
        let generation = self.shared.generation() + 1;
        let checkpoint = collect(&self.shared, &progress, generation, clean);
        let dir = self
            .shared
            .dirs
            .first()
            .map(|dir| dir.path.clone())
            .unwrap_or_default();
        store(&self.shared, &checkpoint)
            .map_err(|error| Trouble::of(format!("write a checkpoint in {}", dir.display()), error))?;
        self.shared.set_generation(generation);
        self.checkpoint_wanted = false;
        bump(&self.shared.counters.checkpoints, 1);
        for ledger in std::mem::take(&mut self.sealing) {
            let mut state = ledger.lock();
            if !state.deleted && state.seal_by_checkpoint {
                state.on_sealed();
            }
        }
        self.shared.set_checkpointed(progress);
        Ok(())
    }

    /// At a start after a clean stop, or with new journals: they are written from now on, so their absence would be a
    /// loss.
    pub(crate) fn take_back_clean(&mut self, fresh: &[bool]) -> Result<(), OpenStoreError> {
        let mut progress = self.shared.all_checkpointed();
        let published = self.shared.cache.progress();
        let nothing = self.shared.cache.fill().bytes == 0;
        for ((mark, published), fresh) in progress.iter_mut().zip(published).zip(fresh) {
            if nothing || *fresh {
                *mark = published;
            }
        }
        match self.write_checkpoint(progress, false) {
            Ok(()) => Ok(()),
            // Only the check for lost directories is the weaker for it.
            Err(Trouble::NoSpace) => Ok(()),
            Err(Trouble::Later(fault) | Trouble::Fault(fault)) => {
                let dir = self
                    .shared
                    .dirs
                    .first()
                    .map(|dir| dir.path.clone())
                    .unwrap_or_default();
                Err(OpenStoreError::io("write a checkpoint in", dir)(
                    io::Error::other(fault),
                ))
            }
        }
    }
}

/// Collects the content of a checkpoint. The marks were taken before; ledgers and logs may be ahead of them, never
/// behind.
fn collect(shared: &Shared, progress: &[JournalProgress], generation: u64, clean: bool) -> Checkpoint {
    let ledger_next = shared.ledger_next.load(Ordering::Acquire);
    let mut ledgers: Vec<_> = shared
        .ledgers
        .all()
        .iter()
        .filter_map(|ledger| ledger.row())
        .collect();
    ledgers.sort_unstable_by_key(|row| row.id);
    // After the ledgers: a log that a row needs is never missing, because only durable deletions let one go.
    let mut logs = Vec::new();
    for dir in 0..shared.dirs.len() {
        logs.extend(shared.logs(dir).ends(dir as u16));
    }
    Checkpoint {
        store_id: shared.store_id,
        generation,
        clean,
        ledger_next,
        journals: progress.iter().map(|progress| progress.mark).collect(),
        logs,
        ledgers,
    }
}

/// Replaces the checkpoint on disk.
pub(crate) fn store(shared: &Shared, checkpoint: &Checkpoint) -> io::Result<()> {
    let Some(dir) = shared.dirs.first() else {
        return Ok(());
    };
    let temporary = dir.path.join(CHECKPOINT_TMP);
    let file = shared.fs.open(&temporary, OpenHow::CREATE)?;
    file.set_len(0)?;
    file.write_all_at(&checkpoint.encode(), 0)?;
    file.sync_data()?;
    shared.fs.rename(&temporary, &dir.path.join(CHECKPOINT))?;
    shared.fs.sync_dir(&dir.path)
}
