//! Opening a store: what is in the directories, what a crash left half done, and what to go on with.
//!
//! The order matters; a crash at any point of it finds the same again:
//! 1. lock the directories, read or make `VERSION`, make the names durable, read the checkpoint;
//! 2. open the entry logs it names, cut what is behind their ends, load or make again their indexes;
//! 3. replay each journal from its mark into the write cache, flushing when that is full; cut a torn end off the last
//!    segment, write again what nothing says to be synced, and sync it, because it may only have been in memory;
//! 4. start a new segment in each journal whose header says where the last one ended, and sync it;
//! 5. only now take back a clean stop's word that the journals hold nothing.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use pharos_ledger::{Sealed, StorageFault};
use pharos_runtime::fs::{Fs, OpenHow, is_no_space};
use pharos_storage_format::checkpoint::{Checkpoint, Mark};
use pharos_storage_format::names::{CHECKPOINT, LOG, SEGMENT, parse};
use pharos_storage_format::segment_header::NO_SEGMENT;

use crate::flush::{self, Flusher};
use crate::journal::Journal;
use crate::journal::prepare::{self, Preparer, prepare_first};
use crate::ledgers::{Damage, Ledgers};
use crate::shared::{Parts, Shared};
use crate::{OpenStoreError, Options};

mod dirs;
mod load;
mod replay;

use dirs::Dirs;
use replay::{Ended, Replay};

/// A store ready to run.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) shared: Arc<Shared>,
    pub(crate) journals: Vec<Journal>,
    pub(crate) preparers: Vec<Preparer>,
    pub(crate) flusher: Flusher,
}

pub(crate) fn open(fs: Arc<dyn Fs>, base: &Path, options: Options) -> Result<Opened, OpenStoreError> {
    let mut dirs = dirs::open(&fs, base, &options)?;
    let (checkpoint, new) = read_checkpoint(&*fs, &dirs)?;
    check_dirs(&dirs, &checkpoint)?;
    let loaded = load::load(&*fs, &options, &dirs.ledgers, &checkpoint)?;
    let mut marks = checkpoint.journals.clone();
    marks.resize(dirs.journals.len(), Mark::default());
    let shared = Arc::new(Shared::new(Parts {
        fs,
        options,
        journals: dirs.journals,
        dirs: dirs.ledgers,
        logs: loaded.logs,
        marks,
        ledgers: Ledgers::new(loaded.ledgers),
        ledger_next: checkpoint.ledger_next,
        generation: checkpoint.generation,
        locks: std::mem::take(&mut dirs.locks),
    }));
    if new {
        // From now on segments without a checkpoint are a sign that something is missing.
        flush::store_checkpoint(&shared, &checkpoint).map_err(OpenStoreError::io(
            "write the first checkpoint in",
            first_dir(&shared),
        ))?;
    }
    adopt_reserves(&shared);
    let mut flusher = Flusher::new(Arc::clone(&shared));
    let mut replay = Replay::new(&shared, &mut flusher);
    let mut ends = Vec::new();
    for number in 0..shared.journals.len() {
        ends.push(replay.journal(number, checkpoint.clean)?);
    }
    let replayed_bytes = replay.done_bytes();
    let damages = replay.damages() + finish_ledgers(&shared);
    shared.damages.store(damages, Ordering::Relaxed);
    shared.replayed_bytes.store(replayed_bytes, Ordering::Relaxed);
    shared.indexes_rebuilt.store(loaded.rebuilt, Ordering::Relaxed);
    let (journals, all_started) = start_journals(&shared, ends)?;
    let fresh = dirs.fresh_journals;
    if all_started && (checkpoint.clean || fresh.contains(&true)) {
        flusher.take_back_clean(&fresh)?;
    }
    if let Some(fault) = shared.poison() {
        let source = std::io::Error::other(Arc::clone(fault));
        return Err(OpenStoreError::io("write what was found in", first_dir(&shared))(
            source,
        ));
    }
    let preparers = (0..shared.journals.len())
        .map(|number| Preparer::new(Arc::clone(&shared), number))
        .collect();
    Ok(Opened {
        shared,
        journals,
        preparers,
        flusher,
    })
}

