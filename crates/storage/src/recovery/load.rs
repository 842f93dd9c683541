//! From a checkpoint and the indexes of the entry logs to ledgers and logs.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use pharos_ledger::StorageFault;
use pharos_runtime::fs::{Fs, FsFile, OpenHow, is_transient};
use pharos_storage_format::checkpoint::{Checkpoint, LedgerRow, LogEnd};
use pharos_storage_format::file::LogFile;
use pharos_storage_format::index_batch::{IndexBatch, IndexRun};
use pharos_storage_format::log_header::LOG_DATA_AT;
use pharos_storage_format::names::{CHECKPOINT_TMP, INDEX, LOG, file_name, parse};
use pharos_storage_format::rebuild;
use pharos_storage_format::runs::Run;
use pharos_types::LedgerId;

use crate::ledgers::Ledger;
use crate::logs::{Log, Logs};
use crate::shared::{FoundDir, open_how};
use crate::{OpenStoreError, Options};

/// State loaded from a checkpoint and the logs.
pub(super) struct Loaded {
    pub(super) ledgers: HashMap<LedgerId, Arc<Ledger>>,
    /// By directory.
    pub(super) logs: Vec<Logs>,
    /// Indexes that had to be made again.
    pub(super) rebuilt: u64,
}

/// Opens every log that the checkpoint names, removes the others, and gives the ledgers their runs.
pub(super) fn load(
    fs: &dyn Fs,
    options: &Options,
    dirs: &[FoundDir],
    checkpoint: &Checkpoint,
) -> Result<Loaded, OpenStoreError> {
    let mut ledgers: HashMap<LedgerId, Arc<Ledger>> = HashMap::new();
    for row in &checkpoint.ledgers {
        ledgers.insert(LedgerId(row.id), Arc::new(from_row(row)));
    }
    let mut logs = Vec::new();
    let mut rebuilt = 0;
    for (number, dir) in (0..).zip(dirs) {
        let listed: Vec<&LogEnd> = checkpoint.logs.iter().filter(|end| end.dir == number).collect();
        let mut found = Logs {
            next: remove_leftovers(fs, dir, &listed)?,
            ..Logs::default()
        };
        for end in listed {
            let Some((log, runs)) = open_log(fs, options, dir, number, end, &mut rebuilt)? else {
                continue;
            };
            found.by_id.insert(end.log, log);
            for run in runs {
                add_run(&mut found, &ledgers, end.log, &run);
            }
        }
        logs.push(found);
    }
    for ledger in ledgers.values() {
        ledger.lock().runs.shrink();
    }
    Ok(Loaded {
        ledgers,
        logs,
        rebuilt,
    })
}

fn from_row(row: &LedgerRow) -> Ledger {
    let ledger = Ledger::found(LedgerId(row.id), row.durability, (row.journal, row.dir));
    {
        let mut state = ledger.lock();
        state.flushed = row.flushed;
        state.flushed_bytes = row.flushed_bytes;
        state.end = row.flushed;
        state.bytes = row.flushed_bytes;
        state.sealed = row.sealed;
        state.end_unknown = row.end_unknown.then(|| {
            let what = "damage found at an earlier start";
            StorageFault::new(what, "it may hide the last entries of this ledger")
        });
    }
    ledger
}

/// Removes files that no checkpoint names: they were never finished, or not yet removed. Says the next log id.
fn remove_leftovers(fs: &dyn Fs, dir: &FoundDir, listed: &[&LogEnd]) -> Result<u32, OpenStoreError> {
    let path = &dir.path;
    let names = fs.list(path).map_err(OpenStoreError::io("list", path))?;
    let mut next = listed.iter().map(|end| end.log + 1).max().unwrap_or(0);
    for name in names {
        let id = parse(&name, LOG).or_else(|| parse(&name, INDEX));
        next = next.max(id.map_or(0, |id| id + 1));
        let unknown = id.is_some_and(|id| !listed.iter().any(|end| end.log == id));
        let unfinished = name == CHECKPOINT_TMP || name.ends_with(".tmp");
        if (unknown || unfinished)
            && let Err(error) = fs.remove(&path.join(&name))
        {
            tracing::warn!(%error, name, "cannot remove a leftover file");
        }
    }
    Ok(next)
}

