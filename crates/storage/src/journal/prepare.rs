//! A journal's preparer: the next segment before it is needed, and old segments when they are no longer needed.
//!
//! A segment file appears under its final name only when its room is durable: it is filled under a temporary name,
//! synced, renamed, and the directory synced. A file with that name but without a header is therefore empty. One thread
//! per journal calls [`Preparer::step`] in a loop ([`run`]); tests call it themselves. It never touches the segment being
//! written.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use pharos_ledger::StorageFault;
use pharos_runtime::fs::{AlignedBuf, FsFile, is_no_space};
use pharos_runtime::{Nanos, clock};

use super::segments::SegmentFile;
use crate::format::names::{SEGMENT, file_name};
use crate::options::Preallocate;
use crate::shared::{JournalShared, Pace, Prepared, Shared};
use crate::stats::bump;

/// Zeros written at once: about half a millisecond of the device, which is the most that the journal's own writes wait
/// behind them.
const FILL_BYTES: usize = 1 << 20;

/// The same beside a calm journal: its groups are small and somebody waits for each, so hardly any should find the device
/// taken. With a pause after each write that is a hundredth of the device's time, and 6 MB/s.
const FILL_BYTES_CALM: usize = 64 << 10;
const CALM_PAUSE: Duration = Duration::from_millis(10);
/// A journal is calm whose last segment lasted at least so long, ...
const CALM_AFTER: Duration = Duration::from_secs(5);
/// ... until it writes more than this between two looks.
const CALM_BYTES_MAX: usize = 128 << 10;

/// How long to wait before trying again what the system refused.
const RETRY: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub(crate) struct Preparer {
    shared: Arc<Shared>,
    number: usize,
    /// Files of old segments, to be written again: path and length.
    spares: VecDeque<(PathBuf, u64)>,
    /// When the last segment was prepared, about when it was begun that is. Only on a thread of its own.
    prepared_at: Option<Nanos>,
}

impl Preparer {
    pub(crate) fn new(shared: Arc<Shared>, number: usize) -> Self {
        Self {
            shared,
            number,
            spares: VecDeque::new(),
            prepared_at: None,
        }
    }

    fn here(&self) -> &JournalShared {
        &self.shared.journals[self.number]
    }

    /// Does one thing, the most urgent first.
    pub(crate) fn step(&mut self) -> Pace {
        if self.shared.is_stopping() {
            return Pace::Stopped;
        }
        if self.shared.poison().is_some() {
            return Pace::Wait(None);
        }
        let pace = self.prepare();
        if pace == Pace::Again || self.trim_one() {
            return Pace::Again;
        }
        pace
    }

    /// Prepares the next segment if the journal wants one. `Wait` says when to try again.
    fn prepare(&mut self) -> Pace {
        let Some(wanted) = self.here().supply().wanted else {
            return Pace::Wait(None);
        };
        match self.prepare_sized(wanted) {
            Ok(prepared) => {
                let here = self.here();
                let mut supply = here.supply();
                supply.prepared = Some(prepared);
                supply.wanted = None;
                drop(supply);
                here.queue.set_no_space(false);
                Pace::Again
            }
            Err(_) if self.shared.is_stopping() => Pace::Again,
            Err(error) if is_no_space(&error) => {
                let here = self.here();
                if !here.queue.has_no_space() {
                    tracing::warn!(dir = %here.dir.display(), "no space left for the next journal segment");
                }
                here.queue.set_no_space(true);
                // Room may come from the logs.
                self.shared.flush_bell.ring();
                Pace::Wait(Some(RETRY))
            }
            Err(error) => {
                let what = format!("prepare a segment in {}", self.here().dir.display());
                self.shared.set_poison(StorageFault::new(what, error));
                Pace::Again
            }
        }
    }