/// Adopts the reserves of earlier runs. Missing ones are made later: entries have priority at a start.
fn adopt_reserves(shared: &Shared) {
    let options = &shared.options;
    for journal in &shared.journals {
        let reserve = &journal.reserve;
        reserve.adopt(&*shared.fs, &journal.dir, options.journal_reserve_bytes);
        if journal.has_reserve(options) {
            journal.queue.set_reserve_room(prepare::reserve_room(shared));
        }
    }
    for dir in &shared.dirs {
        dir.reserve
            .adopt(&*shared.fs, &dir.path, options.ledger_reserve_bytes);
    }
}

fn first_dir(shared: &Shared) -> std::path::PathBuf {
    shared
        .dirs
        .first()
        .map(|dir| dir.path.clone())
        .unwrap_or_default()
}

/// The checkpoint, and whether it is the first one of a new store.
fn read_checkpoint(fs: &dyn Fs, dirs: &Dirs) -> Result<(Checkpoint, bool), OpenStoreError> {
    let Some(first) = dirs.ledgers.first() else {
        return Err(OpenStoreError::Options("no ledger directory".to_owned()));
    };
    let store_id = first.superblock.store_id;
    let path = first.path.join(CHECKPOINT);
    let file = match fs.open(&path, OpenHow::READ) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            check_new(fs, dirs)?;
            let checkpoint = Checkpoint {
                store_id,
                generation: 1,
                clean: true,
                ledger_next: 0,
                journals: vec![Mark::default(); dirs.journals.len()],
                logs: Vec::new(),
                ledgers: Vec::new(),
            };
            return Ok((checkpoint, true));
        }
        Err(error) => return Err(OpenStoreError::io("open", path)(error)),
    };
    let length = file.len().map_err(OpenStoreError::io("measure", &path))?;
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
    let count = file
        .read_at(&mut bytes, 0)
        .map_err(OpenStoreError::io("read", &path))?;
    let found = Checkpoint::decode(bytes.get(..count).unwrap_or_default());
    match found {
        Some(checkpoint) if checkpoint.store_id == store_id => Ok((checkpoint, false)),
        Some(_) => Err(OpenStoreError::wrong(
            &first.path,
            "has the checkpoint of another store",
        )),
        None => Err(OpenStoreError::Damaged(path)),
    }
}

/// Without a checkpoint there must be nothing that one would name.
fn check_new(fs: &dyn Fs, dirs: &Dirs) -> Result<(), OpenStoreError> {
    for (dir, ending) in dirs
        .ledgers
        .iter()
        .map(|dir| (dir, LOG))
        .chain(dirs.journals.iter().map(|dir| (dir, SEGMENT)))
    {
        let names = fs
            .list(&dir.path)
            .map_err(OpenStoreError::io("list", &dir.path))?;
        if names.iter().any(|name| parse(name, ending).is_some()) {
            let what = "has data, but the store has no CHECKPOINT file";
            return Err(OpenStoreError::wrong(&dir.path, what));
        }
    }
    Ok(())
}

