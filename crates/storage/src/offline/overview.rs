//! Overview of the content of a store, and its locations.

use std::path::{Path, PathBuf};

use pharos_ledger::{Durability, Sealed};
use pharos_storage_format::checkpoint::Mark;
use pharos_storage_format::names::CHECKPOINT;
use pharos_storage_format::runs::Run;
use pharos_types::LedgerId;

use super::findings::{Finding, LostEntries, Totals};
use super::journals::{Journal, Segment};
use super::logs::IndexState;
use super::survey::{LedgerSurvey, Meter, Survey};
use super::{Offline, OfflineError, OnProgress};

/// A store as a start would find it, and where everything is. Records in the logs are not read.
#[derive(Debug)]
pub struct Overview<'a> {
    pub(super) offline: &'a Offline,
    pub(super) survey: Survey,
}

/// Use of a segment at a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentUse {
    /// Wholly before the mark: nothing needs it.
    Covered,
    /// A start replays it, from `from` up to `end`.
    Replayed {
        /// Byte offset of the first group behind the mark.
        from: u64,
        /// End of its data.
        end: u64,
    },
    /// Room that was never used.
    Prepared,
}

/// A journal segment.
#[derive(Clone, Debug)]
pub struct SegmentView {
    /// Its file.
    pub file: PathBuf,
    /// Length of the file.
    pub bytes: u64,
    /// Use of the segment.
    pub usage: SegmentUse,
}

/// A journal.
#[derive(Clone, Debug)]
pub struct JournalView {
    /// Its directory.
    pub dir: PathBuf,
    /// Its number.
    pub number: usize,
    /// The mark's segment: what is before the mark is in the entry logs. 0 when there is none yet.
    pub mark_segment: u32,
    /// Byte offset of the mark in that segment.
    pub mark_offset: u64,
    /// Sequence number of the last group before the mark.
    pub mark_sequence: u64,
    /// Its segments, oldest first.
    pub segments: Vec<SegmentView>,
}

/// An entry log.
#[derive(Clone, Debug)]
pub struct LogView {
    /// Its file.
    pub file: PathBuf,
    /// The number of its directory.
    pub dir: u32,
    /// Its number.
    pub log: u32,
    /// End of its data, in bytes; none if the file is gone.
    pub bytes: Option<u64>,
    /// Bytes of it that ledgers need.
    pub live_bytes: u64,
    /// In how many runs.
    pub runs: u64,
    /// Its index is whole.
    pub index_whole: bool,
}

/// A ledger.
#[derive(Clone, Debug)]
pub struct LedgerView {
    /// Its id.
    pub id: LedgerId,
    /// Durability of its appends.
    pub durability: Durability,
    /// The number of its journal.
    pub journal: u16,
    /// The number of its ledger directory; none while nothing of it was ever flushed.
    pub dir: Option<u16>,
    /// Set once it is sealed.
    pub sealed: Option<Sealed>,
    /// Entries `0..entries` exist or should.
    pub entries: u64,
    /// Payload bytes, logs and journal together.
    pub bytes: u64,
    /// Number of entries that only a journal has.
    pub in_journal: u64,
    /// Runs in the logs.
    pub runs: usize,
    /// Damage may have hidden its last entries.
    pub end_unknown: bool,
}

/// Consecutive entries in a log.
#[derive(Clone, Debug)]
pub struct RunView {
    /// The log.
    pub file: PathBuf,
    /// The first entry.
    pub first: u64,
    /// Number of entries.
    pub count: u64,
    /// Offset of the first record.
    pub byte_offset: u64,
    /// End of the last record.
    pub byte_end: u64,
}

impl Offline {
    /// Finds out what is in the store: reads indexes, and journals behind their marks.
    ///
    /// # Errors
    /// [`OfflineError`]; `Unusable` when there is no whole checkpoint.
    pub fn overview(&self, progress: OnProgress<'_>) -> Result<Overview<'_>, OfflineError> {
        let survey = Survey::make(self, &mut Meter::new(progress))?;
        let none = || OfflineError::unusable(&self.base.path, "there is no whole checkpoint");
        Ok(Overview {
            offline: self,
            survey: survey.ok_or_else(none)?,
        })
    }
}

impl Overview<'_> {
    /// The number that marks everything of this store.
    #[must_use]
    pub fn store_id(&self) -> u64 {
        self.offline.checkpoint().map_or(0, |found| found.store_id)
    }

    /// The checkpoint's file.
    #[must_use]
    pub fn checkpoint_file(&self) -> PathBuf {
        let dir = self.offline.ledgers.first();
        dir.map(|dir| dir.path.join(CHECKPOINT)).unwrap_or_default()
    }

