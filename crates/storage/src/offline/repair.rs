//! Putting right what can be put right without losing anything.
//!
//! Every action either writes again what is known from elsewhere (a copy, the other directories, a log's own records), or
//! puts aside what no checkpoint names. Whatever is changed is kept first, under its name with `.before-repair` behind it;
//! a start of the store does not look at such files. Entries that are damaged are left alone: they answer `Damaged`, and
//! the ones around them can be read.

use std::path::{Path, PathBuf};

use pharos_runtime::fs::{Fs, OpenHow};
use pharos_storage_format::checkpoint::{Checkpoint, LogEnd, Mark};
use pharos_storage_format::file::LogFile;
use pharos_storage_format::names::{INDEX, LOG, VERSION, file_name};
use pharos_storage_format::rebuild;
use pharos_storage_format::segment_header::NO_SEGMENT;
use pharos_storage_format::superblock::Superblock;

use super::base::BaseState;
use super::dirs::{Dir, VersionState};
use super::findings::Effect;
use super::logs::{self, IndexState};
use super::survey::{Meter, Survey};
use super::{Access, Offline, OfflineError, OnProgress};

/// Size of a copy step, in bytes.
const CHUNK_BYTES: usize = 1 << 20;

/// Something that a repair would do.
#[derive(Clone, Debug)]
pub struct PlannedAction {
    /// The file that it makes, changes or puts aside.
    pub file: PathBuf,
    /// A sentence for a person.
    pub what: String,
    /// Path to which the present file is moved; none if there is no file.
    pub backup: Option<PathBuf>,
    action: Action,
}

#[derive(Clone, Debug)]
enum Action {
    Version(Superblock),
    Checkpoint(Box<Checkpoint>),
    Index(LogEnd),
    PutAside,
    Cut(u64),
}

/// Something that a repair leaves alone.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// The file.
    pub file: PathBuf,
    /// Description of the damage, and the reason why it is not repaired.
    pub why: String,
}

/// Actions of a repair, and the damage that it leaves alone.
#[derive(Clone, Debug, Default)]
pub struct RepairPlan {
    /// In this order.
    pub actions: Vec<PlannedAction>,
    /// Damage that is not repaired.
    pub refused: Vec<Refusal>,
}

impl RepairPlan {
    fn add(&mut self, fs: &dyn Fs, file: PathBuf, what: impl Into<String>, action: Action) {
        let there = fs.open(&file, OpenHow::READ).is_ok();
        let ending = if matches!(action, Action::Cut(_)) {
            ".tail.before-repair"
        } else {
            ".before-repair"
        };
        self.actions.push(PlannedAction {
            backup: there.then(|| free_name(fs, &file, ending)),
            file,
            what: what.into(),
            action,
        });
    }

    fn refuse(&mut self, file: &Path, why: impl Into<String>) {
        self.refused.push(Refusal {
            file: file.to_owned(),
            why: why.into(),
        });
    }
}

/// A name behind which nothing is yet.
fn free_name(fs: &dyn Fs, file: &Path, ending: &str) -> PathBuf {
    let name = file
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let mut number = 1;
    loop {
        let more = if number == 1 {
            String::new()
        } else {
            format!(".{number}")
        };
        let path = file.with_file_name(format!("{name}{ending}{more}"));
        if fs.open(&path, OpenHow::READ).is_err() {
            return path;
        }
        number += 1;
    }
}

impl Offline {
    /// Plans what [`repair`](Self::repair) would do. Changes nothing; reads as much as [`check`](Self::check).
    ///
    /// # Errors
    /// As for `check`.
    pub fn plan(&self, progress: OnProgress<'_>) -> Result<RepairPlan, OfflineError> {
        let mut plan = RepairPlan::default();
        for dir in self.ledgers.iter().chain(&self.journals) {
            self.plan_version(dir, &mut plan);
        }
        self.plan_checkpoint(&mut plan)?;
        let Some(mut survey) = Survey::make(self, &mut Meter::new(progress))? else {
            return Ok(plan);
        };
        let mut silent = |_| {};
        survey.read_logs(self, &mut Meter::new(&mut silent));
        self.plan_logs(&survey, &mut plan);
        refuse_losses(&survey, &mut plan);
        Ok(plan)
    }

    fn plan_version(&self, dir: &Dir, plan: &mut RepairPlan) {
        let Some(superblock) = dir.superblock else { return };
        let what = match dir.version {
            VersionState::Whole => return,
            VersionState::OneCopy(_) => "write both copies again from the whole one",
            VersionState::Damaged | VersionState::Missing => {
                "write it again from what the other directories and the files in this one say"
            }
        };
        plan.add(
            &*self.fs,
            dir.path.join(VERSION),
            what,
            Action::Version(superblock),
        );
    }

