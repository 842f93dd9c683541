//! Files of old segments that become new ones: filling a file costs the device as much as the appends to it.
//!
//! A spare keeps the id of the segment that it was, and what it holds has that id's salt or an older one's. New segments
//! have higher ids, so nothing in a spare is ever taken for theirs. Spares outlive a stop and a crash; deleting them
//! while the store is stopped costs nothing but time.

use std::io;
use std::path::Path;

use pharos_runtime::fs::OpenHow;
use pharos_storage_format::names::{SPARE, file_name, parse};

use crate::shared::{JournalShared, Shared, Spare};

/// True if a file of this length is worth keeping.
pub(super) fn is_full(shared: &Shared, file_bytes: u64) -> bool {
    file_bytes >= shared.options.segment_bytes.next_multiple_of(4096)
}

impl JournalShared {
    fn wants_spare(&self, shared: &Shared, file_bytes: u64) -> bool {
        is_full(shared, file_bytes)
            && self.supply().spares.len() < shared.options.spare_segments
            && !self.queue.lacks_flush_space()
    }

    /// Puts aside or removes the file of a segment that nothing needs any more, while nothing is published. That is durable
    /// with the directory's next sync; until then it may come back after a crash as what it was.
    pub(crate) fn let_go(&self, shared: &Shared, id: u32, path: &Path, file_bytes: u64) -> io::Result<()> {
        if self.put_aside(shared, id, path, file_bytes)? {
            return Ok(());
        }
        shared.fs.remove(path)
    }

    /// Makes a spare of such a file where one is wanted, and says whether it did; durable as there.
    pub(super) fn put_aside(
        &self,
        shared: &Shared,
        id: u32,
        path: &Path,
        file_bytes: u64,
    ) -> io::Result<bool> {
        if !self.wants_spare(shared, file_bytes) {
            return Ok(false);
        }
        let to = self.dir.join(file_name(id, SPARE));
        shared.fs.rename(path, &to)?;
        self.supply().spares.push_back(Spare {
            path: to,
            bytes: file_bytes,
        });
        Ok(true)
    }

    /// Takes over the spares among the files of the directory, as many as are wanted, and removes the others. Returns the
    /// highest id that any of them had.
    pub(crate) fn adopt_spares(&self, shared: &Shared, names: &[String]) -> Option<u32> {
        let mut highest = None;
        let is_spare = |name: &&String| Path::new(name).extension() == Some(SPARE.as_ref());
        for name in names.iter().filter(is_spare) {
            let path = self.dir.join(name);
            let id = parse(name, SPARE);
            highest = highest.max(id);
            let opened = shared.fs.open(&path, OpenHow::READ);
            let bytes = opened.and_then(|file| file.len());
            if let (Some(_), Ok(bytes)) = (id, bytes)
                && self.wants_spare(shared, bytes)
            {
                self.supply().spares.push_back(Spare { path, bytes });
            } else if let Err(error) = shared.fs.remove(&path) {
                tracing::warn!(%error, name, "cannot remove a leftover file");
            }
        }
        highest
    }

    /// Gives up a spare where entry logs have no room: with that the flusher gets on, and segments become free.
    pub(super) fn give_up_spare(&self, shared: &Shared) -> bool {
        if !self.queue.lacks_flush_space() {
            return false;
        }
        let Some(spare) = self.supply().spares.pop_front() else {
            return false;
        };
        let removed = shared.fs.remove(&spare.path);
        if let Err(error) = removed.and_then(|()| shared.fs.sync_dir(&self.dir)) {
            tracing::warn!(%error, path = %spare.path.display(), "cannot remove a spare segment");
        }
        shared.flush_bell.ring();
        true
    }
}
