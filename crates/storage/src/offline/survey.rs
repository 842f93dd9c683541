//! State of the store as a start would find it: ledgers, the locations of their entries, and what is missing.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};

use pharos_ledger::{Durability, Sealed};
use pharos_storage_format::checkpoint::{Checkpoint, LedgerRow, durability_from_number};
use pharos_storage_format::group::GroupHeader;
use pharos_storage_format::record::{Kind, RecordHeader};
use pharos_storage_format::runs::{Run, Runs};
use pharos_storage_format::scan::Bad;
use pharos_types::LedgerId;

use super::base::BaseState;
use super::findings::{Effect, Finding, Findings, LostEntries, Remedy, Totals};
use super::journals::{self, Journal, JournalPlace, Visitor};
use super::logs::{self, Found, LogSurvey};
use super::ranges::Ranges;
use super::window::Window;
use super::{Offline, OfflineError, OnProgress, Progress};

/// A place that explains a loss.
#[derive(Clone, Debug)]
pub(super) struct Spot {
    pub(super) file: PathBuf,
    pub(super) byte_offset: u64,
}

/// A ledger as a start would find it.
#[derive(Debug)]
pub(super) struct LedgerSurvey {
    pub(super) id: u64,
    pub(super) durability: Durability,
    pub(super) journal: u16,
    /// None for one that only a journal knows.
    pub(super) dir: Option<u16>,
    pub(super) flushed: u64,
    pub(super) flushed_bytes: u64,
    pub(super) sealed: Option<Sealed>,
    pub(super) end: u64,
    /// Damage may have hidden its last entries.
    pub(super) end_unknown: bool,
    pub(super) runs: Runs,
    /// Entries that only a journal has.
    pub(super) live: Ranges,
    pub(super) live_bytes: u64,
    gaps: Vec<(u64, u64, Spot)>,
}

impl LedgerSurvey {
    fn from_row(row: &LedgerRow) -> Self {
        Self {
            dir: Some(row.dir),
            flushed: row.flushed,
            flushed_bytes: row.flushed_bytes,
            sealed: row.sealed,
            end: row.flushed,
            end_unknown: row.end_unknown,
            ..Self::new(row.id, row.durability, row.journal)
        }
    }

    fn new(id: u64, durability: Durability, journal: u16) -> Self {
        Self {
            id,
            durability,
            journal,
            dir: None,
            flushed: 0,
            flushed_bytes: 0,
            sealed: None,
            end: 0,
            end_unknown: false,
            runs: Runs::default(),
            live: Ranges::default(),
            live_bytes: 0,
            gaps: Vec::new(),
        }
    }

    /// Entries that neither a journal nor an index knows.
    fn missing(&self) -> Ranges {
        let mut missing = Ranges::of(0, self.end);
        for run in self.runs.iter() {
            missing.remove(run.first, run.end_entry());
        }
        for (first, end) in self.live.iter() {
            missing.remove(first, end);
        }
        missing
    }

    /// Returns the damage that explains a missing entry.
    fn spot(&self, entry: u64) -> Option<&Spot> {
        let gap = self.gaps.iter().find(|gap| (gap.0..gap.1).contains(&entry));
        gap.map(|gap| &gap.2)
    }
}

/// Everything that a start would know.
#[derive(Debug, Default)]
pub(super) struct Survey {
    pub(super) ledgers: BTreeMap<u64, LedgerSurvey>,
    deleted: HashSet<u64>,
    pub(super) logs: Vec<LogSurvey>,
    pub(super) journals: Vec<Option<Journal>>,
    /// By journal and segment: where the walk began, and where the data ends.
    pub(super) swept: BTreeMap<(usize, u32), (u64, u64)>,
    pub(super) findings: Findings,
    pub(super) lost: Vec<LostEntries>,
    pub(super) totals: Totals,
    /// Above every ledger id that was ever given out.
    pub(super) ledger_next: u64,
    /// A ledger was created whose entries are never in a journal.
    pub(super) has_bypass: bool,
}