    /// The size that is wanted, or else the smallest that takes any entry.
    fn prepare_sized(&mut self, wanted: u64) -> io::Result<Prepared> {
        let here = &self.shared.journals[self.number];
        if let Some(at) = self.spares.iter().position(|(_, bytes)| *bytes >= wanted)
            && let Some((path, bytes)) = self.spares.remove(at)
        {
            let id = next_id(here);
            let to = here.dir.join(file_name(id, SEGMENT));
            self.shared.fs.rename(&path, &to)?;
            self.shared.fs.sync_dir(&here.dir)?;
            bump(&self.shared.counters.segments_reused, 1);
            return open(&self.shared, here, id, bytes);
        }
        let smallest = self.shared.options.segment_bytes_after(0);
        let calm = self.is_calm();
        match create(&self.shared, here, wanted, calm) {
            Err(error) if is_no_space(&error) && smallest < wanted => {
                create(&self.shared, here, smallest, calm)
            }
            created => created,
        }
    }

    /// Whether the journal has been in no hurry with its last segment.
    fn is_calm(&self) -> bool {
        let after = u64::try_from(CALM_AFTER.as_nanos()).unwrap_or(u64::MAX);
        self.prepared_at.is_some_and(|at| clock::now().since(at) >= after)
    }

    /// Removes the oldest segment, or puts its file aside, when everything in it is in the entry logs and a durable
    /// checkpoint says so.
    fn trim_one(&mut self) -> bool {
        let options = &self.shared.options;
        let here = &self.shared.journals[self.number];
        let sequence = self.shared.checkpointed(self.number).mark.sequence;
        let found = {
            let segments = here.segments();
            let id = segments.find_trimmable(sequence, options.journal_backups);
            id.and_then(|id| segments.by_id.get(&id))
                .map(|segment| (Arc::clone(&segment.file), segment.file_bytes, segment.damaged))
        };
        let Some((file, file_bytes, damaged)) = found else {
            return false;
        };
        let full = file_bytes >= options.segment_bytes.next_multiple_of(4096);
        let done = if damaged {
            self.put_aside(&file, "damaged")
        } else if full && self.spares.len() < options.spare_segments {
            let spare = self.put_aside(&file, "spare");
            self.spares
                .extend(spare.as_ref().ok().map(|path| (path.clone(), file_bytes)));
            spare
        } else {
            let path = file.path.clone();
            let removed = self.shared.fs.remove(&path);
            // Synced for the room alone: a segment that comes back after a crash lies before the mark and goes again.
            removed
                .and_then(|()| self.shared.fs.sync_dir(&here.dir))
                .map(|()| path)
        };
        let here = self.here();
        let mut segments = here.segments();
        match done {
            Ok(_) => {
                segments.by_id.remove(&file.id);
                bump(&self.shared.counters.segments_removed, 1);
            }
            Err(error) => {
                tracing::warn!(%error, path = %file.path.display(), "cannot remove an old journal segment");
                if let Some(segment) = segments.by_id.get_mut(&file.id) {
                    segment.stuck = true;
                }
            }
        }
        true
    }

    fn put_aside(&self, file: &SegmentFile, ending: &str) -> io::Result<PathBuf> {
        let dir = &self.here().dir;
        let to = dir.join(file_name(file.id, ending));
        self.shared.fs.rename(&file.path, &to)?;
        self.shared.fs.sync_dir(dir)?;
        Ok(to)
    }
}

/// The preparer's thread.
pub(crate) fn run(mut preparer: Preparer) {
    let shared = Arc::clone(&preparer.shared);
    loop {
        let wanted = preparer.here().supply().wanted.is_some();
        let pace = preparer.step();
        if wanted {
            preparer.prepared_at = Some(clock::now());
        }
        match pace {
            Pace::Again => {}
            Pace::Wait(timeout) => shared.journals[preparer.number].bell.wait(timeout),
            Pace::Stopped => break,
        }
    }
}

/// Prepares the segment that a journal starts with.
pub(crate) fn prepare_first(shared: &Shared, number: usize) -> io::Result<Prepared> {
    let bytes = shared.options.segment_bytes_first.next_multiple_of(4096);
    create(shared, &shared.journals[number], bytes, false)
}

