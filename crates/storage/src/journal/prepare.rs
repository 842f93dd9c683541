//! A journal's preparer: the next segment before it is needed, and old segments when they are no longer needed.
//!
//! A segment file appears under its final name only when its room is durable: it is filled under a temporary name,
//! synced, renamed, and the directory synced. A file with that name but without a header is therefore empty. One thread
//! per journal calls [`Preparer::step`] in a loop ([`run`]); tests call it themselves. It never touches the segment being
//! written.
//!
//! Filling costs the device as much as the appends themselves, so it is avoided: files of old segments are put aside as
//! spares and written again, also by the next start, and where an old segment is about to be let go its file is waited for. What
//! must be filled is filled at the pace of the appends ([`super::fill`]).

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use pharos_ledger::StorageFault;
use pharos_runtime::fs::{FsFile, is_no_space, is_transient};
use pharos_runtime::{Nanos, clock};
use pharos_storage_format::file::SegmentFile;
use pharos_storage_format::names::{SEGMENT, file_name};

use super::fill::fill;
use super::spares::is_full;
use crate::removals::Removals;
use crate::shared::{JournalShared, Pace, Part, Prepared, Shared, Spare};
use crate::stats::bump;

/// Pause before trying again what the system refused.
const RETRY: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub(crate) struct Preparer {
    shared: Arc<Shared>,
    number: usize,
    /// Old segments that do not become spares.
    removals: Removals<SegmentFile>,
    /// Names of old segments were taken away, and that is not yet durable.
    unsynced: bool,
}

impl Preparer {
    pub(crate) fn new(shared: Arc<Shared>, number: usize) -> Self {
        Self {
            shared,
            number,
            removals: Removals::default(),
            unsynced: false,
        }
    }

    fn here(&self) -> &JournalShared {
        &self.shared.journals[self.number]
    }

    /// Does one thing, the most urgent first.
    pub(crate) fn step(&mut self, now: Nanos) -> Pace {
        if self.shared.is_stopping() {
            self.removals.finish(&*self.shared.fs);
            return Pace::Stopped;
        }
        if self.shared.poison().is_some() {
            return Pace::Wait(None);
        }
        if self.unsynced {
            match self.shared.fs.sync_dir(&self.here().dir) {
                Ok(()) => self.unsynced = false,
                Err(error) => {
                    let what = format!("sync {}", self.here().dir.display());
                    return self.on_refused(what, error, now);
                }
            }
        }
        // What is not needed goes before a spare does.
        let removals = self.step_removals(now);
        if removals == Pace::Again || self.hand_out_reserve(now) {
            return Pace::Again;
        }
        let pace = self.prepare(now);
        if pace == Pace::Again || self.trim_one(now) || self.here().give_up_spare(&self.shared) {
            return Pace::Again;
        }
        pace.sooner(removals)
    }

    /// Makes what is left of removed segments shorter, when it is time; all of it goes at once where the room is needed.
    fn step_removals(&mut self, now: Nanos) -> Pace {
        let shared = &self.shared;
        let queue = &shared.journals[self.number].queue;
        let is_short = queue.has_no_space() || queue.lacks_flush_space();
        if is_short && self.removals.finish(&*shared.fs) {
            shared.flush_bell.ring();
            return Pace::Again;
        }
        Pace::Wait(self.removals.step(&*shared.fs, &shared.options, now))
    }

    /// Makes the reserve the next segment when the journal has no other room for what must go. `true`: it did.
    fn hand_out_reserve(&self, now: Nanos) -> bool {
        let here = self.here();
        if !here.reserve_wanted.load(Ordering::Acquire) {
            return false;
        }
        let is_there = here.has_reserve(&self.shared.options);
        if here.supply().prepared.is_some() || !here.queue.refuses_for_space() || !is_there {
            here.reserve_wanted.store(false, Ordering::Release);
            here.queue.ring();
            return false;
        }
        let id = next_id(here);
        let path = here.dir.join(file_name(id, SEGMENT));
        let bytes = self.shared.options.journal_reserve_bytes;
        here.queue.set_reserve_room(0);
        let became = here.reserve.become_file(&*self.shared.fs, &here.dir, &path);
        match became.and_then(|()| open(&self.shared, here, id, bytes)) {
            Ok(prepared) => {
                here.supply().prepared = Some(Prepared {
                    is_reserve: true,
                    ..prepared
                });
            }
            Err(error) => {
                // Best effort: a segment without a header is room, and goes with the next start.
                let _ = self.shared.fs.remove(&path);
                let what = format!("use the reserve in {}", here.dir.display());
                self.on_refused(what, error, now);
            }
        }
        here.reserve_wanted.store(false, Ordering::Release);
        here.queue.ring();
        true
    }