    fn plan_checkpoint(&self, plan: &mut RepairPlan) -> Result<(), OfflineError> {
        let path = &self.base.path;
        let mut write = |found: &Checkpoint, what: &str| {
            let action = Action::Checkpoint(Box::new(found.clone()));
            plan.add(&*self.fs, path.clone(), what, action);
        };
        match &self.base.state {
            BaseState::Whole(_) => return Ok(()),
            BaseState::OneCopy(found, _) => {
                write(found, "write both copies again from the whole one");
                return Ok(());
            }
            BaseState::Unfinished(found) => {
                let what = "write it again from CHECKPOINT.tmp, which is whole and only was not renamed; all logs and \
                            journal segments that it needs are there";
                write(found, what);
                return Ok(());
            }
            BaseState::Lost => {}
        }
        match self.made_of_journals()? {
            Ok(found) => {
                write(
                    &found,
                    "make a new one: the journals reach back to the beginning of the store",
                );
                // The next start flushes everything again; until then nothing names these.
                for dir in &self.ledgers {
                    for left in logs::leftovers(dir, &[]) {
                        let what = "put aside: everything in it comes again from the journals";
                        plan.add(&*self.fs, left, what, Action::PutAside);
                    }
                }
            }
            Err(why) => {
                let why = format!("no whole copy is left, and it cannot be made again: {why}");
                plan.refuse(path, why);
            }
        }
        Ok(())
    }

    /// A first checkpoint, when the journals alone have everything; else why not.
    fn made_of_journals(&self) -> Result<Result<Checkpoint, String>, OfflineError> {
        let survey = Survey::of_journals(self)?;
        for (dir, journal) in self.journals.iter().zip(&survey.journals) {
            let first = journal.as_ref().and_then(|journal| journal.segments.first());
            let begins = first
                .and_then(|segment| segment.header)
                .is_some_and(|header| header.previous.segment == NO_SEGMENT && header.previous.sequence == 0);
            if !begins {
                let dir = dir.path.display();
                return Ok(Err(format!(
                    "the journal in {dir} does not reach back to the beginning of the store"
                )));
            }
        }
        if survey.has_bypass {
            return Ok(Err(
                "the store has ledgers whose entries are in no journal".to_owned()
            ));
        }
        if survey
            .findings
            .all
            .iter()
            .any(|finding| finding.effect != Effect::Harmless)
        {
            return Ok(Err("the journals are damaged as well".to_owned()));
        }
        let store_id = self.journals.iter().find_map(|dir| dir.superblock);
        Ok(Ok(Checkpoint {
            store_id: store_id.map_or(0, |superblock| superblock.store_id),
            generation: 1,
            clean: false,
            ledger_next: survey.ledger_next,
            journals: vec![Mark::default(); self.journals.len()],
            logs: Vec::new(),
            ledgers: Vec::new(),
        }))
    }

    fn plan_logs(&self, survey: &Survey, plan: &mut RepairPlan) {
        for log in &survey.logs {
            let Some(file) = &log.file else { continue };
            if log.index != IndexState::Whole {
                let what = "make the index again from its log";
                plan.add(
                    &*self.fs,
                    file.path.with_extension(INDEX),
                    what,
                    Action::Index(log.end),
                );
            }
            if log.file_bytes > log.end.end {
                let what = format!("cut what is behind the end of the log at {}", log.end.end);
                plan.add(&*self.fs, file.path.clone(), what, Action::Cut(log.end.end));
            }
        }
        let Some(checkpoint) = self.checkpoint() else {
            return;
        };
        for dir in &self.ledgers {
            for left in logs::leftovers(dir, &checkpoint.logs) {
                let what = "put aside: no checkpoint names it";
                plan.add(&*self.fs, left, what, Action::PutAside);
            }
        }
    }

    /// Does what a plan says; `tell` hears of each action when it is done.
    ///
    /// A crash at any point leaves the store as it was or as it will be, and the plan can be made again.
    ///
    /// # Errors
    /// [`OfflineError`]; what was done before stays done.
    pub fn repair(
        &self,
        plan: &RepairPlan,
        tell: &mut dyn FnMut(&PlannedAction),
    ) -> Result<(), OfflineError> {
        if self.access != Access::Change {
            return Err(OfflineError::unusable(
                &self.base.path,
                "was opened for looking only",
            ));
        }
        let mut checkpoint = self.checkpoint().cloned();
        let mut grown = false;
        for action in &plan.actions {
            grown |= self.act(action, checkpoint.as_mut())?;
            tell(action);
        }
        if let (true, Some(checkpoint)) = (grown, checkpoint) {
            // The new index is longer than the one that the checkpoint speaks of.
            self.replace(&self.base.path, &checkpoint.encode())?;
        }
        Ok(())
    }

