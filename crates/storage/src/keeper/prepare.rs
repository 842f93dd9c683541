//! Making room for the journal before it is needed.
//!
//! A segment file appears under its final name only when its room is durable: it is filled under a temporary name,
//! synced, renamed, and the directory synced. A file with that name but without a header is therefore empty.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use pharos_ledger::StorageFault;
use pharos_runtime::fs::{AlignedBuf, FsFile, is_no_space};

use super::{Keeper, Pace, RETRY};
use crate::options::Preallocate;
use crate::segments::{SegmentFile, file_name};
use crate::shared::{Prepared, Shared};
use crate::stats::bump;

/// Zeros written at once: about half a millisecond of the device, which is the most that the journal's own writes wait
/// behind them.
const FILL_BYTES: usize = 1 << 20;

impl Keeper {
    /// Prepares the next segment if the journal wants one. `Wait` says when to try again.
    pub(super) fn prepare(&mut self) -> Pace {
        let Some(wanted) = self.shared.supply().wanted else {
            return Pace::Wait(None);
        };
        match self.prepare_sized(wanted) {
            Ok(prepared) => {
                let mut supply = self.shared.supply();
                supply.prepared = Some(prepared);
                supply.wanted = None;
                drop(supply);
                self.shared.queue.set_no_space(false);
                Pace::Again
            }
            Err(_) if self.shared.is_stopping() => Pace::Again,
            Err(error) if is_no_space(&error) => {
                if !self.shared.queue.has_no_space() {
                    tracing::warn!(dir = %self.shared.dir.display(), "no space left for the next segment");
                }
                self.shared.queue.set_no_space(true);
                Pace::Wait(Some(RETRY))
            }
            Err(error) => {
                let what = format!("prepare a segment in {}", self.shared.dir.display());
                self.shared.set_poison(StorageFault::new(what, error));
                Pace::Again
            }
        }
    }

    /// The size that is wanted, or else the smallest that takes any entry.
    fn prepare_sized(&mut self, wanted: u64) -> io::Result<Prepared> {
        if let Some(at) = self.spares.iter().position(|(_, bytes)| *bytes >= wanted)
            && let Some((path, bytes)) = self.spares.remove(at)
        {
            let id = next_id(&self.shared);
            let to = self.shared.dir.join(file_name(id));
            self.shared.fs.rename(&path, &to)?;
            self.shared.fs.sync_dir(&self.shared.dir)?;
            bump(&self.shared.counters.segments_reused, 1);
            return open(&self.shared, id, bytes);
        }
        let smallest = self.shared.options.segment_bytes_after(0);
        match create(&self.shared, wanted) {
            Err(error) if is_no_space(&error) && smallest < wanted => create(&self.shared, smallest),
            created => created,
        }
    }
}

/// Prepares the segment that a store starts with.
pub(crate) fn prepare_first(shared: &Shared) -> io::Result<Prepared> {
    create(shared, shared.options.segment_bytes_first.next_multiple_of(4096))
}

fn next_id(shared: &Shared) -> u32 {
    let mut supply = shared.supply();
    let id = supply.segment_next;
    supply.segment_next += 1;
    id
}

fn create(shared: &Shared, bytes: u64) -> io::Result<Prepared> {
    let id = next_id(shared);
    let temporary = shared.dir.join(format!("{id:08x}.tmp"));
    let filled = shared
        .fs
        .open(&temporary, shared.segment_how())
        .and_then(|file| fill(shared, &*file, bytes));
    if let Err(error) = filled {
        // Best effort: the next start removes what is left.
        let _ = shared.fs.remove(&temporary);
        return Err(error);
    }
    shared.fs.rename(&temporary, &shared.dir.join(file_name(id)))?;
    shared.fs.sync_dir(&shared.dir)?;
    open(shared, id, bytes)
}

fn fill(shared: &Shared, file: &dyn FsFile, bytes: u64) -> io::Result<()> {
    // Reserved first, so that a full device is found out before it is filled up.
    file.allocate(bytes)?;
    if shared.options.preallocate == Preallocate::ZeroFill {
        let zeros = AlignedBuf::zeroed(FILL_BYTES.min(usize::try_from(bytes).unwrap_or(FILL_BYTES)));
        let mut at = 0;
        // What is reserved and not filled reads as zeros as well; it only costs more to write to.
        while at < bytes && !shared.supply_urgent.load(Ordering::Acquire) {
            if shared.is_stopping() {
                return Err(io::Error::from(io::ErrorKind::Interrupted));
            }
            let part = usize::try_from(bytes - at)
                .unwrap_or(FILL_BYTES)
                .min(zeros.capacity());
            file.write_all_at(&zeros.bytes()[..part], at)?;
            at += part as u64;
        }
    }
    file.sync_data()
}

fn open(shared: &Shared, id: u32, bytes: u64) -> io::Result<Prepared> {
    let path = shared.dir.join(file_name(id));
    let file = shared.fs.open(&path, shared.segment_how())?;
    let salt = shared.superblock.salt(id);
    Ok(Prepared {
        file: Arc::new(SegmentFile { id, salt, path, file }),
        bytes,
    })
}