/// Tells how far a look is.
pub(super) struct Meter<'a> {
    tell: OnProgress<'a>,
    progress: Progress,
    told: u64,
}

impl<'a> Meter<'a> {
    pub(super) fn new(tell: OnProgress<'a>) -> Self {
        Self {
            tell,
            progress: Progress {
                bytes_done: 0,
                bytes_total: 0,
            },
            told: 0,
        }
    }

    pub(super) fn expect(&mut self, bytes: u64) {
        self.progress.bytes_total += bytes;
    }

    pub(super) fn add(&mut self, bytes: u64) {
        self.progress.bytes_done += bytes;
        if self.progress.bytes_done - self.told >= 1 << 20 {
            self.told = self.progress.bytes_done;
            (self.tell)(self.progress);
        }
    }
}

/// A survey while a journal is walked.
struct Replay<'a, 'm> {
    survey: &'a mut Survey,
    meter: &'a mut Meter<'m>,
    journals: usize,
    /// The last damage met: it explains the next gap.
    damage: Option<Spot>,
}

impl Survey {
    /// Reads indexes and journals. None when there is nothing to go on from.
    pub(super) fn make(offline: &Offline, meter: &mut Meter<'_>) -> Result<Option<Self>, OfflineError> {
        let Some(checkpoint) = offline.checkpoint() else {
            return Ok(None);
        };
        let mut survey = Self::default();
        for finding in &offline.base.findings {
            survey.findings.push(finding.clone());
        }
        survey.load(offline, checkpoint)?;
        survey.journals = journals::open_all(
            &offline.fs,
            &offline.journals,
            &checkpoint.journals,
            checkpoint.clean,
        )?;
        meter.expect(survey.journals.iter().flatten().map(Journal::live_bytes).sum());
        survey.replay(offline, meter);
        survey.finish(offline);
        Ok(Some(survey))
    }

    /// Walks through the journals alone, as if there were no checkpoint.
    pub(super) fn of_journals(offline: &Offline) -> Result<Self, OfflineError> {
        let mut survey = Self {
            journals: journals::open_all(&offline.fs, &offline.journals, &[], false)?,
            ..Self::default()
        };
        let mut silent = |_| {};
        survey.replay(offline, &mut Meter::new(&mut silent));
        Ok(survey)
    }

    fn load(&mut self, offline: &Offline, checkpoint: &Checkpoint) -> Result<(), OfflineError> {
        self.ledger_next = checkpoint.ledger_next;
        for row in &checkpoint.ledgers {
            self.ledgers.insert(row.id, LedgerSurvey::from_row(row));
        }
        for dir in &offline.ledgers {
            for end in checkpoint.logs.iter().filter(|end| end.dir == dir.number) {
                let findings = &mut self.findings;
                let (log, runs) = logs::open(&*offline.fs, dir, *end, &mut |finding| findings.push(finding))?;
                for run in &runs {
                    if let Some(ledger) = self.ledgers.get_mut(&run.ledger) {
                        ledger.runs.insert(Run::new(end.log, run));
                    }
                }
                self.logs.push(log);
            }
            for path in logs::leftovers(dir, &checkpoint.logs) {
                if matches!(offline.base.state, BaseState::Unfinished(_)) && path.ends_with("CHECKPOINT.tmp")
                {
                    continue;
                }
                let what = "no checkpoint names this file: it was never finished, or is needed no more";
                let finding = Finding::new(Effect::Harmless, &path, 0, what);
                self.findings.push(finding.remedy(Remedy::Start));
            }
        }
        Ok(())
    }

    fn replay(&mut self, offline: &Offline, meter: &mut Meter<'_>) {
        let journals = std::mem::take(&mut self.journals);
        for (journal, dir) in journals.iter().zip(&offline.journals) {
            let Some(journal) = journal else { continue };
            let mut replay = Replay {
                survey: self,
                meter,
                journals: offline.journals.len(),
                damage: None,
            };
            journal.walk(&dir.path, &mut replay);
        }
        self.journals = journals;
    }