    /// Does one action. `true`: it changed the checkpoint in memory.
    fn act(
        &self,
        planned: &PlannedAction,
        checkpoint: Option<&mut Checkpoint>,
    ) -> Result<bool, OfflineError> {
        let (file, backup) = (&planned.file, planned.backup.as_deref());
        match &planned.action {
            Action::PutAside => {
                if let Some(backup) = backup {
                    self.fs
                        .rename(file, backup)
                        .map_err(OfflineError::io("rename", file))?;
                    self.sync_dir_of(file)?;
                }
                return Ok(false);
            }
            Action::Cut(end) => self.copy(file, backup, *end)?,
            _ => self.copy(file, backup, 0)?,
        }
        match &planned.action {
            Action::Version(superblock) => self.replace(file, &superblock.encode())?,
            Action::Checkpoint(found) => self.replace(file, &found.encode())?,
            Action::Cut(end) => {
                let opened = self
                    .fs
                    .open(file, OpenHow::WRITE)
                    .map_err(OfflineError::io("open", file))?;
                let cut = opened.set_len(*end).and_then(|()| opened.sync_data());
                cut.map_err(OfflineError::io("cut", file))?;
            }
            Action::Index(end) => {
                let length = self.rebuild(end)?;
                let known = checkpoint.and_then(|found| found.logs.iter_mut().find(|known| *known == end));
                if let Some(known) = known.filter(|known| known.index_end < length) {
                    known.index_end = length;
                    return Ok(true);
                }
            }
            Action::PutAside => {}
        }
        Ok(false)
    }

    fn rebuild(&self, end: &LogEnd) -> Result<u64, OfflineError> {
        let gone = || OfflineError::unusable(&self.base.path, "names a directory that is not there");
        let dir = self.ledgers.get(end.dir as usize).ok_or_else(gone)?;
        let superblock = dir.superblock.ok_or_else(gone)?;
        let path = dir.path.join(file_name(end.log, LOG));
        let file = self
            .fs
            .open(&path, OpenHow::READ)
            .map_err(OfflineError::io("open", &path))?;
        let log = LogFile {
            dir: end.dir as u16,
            id: end.log,
            salt: superblock.salt(end.log),
            path,
            file,
        };
        let made = rebuild::rebuild(&*self.fs, &log, end.end);
        let (_, length) = made.map_err(OfflineError::io("make the index of", &log.path))?;
        Ok(length)
    }

    /// Copies a file, from `at` on, to where it is kept.
    fn copy(&self, file: &Path, backup: Option<&Path>, at: u64) -> Result<(), OfflineError> {
        let Some(backup) = backup else { return Ok(()) };
        let from = self
            .fs
            .open(file, OpenHow::READ)
            .map_err(OfflineError::io("open", file))?;
        let to = self
            .fs
            .open(backup, OpenHow::CREATE)
            .map_err(OfflineError::io("create", backup))?;
        let mut buf = vec![0; CHUNK_BYTES];
        let mut done = 0;
        loop {
            let count = from
                .read_at(&mut buf, at + done)
                .map_err(OfflineError::io("read", file))?;
            let part = buf.get(..count).unwrap_or_default();
            if part.is_empty() {
                break;
            }
            to.write_all_at(part, done)
                .map_err(OfflineError::io("write", backup))?;
            done += count as u64;
        }
        to.sync_data().map_err(OfflineError::io("sync", backup))?;
        self.sync_dir_of(backup)
    }

    /// Gives a file new content, all at once.
    fn replace(&self, path: &Path, content: &[u8]) -> Result<(), OfflineError> {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        // A start removes it if we do not come to the end.
        name.push(".repair.tmp");
        let temporary = path.with_file_name(name);
        let file = self
            .fs
            .open(&temporary, OpenHow::CREATE)
            .map_err(OfflineError::io("create", &temporary))?;
        let written = file
            .set_len(0)
            .and_then(|()| file.write_all_at(content, 0))
            .and_then(|()| file.sync_data());
        written.map_err(OfflineError::io("write", &temporary))?;
        self.fs
            .rename(&temporary, path)
            .map_err(OfflineError::io("replace", path))?;
        self.sync_dir_of(path)
    }

    fn sync_dir_of(&self, path: &Path) -> Result<(), OfflineError> {
        let dir = path.parent().unwrap_or(Path::new("."));
        self.fs.sync_dir(dir).map_err(OfflineError::io("sync", dir))
    }
}

/// Lists losses as not repairable.
fn refuse_losses(survey: &Survey, plan: &mut RepairPlan) {
    for lost in &survey.lost {
        let last = lost.first + lost.count - 1;
        let (ledger, first) = (lost.ledger, lost.first);
        let why = if first == last {
            format!("entry {ledger}:{first} is lost; reading it goes on answering that it is damaged")
        } else {
            format!(
                "entries {ledger}:{first} to {ledger}:{last} are lost; reading them goes on answering that they are damaged"
            )
        };
        plan.refuse(&lost.file, why);
    }
    for ledger in survey.ledgers.values().filter(|ledger| ledger.end_unknown) {
        let why = format!(
            "ledger {}: damage may have hidden its last entries; a start with storage.salvage takes the {} that are there \
             for all",
            ledger.id, ledger.end
        );
        plan.refuse(Path::new(""), why);
    }
}