/// A log and its runs. None when it is gone: that is only bad when some ledger misses what was in it.
fn open_log(
    fs: &dyn Fs,
    options: &Options,
    dir: &FoundDir,
    number: u32,
    end: &LogEnd,
    rebuilt: &mut u64,
) -> Result<Option<(Log, Vec<IndexRun>)>, OpenStoreError> {
    let path = dir.path.join(file_name(end.log, LOG));
    let how = OpenHow {
        create: false,
        ..open_how(options, dir.superblock.block_bytes)
    };
    let file = match fs.open(&path, how) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            tracing::debug!(file = %path.display(), "a log is gone");
            return Ok(None);
        }
        Err(error) => return Err(OpenStoreError::io("open", path)(error)),
    };
    let length = file.len().map_err(OpenStoreError::io("measure", &path))?;
    if length < end.end {
        tracing::error!(
            file = %path.display(), bytes = length, expected = end.end,
            "an entry log is shorter than it was"
        );
    } else if length > end.end {
        // A flush that did not come to its end.
        file.set_len(end.end).map_err(OpenStoreError::io("cut", &path))?;
    }
    let file = Arc::new(LogFile {
        dir: number as u16,
        id: end.log,
        salt: dir.superblock.salt(end.log),
        path,
        file,
    });
    let index_path = dir.path.join(file_name(end.log, INDEX));
    let mut log = Log::new(Arc::clone(&file));
    log.end = end.end;
    log.index_end = end.index_end;
    log.closed = true;
    let runs = match read_index(fs, &file, end).map_err(OpenStoreError::io("open", &index_path))? {
        Some(runs) => runs,
        None => {
            tracing::warn!(file = %index_path.display(), "an index is missing or damaged; it is made again from its log");
            let (runs, bytes) = rebuild::rebuild(fs, &file, end.end)
                .map_err(OpenStoreError::io("make again", &index_path))?;
            log.index_end = bytes;
            *rebuilt += 1;
            runs
        }
    };
    Ok(Some((log, runs)))
}

/// All runs of a log, when its index is whole and reaches to the end of the log.
///
/// # Errors
/// When the index may be there and cannot be opened now. To make it again the whole log would be read, which may fail as well.
fn read_index(fs: &dyn Fs, log: &LogFile, end: &LogEnd) -> io::Result<Option<Vec<IndexRun>>> {
    match fs.open(&log.path.with_extension(INDEX), OpenHow::READ) {
        Ok(file) => Ok(runs_in_index(&*file, log, end)),
        Err(error) if is_transient(&error) => Err(error),
        Err(_) => Ok(None),
    }
}

fn runs_in_index(file: &dyn FsFile, log: &LogFile, end: &LogEnd) -> Option<Vec<IndexRun>> {
    let length = usize::try_from(file.len().ok()?.min(end.index_end)).ok()?;
    let mut bytes = vec![0; length];
    let count = file.read_at(&mut bytes, 0).ok()?;
    let mut rest = bytes.get(..count)?;
    let mut reached = LOG_DATA_AT;
    let mut runs = Vec::new();
    while !rest.is_empty() {
        let (batch, length) = IndexBatch::decode(rest, log.salt, log.id)?;
        if batch.data_from != reached {
            return None;
        }
        reached = batch.data_to;
        runs.extend(batch.runs);
        rest = rest.get(length..)?;
    }
    (reached == end.end).then_some(runs)
}

fn add_run(logs: &mut Logs, ledgers: &HashMap<LedgerId, Arc<Ledger>>, log: u32, run: &IndexRun) {
    let Some(ledger) = ledgers.get(&LedgerId(run.ledger)) else {
        return;
    };
    let mut state = ledger.lock();
    let run = Run::new(log, run);
    if let Some(log) = logs.by_id.get_mut(&log) {
        log.live_bytes += run.bytes();
    }
    // Of several copies the newer stays: the older one is in a log that is about to go.
    for old in state.runs.insert(run) {
        logs.release(old.log, old.bytes());
    }
}