    /// Everything is known: what ledgers hold, and what of it is missing.
    fn finish(&mut self, offline: &Offline) {
        let mut live: HashMap<(u32, u32), (u64, u64)> = HashMap::new();
        for ledger in self.ledgers.values_mut() {
            let before = ledger.end;
            if let Some(sealed) = ledger.sealed {
                ledger.end = sealed.entry_count;
                ledger.end_unknown = false;
                self.totals.sealed += 1;
            }
            if ledger.end < before {
                let what = format!(
                    "the ledger was sealed with {} entries, but {before} are there",
                    ledger.end
                );
                let finding = Finding::new(Effect::MayHide, &offline.base.path, 0, what);
                self.findings.push(finding.of_ledger(ledger.id));
            }
            for run in ledger.runs.iter() {
                let dir = u32::from(ledger.dir.unwrap_or(0));
                let entry = live.entry((dir, run.log)).or_default();
                entry.0 += run.bytes();
                entry.1 += 1;
                self.totals.runs += 1;
            }
            self.totals.ledgers += 1;
            self.totals.entries = self.totals.entries.saturating_add(ledger.end);
        }
        for log in &mut self.logs {
            let found = live.get(&(log.end.dir, log.end.log)).copied().unwrap_or_default();
            (log.live_bytes, log.live_runs) = found;
            self.totals.logs += 1;
        }
        self.list_missing(offline);
    }

    fn list_missing(&mut self, offline: &Offline) {
        let gone: HashMap<u32, &LogSurvey> = self
            .logs
            .iter()
            .filter(|log| log.file.is_none())
            .map(|log| (log.end.dir, log))
            .collect();
        for ledger in self.ledgers.values() {
            for (first, end) in ledger.missing().iter() {
                let dir = u32::from(ledger.dir.unwrap_or(0));
                let (spot, what) = match (ledger.spot(first), gone.get(&dir)) {
                    (Some(spot), _) => (spot.clone(), "damaged in the journal before they were flushed"),
                    (None, Some(log)) => {
                        let file = log.path.clone();
                        (Spot { file, byte_offset: 0 }, "in no log; this one is missing")
                    }
                    (None, None) => {
                        let path = offline.ledgers.get(dir as usize).map(|dir| dir.path.clone());
                        let file = path.unwrap_or_default();
                        (Spot { file, byte_offset: 0 }, "in no log and in no journal")
                    }
                };
                self.lost.push(LostEntries {
                    ledger: LedgerId(ledger.id),
                    first,
                    count: end - first,
                    file: spot.file,
                    byte_offset: spot.byte_offset,
                    what,
                });
            }
        }
    }

    /// Reads every record in the logs that a ledger needs.
    pub(super) fn read_logs(&mut self, offline: &Offline, meter: &mut Meter<'_>) {
        let mut needed: HashMap<(u32, u32), Vec<RunPlace>> = HashMap::new();
        for ledger in self.ledgers.values() {
            let dir = u32::from(ledger.dir.unwrap_or(0));
            for run in ledger.runs.iter() {
                let place = (run.start, ledger.id, run.first);
                needed.entry((dir, run.log)).or_default().push(place);
            }
        }
        let mut payload_bytes: HashMap<u64, u64> = HashMap::new();
        for log in &self.logs {
            let Some(file) = &log.file else { continue };
            let Some(mut runs) = needed.remove(&(log.end.dir, log.end.log)) else {
                continue;
            };
            runs.sort_unstable();
            let mut window = Window::new(&*file.file);
            for (_, id, first) in runs {
                let Some(ledger) = self.ledgers.get(&id) else {
                    continue;
                };
                let Some(run) = ledger.runs.find(first) else {
                    continue;
                };
                let mut misplaced = None;
                let bytes = payload_bytes.entry(id).or_default();
                let lost = &mut self.lost;
                logs::read_run(&mut window, file, id, run, &mut |found| match found {
                    Found::Entry(entry, at, body) => {
                        *bytes += body.len() as u64;
                        let (nearest, place) = run.nearest(entry);
                        if nearest == entry && u64::from(place) != at {
                            misplaced.get_or_insert(at);
                        }
                    }
                    Found::Bad(bad) => lost.extend(lost_of(ledger, file.path.as_path(), bad)),
                });
                if let Some(at) = misplaced {
                    let what = "the index says another place for this record";
                    let finding = Finding::new(Effect::MayHide, &file.path, at, what).remedy(Remedy::Repair);
                    self.findings.push(finding.of_ledger(id));
                }
                self.totals.bytes += run.bytes();
                meter.add(run.bytes());
            }
            if let Some((at, error)) = window.refused {
                let what = format!("the device cannot read here: {error}");
                self.findings
                    .push(Finding::new(Effect::Harmless, &file.path, at, what));
            }
        }
        self.check_bytes(offline, &payload_bytes);
    }