/// Checks that everything that the checkpoint names can be at its location.
fn check_dirs(dirs: &Dirs, checkpoint: &Checkpoint) -> Result<(), OpenStoreError> {
    let first = dirs
        .ledgers
        .first()
        .map(|dir| dir.path.clone())
        .unwrap_or_default();
    let used = |number: usize| {
        let log = checkpoint.logs.iter().any(|end| end.dir as usize == number);
        log || checkpoint
            .ledgers
            .iter()
            .any(|row| usize::from(row.dir) == number)
    };
    let logs = checkpoint.logs.iter().map(|end| end.dir as usize);
    let named = logs.chain(checkpoint.ledgers.iter().map(|row| usize::from(row.dir)));
    let last = named.max().unwrap_or(0);
    // One that is not configured is enough to know.
    for number in (0..dirs.ledgers.len()).chain([last]) {
        match dirs.ledgers.get(number) {
            Some(dir) if dirs.fresh_ledgers.get(number) == Some(&true) && used(number) => {
                return Err(OpenStoreError::wrong(
                    &dir.path,
                    "is empty, but the store has entry logs there",
                ));
            }
            None if used(number) => {
                let what =
                    format!("the store has a ledger directory number {number}, which is not configured");
                return Err(OpenStoreError::wrong(first, what));
            }
            _ => {}
        }
    }
    if checkpoint.clean {
        return Ok(());
    }
    for (number, mark) in checkpoint.journals.iter().enumerate() {
        match dirs.journals.get(number) {
            Some(dir) if dirs.fresh_journals.get(number) == Some(&true) && *mark != Mark::default() => {
                let what = "is empty, but the store was not stopped cleanly and its journal is missing";
                return Err(OpenStoreError::wrong(&dir.path, what));
            }
            None => {
                let what = format!(
                    "the store was not stopped cleanly and its journal number {number} is not configured"
                );
                return Err(OpenStoreError::wrong(first, what));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

/// Everything is known: what the ledgers hold. Says how many entries should be in the logs and are not.
fn finish_ledgers(shared: &Shared) -> u64 {
    let mut missing = 0;
    for ledger in shared.ledgers.all() {
        let mut state = ledger.lock();
        let gone = state.runs.missing_before(state.flushed);
        if gone > 0 {
            missing = u64::saturating_add(missing, gone);
            tracing::error!(
                ledger = ledger.id.0,
                entries = gone,
                "entries are missing in the entry logs"
            );
            let dir = shared.dirs.get(usize::from(ledger.dir));
            let found = dir.map(|dir| Damage {
                file: format!("{} (no index or log has it)", dir.path.display()),
                byte_offset: 0,
            });
            state.hidden_by = state.hidden_by.take().or(found);
        }
        if let Some(sealed) = state.sealed {
            state.end = sealed.entry_count;
            let missing = state.flushed < state.end && state.chunks.iter().all(|chunk| chunk.is_empty());
            let hidden = state.hidden_by.is_some() || missing;
            let bytes = if hidden { sealed.bytes } else { state.bytes };
            state.sealed = Some(Sealed { bytes, ..sealed });
            state.end_unknown = None;
        }
        state.entry_next = state.end;
    }
    missing
}

/// Steps 4: whether every journal has a segment to write to. One without room begins when there is some.
fn start_journals(shared: &Arc<Shared>, ends: Vec<Ended>) -> Result<(Vec<Journal>, bool), OpenStoreError> {
    let mut journals = Vec::new();
    let mut all_started = true;
    for (number, mut ended) in ends.into_iter().enumerate() {
        if ended.previous.segment == NO_SEGMENT {
            ended.previous.end = 0;
        }
        let mut journal = Journal::new(Arc::clone(shared), number, ended.previous, ended.written);
        let dir = &shared.journals[number].dir;
        match prepare_first(shared, number) {
            Ok(prepared) => {
                let started = journal.start(prepared);
                started.map_err(|fault: Arc<StorageFault>| {
                    OpenStoreError::io("start a segment in", dir)(std::io::Error::other(fault))
                })?;
            }
            Err(error) if is_no_space(&error) => {
                tracing::warn!(dir = %dir.display(), "no space left: the store opens without accepting appends");
                let here = &shared.journals[number];
                here.supply().wanted = Some(shared.options.segment_bytes_first.next_multiple_of(4096));
                here.queue.set_no_space(true);
                all_started = false;
            }
            Err(error) => return Err(OpenStoreError::io("prepare a segment in", dir)(error)),
        }
        journals.push(journal);
    }
    Ok((journals, all_started))
}