    /// Keeps room back for deletions, if that is not so.
    fn keep_reserve(&self) -> io::Result<()> {
        let here = self.here();
        if here.reserve.is_whole() {
            return Ok(());
        }
        let bytes = self.shared.options.journal_reserve_bytes;
        let how = self.shared.open_how(here.superblock.block_bytes);
        let fill = |file: &dyn FsFile| fill(&self.shared, here, file, bytes);
        here.reserve.keep(&*self.shared.fs, &here.dir, how, fill)?;
        here.queue.set_reserve_room(reserve_room(&self.shared));
        Ok(())
    }

    /// Prepares the next segment if the journal wants one. `Wait` says when to try again.
    fn prepare(&self, now: Nanos) -> Pace {
        let Some(wanted) = self.here().supply().wanted else {
            return Pace::Wait(None);
        };
        // The journal rings when it cannot go on or has used more of the active segment, the flusher when a segment may go
        // or it has room again, which it needs first.
        let here = self.here();
        let is_urgent = here.supply_urgent.load(Ordering::Acquire);
        if here.queue.lacks_flush_space() || !is_urgent && self.may_come_back(wanted) {
            return Pace::Wait(None);
        }
        // First what deletions may need: entries have all the rest.
        match self.keep_reserve().and_then(|()| self.prepare_sized(wanted)) {
            Ok(prepared) => {
                self.shared.end_trouble(Part::Preparer(self.number));
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
                self.on_refused(what, error, now)
            }
        }
    }

    /// Handles an error of the system: a transient one is tried again, any other is final.
    fn on_refused(&self, what: String, error: io::Error, now: Nanos) -> Pace {
        if is_transient(&error) {
            let fault = StorageFault::transient(what, error);
            self.shared.note_trouble(Part::Preparer(self.number), &fault, now);
            return Pace::Wait(Some(RETRY));
        }
        self.shared.set_poison(StorageFault::new(what, error));
        Pace::Again
    }

    /// True if no spare is large enough but the file of an old segment may become one in time: some are not needed
    /// any more once they are flushed, and there is much room in the active one.
    fn may_come_back(&self, wanted: u64) -> bool {
        let here = self.here();
        if here.supply().has_spare(wanted) {
            return false;
        }
        let room = here.queue.room() as u64;
        let segments = here.segments();
        let active = segments.by_id.values().next_back();
        let has_room = active.is_some_and(|active| !active.closed && room >= enough_room(active.file_bytes));
        let full = |bytes: u64| bytes >= wanted && is_full(&self.shared, bytes);
        let all = self.shared.options.journal_backups + 1;
        has_room
            && self.shared.options.spare_segments > 0
            && segments.by_id.len() > all
            && segments
                .by_id
                .values()
                .any(|s| s.closed && !s.damaged && !s.stuck && full(s.file_bytes))
    }