fn next_id(here: &JournalShared) -> u32 {
    let mut supply = here.supply();
    let id = supply.segment_next;
    supply.segment_next += 1;
    id
}

fn create(shared: &Shared, here: &JournalShared, bytes: u64, calm: bool) -> io::Result<Prepared> {
    let id = next_id(here);
    let temporary = here.dir.join(file_name(id, "tmp"));
    let filled = shared
        .fs
        .open(&temporary, shared.open_how(here.superblock.block_bytes))
        .and_then(|file| fill(shared, here, &*file, bytes, calm));
    if let Err(error) = filled {
        // Best effort: the next start removes what is left.
        let _ = shared.fs.remove(&temporary);
        return Err(error);
    }
    shared
        .fs
        .rename(&temporary, &here.dir.join(file_name(id, SEGMENT)))?;
    shared.fs.sync_dir(&here.dir)?;
    open(shared, here, id, bytes)
}

fn fill(
    shared: &Shared,
    here: &JournalShared,
    file: &dyn FsFile,
    bytes: u64,
    mut calm: bool,
) -> io::Result<()> {
    // Reserved first, so that a full device is found out before it is filled up.
    file.allocate(bytes)?;
    if shared.options.preallocate == Preallocate::ZeroFill {
        let zeros = AlignedBuf::zeroed(FILL_BYTES.min(usize::try_from(bytes).unwrap_or(FILL_BYTES)));
        let whole = here.queue.room();
        let (mut at, mut room) = (0, whole);
        // What is reserved and not filled reads as zeros as well; it only costs more to write to.
        while at < bytes && !here.supply_urgent.load(Ordering::Acquire) {
            if shared.is_stopping() {
                return Err(io::Error::from(io::ErrorKind::Interrupted));
            }
            let before = std::mem::replace(&mut room, here.queue.room());
            calm = calm && before.abs_diff(room) <= CALM_BYTES_MAX;
            let most = if calm { FILL_BYTES_CALM } else { FILL_BYTES };
            let part = usize::try_from(bytes - at)
                .unwrap_or(FILL_BYTES)
                .min(most)
                .min(zeros.capacity());
            file.write_all_at(&zeros.bytes()[..part], at)?;
            at += part as u64;
            if calm && is_ahead(at, bytes, room, whole) {
                // Whatever the bell is rung for is looked at once the segment is ready.
                here.bell.wait(Some(CALM_PAUSE));
            }
        }
    }
    file.sync_data()
}

/// Whether the next segment, filled up to `at` of `bytes`, is further than twice what the journal has used of the `whole` that
/// it had in the active one.
fn is_ahead(at: u64, bytes: u64, room: usize, whole: usize) -> bool {
    let used = whole.saturating_sub(room) as u128;
    u128::from(at) * whole as u128 >= 2 * used * u128::from(bytes)
}

fn open(shared: &Shared, here: &JournalShared, id: u32, bytes: u64) -> io::Result<Prepared> {
    let path = here.dir.join(file_name(id, SEGMENT));
    let file = shared
        .fs
        .open(&path, shared.open_how(here.superblock.block_bytes))?;
    let salt = here.superblock.salt(id);
    Ok(Prepared {
        file: Arc::new(SegmentFile { id, salt, path, file }),
        bytes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_segment_stays_ahead_of_the_active_one() {
        const MIB: u64 = 1 << 20;
        assert!(is_ahead(MIB, 256 * MIB, 32 << 20, 32 << 20), "nothing used");
        assert!(!is_ahead(MIB, 256 * MIB, 31 << 20, 32 << 20), "a 32nd used");
        assert!(is_ahead(16 * MIB, 256 * MIB, 31 << 20, 32 << 20));
        assert!(!is_ahead(255 * MIB, 256 * MIB, 16 << 20, 32 << 20), "half used");
        assert!(is_ahead(256 * MIB, 256 * MIB, 16 << 20, 32 << 20));
        // Before the first group nothing is known of the room.
        assert!(is_ahead(1, MIB, 0, 0));
    }
}
