//! The checkpoint of a store that is not open, and whether the store would open.

use std::io;
use std::path::PathBuf;

use pharos_runtime::fs::{Fs, OpenHow};
use pharos_storage_format::checkpoint::{Checkpoint, LogEnd, Mark};
use pharos_storage_format::names::{CHECKPOINT, CHECKPOINT_TMP, LOG, SEGMENT, VERSION, file_name};

use super::dirs::{Dir, VersionState};
use super::findings::{Effect, Finding, Remedy};
use super::{Offline, OfflineError};

/// Source and state of the checkpoint.
#[derive(Debug)]
pub(super) enum BaseState {
    Whole(Checkpoint),
    /// A copy in the file is damaged, at this offset.
    OneCopy(Checkpoint, u64),
    /// The file is gone or damaged in both copies, but its successor was complete and only not renamed.
    Unfinished(Checkpoint),
    /// Nothing whole is left.
    Lost,
}

/// The checkpoint and what is wrong before anything else is read.
#[derive(Debug)]
pub(super) struct Base {
    pub(super) path: PathBuf,
    pub(super) state: BaseState,
    /// The file is there.
    pub(super) exists: bool,
    pub(super) findings: Vec<Finding>,
}

pub(super) fn read(fs: &dyn Fs, journals: &[Dir], ledgers: &[Dir]) -> Result<Base, OfflineError> {
    let Some(first) = ledgers.first() else {
        return Err(OfflineError::unusable("", "no ledger directory is named"));
    };
    let store_id = journals
        .iter()
        .chain(ledgers)
        .find_map(|dir| dir.superblock)
        .map(|found| found.store_id);
    let mut base = Base {
        path: first.path.join(CHECKPOINT),
        state: BaseState::Lost,
        exists: first.has(CHECKPOINT),
        findings: Vec::new(),
    };
    base.findings
        .extend(journals.iter().chain(ledgers).filter_map(version_finding));
    if base.exists {
        let bytes = Offline::read_file(fs, &base.path)?;
        if let Some(found) = Checkpoint::decode(&bytes) {
            let expected = found.encode();
            let differs = (0..bytes.len().max(expected.len())).find(|at| bytes.get(*at) != expected.get(*at));
            base.state = match differs {
                Some(at) => BaseState::OneCopy(found, at as u64),
                None => BaseState::Whole(found),
            };
        }
    }
    if !base.exists && is_new(journals, ledgers) {
        base.state = BaseState::Whole(Checkpoint {
            store_id: store_id.unwrap_or(0),
            generation: 0,
            clean: true,
            ledger_next: 0,
            journals: Vec::new(),
            logs: Vec::new(),
            ledgers: Vec::new(),
        });
        return Ok(base);
    }
    match &base.state {
        BaseState::Whole(_) => {}
        BaseState::OneCopy(_, at) => {
            let what = "one of the two copies of the checkpoint is damaged; the other is used";
            let finding = Finding::new(Effect::Harmless, &base.path, *at, what);
            base.findings.push(finding.remedy(Remedy::Repair));
        }
        BaseState::Unfinished(_) | BaseState::Lost => {
            find_successor(fs, journals, ledgers, first, &mut base);
        }
    }
    let found = match &base.state {
        BaseState::Whole(found) | BaseState::OneCopy(found, _) | BaseState::Unfinished(found) => found,
        BaseState::Lost => return Ok(base),
    };
    if Some(found.store_id) != store_id {
        return Err(OfflineError::unusable(
            &base.path,
            "is the checkpoint of another store",
        ));
    }
    base.findings.extend(missing_dirs(found, journals, ledgers));
    Ok(base)
}

/// A store that was begun and never used: a start finds nothing that a checkpoint would name, and goes on.
fn is_new(journals: &[Dir], ledgers: &[Dir]) -> bool {
    let logs = ledgers.iter().any(|dir| !dir.ids(LOG).is_empty());
    let segments = journals.iter().any(|dir| !dir.ids(SEGMENT).is_empty());
    !logs && !segments
}

