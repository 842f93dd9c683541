//! Reading the entries of one ledger of a store that is not open.

use std::collections::{HashSet, VecDeque};
use std::path::Path;

use pharos_storage_format::record::{Kind, RecordHeader};
use pharos_storage_format::runs::Run;
use pharos_storage_format::scan::Bad;
use pharos_types::LedgerId;

use super::findings::LostEntries;
use super::journals::{JournalPlace, Visitor};
use super::logs::{self, Found};
use super::overview::Overview;
use super::window::Window;

/// An entry, or several that cannot be read.
#[derive(Clone, Copy, Debug)]
pub struct EntryView<'a> {
    /// Its id.
    pub entry: u64,
    /// 1 for an entry that can be read.
    pub count: u64,
    /// The file that has it, or should.
    pub file: &'a Path,
    /// Offset of its record.
    pub byte_offset: u64,
    /// Its bytes; none when they cannot be read.
    pub payload: Option<&'a [u8]>,
}

/// Tells of entries in order, with what is missing between them.
struct Teller<'a> {
    first: u64,
    end: u64,
    missing: VecDeque<LostEntries>,
    visit: &'a mut dyn FnMut(EntryView<'_>),
}

impl Teller<'_> {
    fn entry(&mut self, entry: u64, file: &Path, byte_offset: u64, payload: &[u8]) {
        if !(self.first..self.end).contains(&entry) {
            return;
        }
        self.missing_before(entry);
        (self.visit)(EntryView {
            entry,
            count: 1,
            file,
            byte_offset,
            payload: Some(payload),
        });
    }

    fn missing_before(&mut self, entry: u64) {
        while let Some(lost) = self.missing.pop_front_if(|lost| lost.first < entry) {
            self.lost(lost.first, lost.count, &lost.file, lost.byte_offset);
        }
    }

    fn lost(&mut self, first: u64, count: u64, file: &Path, byte_offset: u64) {
        let (from, to) = (first.max(self.first), (first + count).min(self.end));
        if from < to {
            (self.visit)(EntryView {
                entry: from,
                count: to - from,
                file,
                byte_offset,
                payload: None,
            });
        }
    }
}

/// Picks one ledger's entries out of journals.
struct Picker<'a, 'b> {
    ledger: u64,
    wanted: &'a super::ranges::Ranges,
    told: HashSet<u64>,
    teller: &'a mut Teller<'b>,
}

impl Visitor for Picker<'_, '_> {
    fn record(
        &mut self,
        place: JournalPlace<'_>,
        header: &RecordHeader,
        body: Option<&[u8]>,
        byte_offset: u64,
    ) {
        let ours = header.kind == Kind::Entry && header.ledger == self.ledger;
        let entry = header.value;
        if let Some(body) = body
            && ours
            && (self.teller.first..self.teller.end).contains(&entry)
            && self.wanted.contains(entry)
            && self.told.insert(entry)
        {
            self.teller.entry(entry, place.path, byte_offset, body);
        }
    }

    fn bad(&mut self, _place: JournalPlace<'_>, _bad: &Bad) {}
}

impl Overview<'_> {
    /// Reads the entries `first..end` of a ledger, those in the logs before those in the journal, and checks each. Says
    /// `false` when there is no such ledger. Reads the ledger's journal behind the mark once more when it must.
    pub fn entries(
        &self,
        ledger: LedgerId,
        first: u64,
        end: u64,
        visit: &mut dyn FnMut(EntryView<'_>),
    ) -> bool {
        let Some(found) = self.survey.ledgers.get(&ledger.0) else {
            return false;
        };
        let missing = self
            .survey
            .lost
            .iter()
            .filter(|lost| lost.ledger == ledger)
            .cloned();
        let mut teller = Teller {
            first,
            end: end.min(found.end),
            missing: missing.collect(),
            visit,
        };
        let dir = u32::from(found.dir.unwrap_or(0));
        let overlapping = |run: &&Run| run.first < end && run.end_entry() > first;
        for run in found.runs.iter().filter(overlapping) {
            let log = self
                .survey
                .logs
                .iter()
                .find(|log| (log.end.dir, log.end.log) == (dir, run.log));
            let Some(file) = log.and_then(|log| log.file.as_ref()) else {
                continue;
            };
            let mut window = Window::new(&*file.file);
            logs::read_run(&mut window, file, ledger.0, run, &mut |one| match one {
                Found::Entry(entry, at, body) if !found.live.contains(entry) => {
                    teller.entry(entry, &file.path, at, body);
                }
                Found::Bad(bad) if !found.live.contains(bad.first) => {
                    teller.missing_before(bad.first);
                    teller.lost(bad.first, bad.end - bad.first, &file.path, bad.byte_offset);
                }
                Found::Entry(..) | Found::Bad(_) => {}
            });
        }
        if found.live.iter().any(|(from, to)| from < end && to > first) {
            self.pick(ledger.0, &found.live, &mut teller);
        }
        teller.missing_before(u64::MAX);
        true
    }

    fn pick(&self, ledger: u64, wanted: &super::ranges::Ranges, teller: &mut Teller<'_>) {
        let mut picker = Picker {
            ledger,
            wanted,
            told: HashSet::new(),
            teller,
        };
        for (journal, dir) in self.survey.journals.iter().zip(&self.offline.journals) {
            if let Some(journal) = journal {
                journal.walk(&dir.path, &mut picker);
            }
        }
    }
}
