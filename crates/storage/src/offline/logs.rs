//! The entry logs of a store that is not open: their indexes, and whether the records are as they were written.

use std::path::PathBuf;
use std::sync::Arc;

use pharos_runtime::fs::{Fs, OpenHow};
use pharos_storage_format::checkpoint::LogEnd;
use pharos_storage_format::file::LogFile;
use pharos_storage_format::file::read_up_to;
use pharos_storage_format::index_batch::{IndexBatch, IndexRun};
use pharos_storage_format::log_header::{LOG_DATA_AT, LogHeader};
use pharos_storage_format::names::{CHECKPOINT_TMP, INDEX, LOG, file_name, parse};
use pharos_storage_format::rebuild;
use pharos_storage_format::record::{Kind, RECORD_ALIGN, RECORD_HEADER_BYTES, RecordHeader};
use pharos_storage_format::runs::Run;

use super::base::is_absent;
use super::dirs::Dir;
use super::findings::{Effect, Finding, Remedy};
use super::window::Window;
use super::{Offline, OfflineError};

/// In which state an index is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IndexState {
    Whole,
    Missing,
    /// Incomplete, or not up to the end of its log; the first bad batch is at this offset.
    Damaged(u64),
}

/// An entry log that the checkpoint names.
#[derive(Debug)]
pub(super) struct LogSurvey {
    pub(super) end: LogEnd,
    pub(super) path: PathBuf,
    /// None when the file is gone.
    pub(super) file: Option<Arc<LogFile>>,
    pub(super) file_bytes: u64,
    pub(super) index: IndexState,
    /// Bytes that ledgers need, and in how many runs.
    pub(super) live_bytes: u64,
    pub(super) live_runs: u64,
}

/// A stretch of a run whose entries cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BadEntries {
    pub(super) first: u64,
    pub(super) end: u64,
    pub(super) byte_offset: u64,
}

/// Item of a walk through a run, in order.
pub(super) enum Found<'a> {
    /// An entry, where its record begins, and its payload.
    Entry(u64, u64, &'a [u8]),
    Bad(BadEntries),
}

/// Opens a log and reads its index, or makes in memory what a start would make again.
pub(super) fn open(
    fs: &dyn Fs,
    dir: &Dir,
    end: LogEnd,
    tell: &mut dyn FnMut(Finding),
) -> Result<(LogSurvey, Vec<IndexRun>), OfflineError> {
    let path = dir.path.join(file_name(end.log, LOG));
    let mut survey = LogSurvey {
        end,
        path: path.clone(),
        file: None,
        file_bytes: 0,
        index: IndexState::Missing,
        live_bytes: 0,
        live_runs: 0,
    };
    let file = match fs.open(&path, OpenHow::READ) {
        Ok(file) => file,
        Err(error) if is_absent(&error) => return Ok((survey, Vec::new())),
        Err(error) => return Err(OfflineError::io("open", path)(error)),
    };
    survey.file_bytes = file.len().map_err(OfflineError::io("measure", &path))?;
    let Some(superblock) = dir.superblock else {
        return Ok((survey, Vec::new()));
    };
    let file = Arc::new(LogFile {
        dir: end.dir as u16,
        id: end.log,
        salt: superblock.salt(end.log),
        path,
        file,
    });
    check_file(&survey, &file, tell);
    survey.file = Some(Arc::clone(&file));
    let index_path = file.path.with_extension(INDEX);
    let (state, runs) = read_index(fs, &file, &end)?;
    survey.index = state;
    if state == IndexState::Whole {
        return Ok((survey, runs));
    }
    let (at, what) = match state {
        IndexState::Damaged(at) => (at, "the index is damaged; it is made again from its log"),
        _ => (0, "the index is missing; it is made again from its log"),
    };
    tell(Finding::new(Effect::Harmless, &index_path, at, what).remedy(Remedy::Repair));
    Ok((survey, rebuild::scan(&file, end.end)))
}