    /// Checks that the checkpoint's payload bytes match those of the records, for ledgers of which nothing is
    /// missing.
    fn check_bytes(&mut self, offline: &Offline, payload_bytes: &HashMap<u64, u64>) {
        let hurt: HashSet<u64> = self.lost.iter().map(|lost| lost.ledger.0).collect();
        for ledger in self.ledgers.values().filter(|ledger| !hurt.contains(&ledger.id)) {
            let found = payload_bytes.get(&ledger.id).copied().unwrap_or(0);
            let beyond = ledger.runs.iter().any(|run| run.end_entry() > ledger.flushed);
            if found != ledger.flushed_bytes && !beyond {
                let what = format!(
                    "the checkpoint counts {} payload bytes where the logs have {found}",
                    ledger.flushed_bytes
                );
                let finding = Finding::new(Effect::Harmless, &offline.base.path, 0, what);
                self.findings.push(finding.of_ledger(ledger.id));
            }
        }
    }
}

/// Start of a run in its log, its ledger and its first entry.
type RunPlace = (u32, u64, u64);

/// Returns the entries in a damaged stretch of a log that no journal has.
fn lost_of(ledger: &LedgerSurvey, file: &Path, bad: logs::BadEntries) -> Vec<LostEntries> {
    let mut lost = Ranges::of(bad.first, bad.end.min(ledger.end));
    for (first, end) in ledger.live.iter() {
        lost.remove(first, end);
    }
    let one = |(first, end): (u64, u64)| LostEntries {
        ledger: LedgerId(ledger.id),
        first,
        count: end - first,
        file: file.to_owned(),
        byte_offset: bad.byte_offset,
        what: "damaged in the log",
    };
    lost.iter().map(one).collect()
}

impl Replay<'_, '_> {
    fn ledger(&mut self, journal: usize, id: u64, durability: u64) -> &mut LedgerSurvey {
        let fresh = || LedgerSurvey::new(id, durability_from_number(durability), journal as u16);
        self.survey.ledgers.entry(id).or_insert_with(fresh)
    }

    fn entry(
        &mut self,
        place: JournalPlace<'_>,
        header: &RecordHeader,
        body: Option<&[u8]>,
        byte_offset: u64,
    ) {
        let damage = self.damage.clone();
        let ledger = self.ledger(place.journal, header.ledger, 0);
        ledger.end_unknown = false;
        let spot = Spot {
            file: place.path.to_owned(),
            byte_offset,
        };
        if header.value < ledger.end {
            if body.is_none() {
                self.harmless_record(&spot, header, "damaged in the journal; the entry logs have it");
            }
            return;
        }
        let entry = header.value;
        if entry > ledger.end {
            let cause = damage.unwrap_or_else(|| spot.clone());
            ledger.gaps.push((ledger.end, entry, cause));
        }
        ledger.end = entry + 1;
        match body {
            Some(body) => {
                ledger.live.add(entry, entry + 1);
                ledger.live_bytes += body.len() as u64;
            }
            None => ledger.gaps.push((entry, entry + 1, spot)),
        }
    }