fn version_finding(dir: &Dir) -> Option<Finding> {
    let path = dir.path.join(VERSION);
    let finding = |effect, at, what| Some(Finding::new(effect, &path, at, what).remedy(Remedy::Repair));
    match dir.version {
        VersionState::Whole => None,
        VersionState::OneCopy(at) => {
            let what = "one of the two copies in this file is damaged; the other is used";
            finding(Effect::Harmless, at, what)
        }
        VersionState::Damaged => finding(Effect::DoesNotOpen, 0, "both copies in this file are damaged"),
        VersionState::Missing if dir.superblock.is_some() => finding(
            Effect::DoesNotOpen,
            0,
            "this file is missing, and the directory has data",
        ),
        VersionState::Missing => None,
    }
}

/// The checkpoint is gone: whether the next one can stand in for it.
fn find_successor(fs: &dyn Fs, journals: &[Dir], ledgers: &[Dir], first: &Dir, base: &mut Base) {
    let what = if base.exists {
        "both copies of the checkpoint are damaged"
    } else {
        "the checkpoint is missing"
    };
    let store_id = first.superblock.map(|found| found.store_id);
    let candidate = Offline::read_file(fs, &first.path.join(CHECKPOINT_TMP))
        .ok()
        .and_then(|bytes| Checkpoint::decode(&bytes))
        .filter(|found| Some(found.store_id) == store_id);
    let usable = candidate.filter(|found| can_follow(fs, found, journals, ledgers));
    let remedy = match usable {
        Some(found) => {
            base.state = BaseState::Unfinished(found);
            Remedy::Repair
        }
        None => Remedy::None,
    };
    base.findings
        .push(Finding::new(Effect::DoesNotOpen, &base.path, 0, what).remedy(remedy));
}

/// True if everything exists that a checkpoint needs: its logs, and the journals from its marks on.
fn can_follow(fs: &dyn Fs, found: &Checkpoint, journals: &[Dir], ledgers: &[Dir]) -> bool {
    let log_there = |end: &LogEnd| {
        let dir = ledgers.get(end.dir as usize)?;
        let file = fs
            .open(&dir.path.join(file_name(end.log, LOG)), OpenHow::READ)
            .ok()?;
        Some(file.len().ok()? >= end.end)
    };
    let journal_there = |(number, mark): (usize, &Mark)| {
        *mark == Mark::default()
            || journals
                .get(number)
                .is_some_and(|dir| dir.ids(SEGMENT).contains(&mark.segment))
    };
    found.logs.iter().all(|end| log_there(end) == Some(true))
        && (found.clean || found.journals.iter().enumerate().all(journal_there))
}

/// Directories that the checkpoint needs and that are empty or not named, as a start would find them.
fn missing_dirs(found: &Checkpoint, journals: &[Dir], ledgers: &[Dir]) -> Vec<Finding> {
    let mut all = Vec::new();
    let first = ledgers.first().map(|dir| dir.path.clone()).unwrap_or_default();
    let mut missing = |dir: Option<&Dir>, what: String| {
        let path = dir.map_or(&first, |dir| &dir.path);
        all.push(Finding::new(Effect::DoesNotOpen, path, 0, what));
    };
    for number in 0..64usize {
        let used = found.logs.iter().any(|end| end.dir as usize == number)
            || found.ledgers.iter().any(|row| usize::from(row.dir) == number);
        match ledgers.get(number) {
            Some(dir) if dir.superblock.is_none() && used => {
                missing(
                    Some(dir),
                    "is empty, but the store has entry logs there".to_owned(),
                );
            }
            None if used => {
                missing(
                    None,
                    format!("the store's ledger directory number {number} is not named"),
                );
            }
            _ => {}
        }
    }
    if found.clean {
        return all;
    }
    for (number, mark) in found.journals.iter().enumerate() {
        match journals.get(number) {
            Some(dir) if dir.superblock.is_none() && *mark != Mark::default() => {
                let what = "is empty, but the store was not stopped cleanly and its journal is missing";
                missing(Some(dir), what.to_owned());
            }
            None => {
                let what = format!(
                    "the store was not stopped cleanly and its journal directory number {number} is not named"
                );
                missing(None, what);
            }
            Some(_) => {}
        }
    }
    all
}

/// True if the error says that a file is missing.
pub(super) fn is_absent(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}