fn check_file(survey: &LogSurvey, file: &LogFile, tell: &mut dyn FnMut(Finding)) {
    let end = survey.end.end;
    if survey.file_bytes < end {
        let what = "the log is shorter than the checkpoint says";
        tell(
            Finding::new(Effect::Harmless, &file.path, survey.file_bytes, what)
                .bytes(end - survey.file_bytes),
        );
    } else if survey.file_bytes > end {
        let what = "behind the end of the log: room, or a write that did not come to its end";
        let finding = Finding::new(Effect::Harmless, &file.path, end, what);
        tell(finding.bytes(survey.file_bytes - end).remedy(Remedy::Start));
    }
    let block = read_up_to(&*file.file, 0, LOG_DATA_AT as usize).unwrap_or_default();
    let expected = LogHeader {
        salt: file.salt,
        log: file.id,
        dir: u32::from(file.dir),
    };
    if LogHeader::decode(&block) != Some(expected) {
        let what = "the header is damaged; only people and tools read it";
        tell(Finding::new(Effect::Harmless, &file.path, 0, what));
    }
}

/// All runs of a log, as far as its index is whole.
fn read_index(fs: &dyn Fs, log: &LogFile, end: &LogEnd) -> Result<(IndexState, Vec<IndexRun>), OfflineError> {
    let path = log.path.with_extension(INDEX);
    let mut bytes = match Offline::read_file(fs, &path) {
        Ok(bytes) => bytes,
        Err(OfflineError::Io { source, .. }) if is_absent(&source) => {
            return Ok((IndexState::Missing, Vec::new()));
        }
        Err(_) => return Ok((IndexState::Damaged(0), Vec::new())),
    };
    bytes.truncate(usize::try_from(end.index_end).unwrap_or(usize::MAX));
    let mut at = 0;
    let mut reached = LOG_DATA_AT;
    let mut runs = Vec::new();
    while at < bytes.len() {
        let rest = bytes.get(at..).unwrap_or_default();
        let found =
            IndexBatch::decode(rest, log.salt, log.id).filter(|(batch, _)| batch.data_from == reached);
        let Some((batch, length)) = found else {
            return Ok((IndexState::Damaged(at as u64), runs));
        };
        reached = batch.data_to;
        runs.extend(batch.runs);
        at += length;
    }
    let state = if reached == end.end {
        IndexState::Whole
    } else {
        IndexState::Damaged(at as u64)
    };
    Ok((state, runs))
}

/// Reads every record of a run, and tells of each entry or why it cannot be read.
///
/// Goes as a reader of the store does: where a header is not whole, the next one of the ledger is looked for.
pub(super) fn read_run(
    window: &mut Window<'_>,
    log: &LogFile,
    ledger: u64,
    run: &Run,
    visit: &mut dyn FnMut(Found<'_>),
) {
    let (mut at, end) = (u64::from(run.start), u64::from(run.end));
    let mut entry = run.first;
    let mut lost_at = None;
    while entry < run.end_entry() && at + RECORD_HEADER_BYTES as u64 <= end {
        let header = RecordHeader::decode(&window.get(at, RECORD_HEADER_BYTES), log.salt).filter(|header| {
            let ours = header.kind == Kind::Entry && header.ledger == ledger;
            let place = if lost_at.is_some() {
                (entry..run.end_entry()).contains(&header.value)
            } else {
                header.value == entry
            };
            ours && place && at + header.total_bytes() as u64 <= end
        });
        let Some(header) = header else {
            lost_at.get_or_insert(at);
            at += RECORD_ALIGN as u64;
            continue;
        };
        if header.value > entry {
            visit(Found::Bad(BadEntries {
                first: entry,
                end: header.value,
                byte_offset: lost_at.unwrap_or(at),
            }));
        }
        lost_at = None;
        let record = window.get(at, header.total_bytes());
        visit(match header.body(&record) {
            Some(body) => Found::Entry(header.value, at, body),
            None => Found::Bad(BadEntries {
                first: header.value,
                end: header.value + 1,
                byte_offset: at,
            }),
        });
        entry = header.value + 1;
        at += header.total_bytes() as u64;
    }
    if entry < run.end_entry() {
        visit(Found::Bad(BadEntries {
            first: entry,
            end: run.end_entry(),
            byte_offset: lost_at.unwrap_or(at),
        }));
    }
}

/// Files in a ledger directory that no checkpoint names.
pub(super) fn leftovers(dir: &Dir, listed: &[LogEnd]) -> Vec<PathBuf> {
    let known = |id: u32| listed.iter().any(|end| end.dir == dir.number && end.log == id);
    let left = |name: &&String| {
        let id = parse(name, LOG).or_else(|| parse(name, INDEX));
        id.is_some_and(|id| !known(id)) || *name == CHECKPOINT_TMP || name.ends_with(".tmp")
    };
    dir.names
        .iter()
        .filter(left)
        .map(|name| dir.path.join(name))
        .collect()
}