    fn harmless_record(&mut self, spot: &Spot, header: &RecordHeader, what: &str) {
        let finding = Finding::new(Effect::Harmless, &spot.file, spot.byte_offset, what)
            .bytes(header.total_bytes() as u64)
            .of_entry(header.ledger, header.value);
        self.survey.findings.push(finding);
    }

    fn end_unknown(&mut self, journal: usize) {
        let journals = self.journals.max(1);
        for ledger in self.survey.ledgers.values_mut() {
            if usize::from(ledger.journal) % journals == journal && ledger.sealed.is_none() {
                ledger.end_unknown = true;
            }
        }
    }
}

impl Visitor for Replay<'_, '_> {
    fn record(
        &mut self,
        place: JournalPlace<'_>,
        header: &RecordHeader,
        body: Option<&[u8]>,
        byte_offset: u64,
    ) {
        self.survey.totals.records += 1;
        self.survey.ledger_next = self.survey.ledger_next.max(header.ledger.saturating_add(1));
        if self.survey.deleted.contains(&header.ledger) {
            if body.is_none() {
                let spot = Spot {
                    file: place.path.to_owned(),
                    byte_offset,
                };
                self.harmless_record(&spot, header, "damaged in the journal; its ledger was deleted");
            }
            return;
        }
        match header.kind {
            Kind::Entry => self.entry(place, header, body, byte_offset),
            Kind::Created => {
                self.survey.has_bypass |= durability_from_number(header.value) == Durability::Bypass;
                self.ledger(place.journal, header.ledger, header.value);
            }
            Kind::Sealed => {
                let ledger = self.ledger(place.journal, header.ledger, 0);
                let bytes = ledger.flushed_bytes + ledger.live_bytes;
                ledger.sealed.get_or_insert(Sealed {
                    entry_count: header.value,
                    bytes,
                });
                ledger.end_unknown = false;
                if header.value > ledger.end
                    && let Some(damage) = self.damage.clone()
                {
                    let ledger = self.ledger(place.journal, header.ledger, 0);
                    ledger.gaps.push((ledger.end, header.value, damage));
                }
            }
            Kind::Deleted => {
                self.survey.deleted.insert(header.ledger);
                self.survey.ledgers.remove(&header.ledger);
            }
        }
    }

    fn bad(&mut self, place: JournalPlace<'_>, bad: &Bad) {
        self.damage = Some(Spot {
            file: place.path.to_owned(),
            byte_offset: bad.start,
        });
        let what = "damaged: what was written and synced here has changed";
        let finding = Finding::new(Effect::MayHide, place.path, bad.start, what);
        self.survey.findings.push(finding.bytes(bad.end - bad.start));
        self.end_unknown(place.journal);
    }

    fn group(&mut self, _place: JournalPlace<'_>, group: &GroupHeader) {
        self.survey.totals.groups += 1;
        self.survey.ledger_next = self.survey.ledger_next.max(group.ledger_next);
        self.meter.add(u64::from(group.record_bytes));
    }

    fn segment(&mut self, place: JournalPlace<'_>, from: u64, end: u64) {
        self.survey.totals.segments += 1;
        self.survey.totals.bytes += end.saturating_sub(from);
        self.survey
            .swept
            .insert((place.journal, place.segment), (from, end));
    }

    fn finding(&mut self, finding: Finding) {
        self.survey.findings.push(finding);
    }

    fn missing(&mut self, journal: usize, path: &Path, what: &'static str) {
        self.damage = Some(Spot {
            file: path.to_owned(),
            byte_offset: 0,
        });
        self.survey
            .findings
            .push(Finding::new(Effect::MayHide, path, 0, what));
        self.end_unknown(journal);
    }
}