    /// The number of the checkpoint, and whether it was written by a clean stop.
    #[must_use]
    pub fn checkpoint(&self) -> (u64, bool) {
        self.offline
            .checkpoint()
            .map_or((0, false), |found| (found.generation, found.clean))
    }

    /// The id that the next ledger gets.
    #[must_use]
    pub fn ledger_next(&self) -> u64 {
        self.survey.ledger_next
    }

    /// Returns the totals. Bytes count journals only.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let entries_lost = self.survey.lost.iter().map(|lost| lost.count).sum();
        Totals {
            entries_lost,
            ..self.survey.totals
        }
    }

    /// Returns the findings so far.
    #[must_use]
    pub fn findings(&self) -> &[Finding] {
        &self.survey.findings.all
    }

    /// Entries that are known to be missing without having read the logs.
    #[must_use]
    pub fn lost(&self) -> &[LostEntries] {
        &self.survey.lost
    }

    /// The journals.
    #[must_use]
    pub fn journals(&self) -> Vec<JournalView> {
        let view = |(journal, path): (&Journal, &Path)| {
            let Mark {
                segment,
                byte_offset,
                sequence,
            } = journal.mark;
            let old = journal.old();
            let used = journal.segments.iter().enumerate().map(|(at, segment)| {
                let key = (journal.number, segment.file.id);
                let swept = self.survey.swept.get(&key).filter(|_| at >= old);
                let usage = swept.map_or(SegmentUse::Covered, |(from, end)| SegmentUse::Replayed {
                    from: *from,
                    end: *end,
                });
                segment_view(segment, usage)
            });
            let prepared = journal.prepared.iter();
            let prepared = prepared.map(|segment| segment_view(segment, SegmentUse::Prepared));
            JournalView {
                dir: path.to_owned(),
                number: journal.number,
                mark_segment: segment,
                mark_offset: byte_offset,
                mark_sequence: sequence,
                segments: used.chain(prepared).collect(),
            }
        };
        let dirs = self.offline.journals.iter().map(|dir| dir.path.as_path());
        let found = self.survey.journals.iter().zip(dirs);
        found
            .filter_map(|(journal, path)| Some(view((journal.as_ref()?, path))))
            .collect()
    }

    /// The entry logs that the checkpoint names.
    #[must_use]
    pub fn logs(&self) -> Vec<LogView> {
        let view = |log: &super::logs::LogSurvey| LogView {
            file: log.path.clone(),
            dir: log.end.dir,
            log: log.end.log,
            bytes: log.file.as_ref().map(|_| log.end.end),
            live_bytes: log.live_bytes,
            runs: log.live_runs,
            index_whole: log.index == IndexState::Whole,
        };
        self.survey.logs.iter().map(view).collect()
    }

    /// The ledgers, by rising id.
    pub fn ledgers(&self) -> impl Iterator<Item = LedgerView> + '_ {
        self.survey.ledgers.values().map(ledger_view)
    }

    /// Returns a ledger.
    #[must_use]
    pub fn ledger(&self, id: LedgerId) -> Option<LedgerView> {
        self.survey.ledgers.get(&id.0).map(ledger_view)
    }

    /// Returns the runs of a ledger: the locations of its entries in the logs.
    #[must_use]
    pub fn runs(&self, id: LedgerId) -> Vec<RunView> {
        let Some(ledger) = self.survey.ledgers.get(&id.0) else {
            return Vec::new();
        };
        let path = |log: u32| {
            let dir = u32::from(ledger.dir.unwrap_or(0));
            let found = self
                .survey
                .logs
                .iter()
                .find(|one| (one.end.dir, one.end.log) == (dir, log));
            found.map(|log| log.path.clone()).unwrap_or_default()
        };
        let view = |run: &Run| RunView {
            file: path(run.log),
            first: run.first,
            count: u64::from(run.count),
            byte_offset: u64::from(run.start),
            byte_end: u64::from(run.end),
        };
        ledger.runs.iter().map(view).collect()
    }
}

fn segment_view(segment: &Segment, usage: SegmentUse) -> SegmentView {
    SegmentView {
        file: segment.file.path.clone(),
        bytes: segment.file_bytes,
        usage,
    }
}

fn ledger_view(ledger: &LedgerSurvey) -> LedgerView {
    LedgerView {
        id: LedgerId(ledger.id),
        durability: ledger.durability,
        journal: ledger.journal,
        dir: ledger.dir,
        sealed: ledger.sealed,
        entries: ledger.end,
        bytes: ledger.flushed_bytes + ledger.live_bytes,
        in_journal: ledger.live.count(),
        runs: ledger.runs.iter().count(),
        end_unknown: ledger.end_unknown,
    }
}