    /// The size that is wanted, or else the smallest that takes any entry.
    fn prepare_sized(&self, wanted: u64) -> io::Result<Prepared> {
        let here = self.here();
        loop {
            let spare = here.supply().take_spare(wanted);
            let Some(spare) = spare else { break };
            let id = next_id(here);
            let to = here.dir.join(file_name(id, SEGMENT));
            match self.shared.fs.rename(&spare.path, &to) {
                // It is not needed: a new file does as well.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    tracing::warn!(path = %spare.path.display(), "a spare segment was removed from outside");
                    continue;
                }
                renamed => renamed?,
            }
            let opened = self
                .shared
                .fs
                .sync_dir(&here.dir)
                .and_then(|()| open(&self.shared, here, id, spare.bytes));
            if opened.is_err() {
                // Still a spare, whatever it is called now: the next try gives it the next id.
                here.supply().spares.push_front(Spare {
                    path: to,
                    bytes: spare.bytes,
                });
            } else {
                bump(&self.shared.counters.segments_reused, 1);
            }
            return opened;
        }
        let smallest = self.shared.options.segment_bytes_after(0);
        match create(&self.shared, here, wanted) {
            Err(error) if is_no_space(&error) && smallest < wanted => create(&self.shared, here, smallest),
            created => created,
        }
    }

    /// Removes the oldest segment, or puts its file aside, when everything in it is in the entry logs and a durable
    /// checkpoint says so.
    fn trim_one(&mut self, now: Nanos) -> bool {
        let here = &self.shared.journals[self.number];
        let sequence = self.shared.checkpointed(self.number).mark.sequence;
        let found = {
            let segments = here.segments();
            let id = segments.find_trimmable(sequence, self.shared.options.journal_backups);
            id.and_then(|id| segments.by_id.get(&id))
                .map(|segment| (Arc::clone(&segment.file), segment.file_bytes, segment.damaged))
        };
        let Some((file, file_bytes, damaged)) = found else {
            return false;
        };
        let gone = if damaged {
            self.keep_damaged(&file)
        } else {
            self.let_go(&file, file_bytes, now)
        };
        // Before it gets shorter, and for the room: a segment that comes back after a crash lies before the mark and goes again.
        self.unsynced |= gone.is_ok();
        let here = self.here();
        let mut segments = here.segments();
        match gone {
            Ok(()) => {
                segments.by_id.remove(&file.id);
                bump(&self.shared.counters.segments_removed, 1);
            }
            Err(error) if is_transient(&error) => {
                drop(segments);
                let what = format!("remove {}", file.path.display());
                self.on_refused(what, error, now);
                return false;
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

    /// Makes a spare of it, or begins to remove it.
    fn let_go(&mut self, file: &Arc<SegmentFile>, file_bytes: u64, now: Nanos) -> io::Result<()> {
        let shared = &self.shared;
        let here = &shared.journals[self.number];
        if here.put_aside(shared, file.id, &file.path, file_bytes)? {
            return Ok(());
        }
        self.removals.begin(&*shared.fs, &shared.options, file, now)
    }

    fn keep_damaged(&self, file: &SegmentFile) -> io::Result<()> {
        let dir = &self.here().dir;
        let to = dir.join(file_name(file.id, "damaged"));
        self.shared.fs.rename(&file.path, &to)
    }
}

/// Room in the active segment of this size while which nothing is filled if it may be avoided, in bytes.
pub(super) fn enough_room(file_bytes: u64) -> u64 {
    file_bytes / 4 * 3
}

/// The preparer's thread.
pub(crate) fn run(mut preparer: Preparer) {
    let shared = Arc::clone(&preparer.shared);
    loop {
        match preparer.step(clock::now()) {
            Pace::Again => {}
            Pace::Wait(timeout) => shared.journals[preparer.number].bell.wait(timeout),
            Pace::Stopped => break,
        }
    }
}

/// Prepares the segment that a journal starts with. It is small, so that a start is quick even without a spare.
pub(crate) fn prepare_first(shared: &Shared, number: usize) -> io::Result<Prepared> {
    let bytes = shared.options.segment_bytes_first.next_multiple_of(4096);
    create(shared, &shared.journals[number], bytes)
}

/// Returns the part of a journal's reserve that entries of background ledgers may use, in bytes: the header and half
/// of the reserve are not for them.
pub(crate) fn reserve_room(shared: &Shared) -> usize {
    let bytes = usize::try_from(shared.options.journal_reserve_bytes / 2).unwrap_or(0);
    bytes.saturating_sub(2 * shared.block_bytes())
}

fn next_id(here: &JournalShared) -> u32 {
    let mut supply = here.supply();
    let id = supply.segment_next;
    supply.segment_next += 1;
    id
}

fn create(shared: &Shared, here: &JournalShared, bytes: u64) -> io::Result<Prepared> {
    let id = next_id(here);
    let temporary = here.dir.join(file_name(id, "tmp"));
    let filled = shared
        .fs
        .open(&temporary, shared.open_how(here.superblock.block_bytes))
        .and_then(|file| fill(shared, here, &*file, bytes).map(|()| file));
    let file = match filled {
        Ok(file) => file,
        Err(error) => {
            // Best effort: the next start removes what is left.
            let _ = shared.fs.remove(&temporary);
            return Err(error);
        }
    };
    let path = here.dir.join(file_name(id, SEGMENT));
    let renamed = shared.fs.rename(&temporary, &path);
    if let Err(error) = renamed.and_then(|()| shared.fs.sync_dir(&here.dir)) {
        // As above; without a header it is room under either name.
        let _ = shared.fs.remove(&temporary);
        let _ = shared.fs.remove(&path);
        return Err(error);
    }
    let salt = here.superblock.salt(id);
    Ok(Prepared {
        file: Arc::new(SegmentFile { id, salt, path, file }),
        bytes,
        is_reserve: false,
    })
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
        is_reserve: false,
    })
}
