//! What a check says.

use std::path::{Path, PathBuf};

use pharos_types::LedgerId;

/// The most findings that are kept; of the others only the number is known.
const FINDINGS_MAX: usize = 10_000;

/// What something means for the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// Nothing is lost by it.
    Harmless,
    /// It may hide entries or ledgers; which ones cannot be told.
    MayHide,
    /// The store does not open while it is so.
    DoesNotOpen,
}

/// What puts something right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// Nothing that this program can do.
    None,
    /// The next start of the store.
    Start,
    /// [`Offline::repair`](super::Offline::repair).
    Repair,
    /// The option `salvage`, which takes what is left for all there was.
    Salvage,
}

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What it means.
    pub effect: Effect,
    /// What helps.
    pub remedy: Remedy,
    /// The file, or a directory where a file is missing.
    pub file: PathBuf,
    /// Where in the file it begins.
    pub byte_offset: u64,
    /// How long it is in bytes; 0 when that means nothing.
    pub bytes: u64,
    /// The ledger that it concerns, when that is known.
    pub ledger: Option<LedgerId>,
    /// The entry of that ledger.
    pub entry: Option<u64>,
    /// A sentence for a person.
    pub what: String,
}

impl Finding {
    pub(super) fn new(effect: Effect, file: &Path, byte_offset: u64, what: impl Into<String>) -> Self {
        Self {
            effect,
            remedy: Remedy::None,
            file: file.to_owned(),
            byte_offset,
            bytes: 0,
            ledger: None,
            entry: None,
            what: what.into(),
        }
    }

    pub(super) fn remedy(self, remedy: Remedy) -> Self {
        Self { remedy, ..self }
    }

    pub(super) fn bytes(self, bytes: u64) -> Self {
        Self { bytes, ..self }
    }

    pub(super) fn of_entry(self, ledger: u64, entry: u64) -> Self {
        Self {
            ledger: Some(LedgerId(ledger)),
            entry: Some(entry),
            ..self
        }
    }

    pub(super) fn of_ledger(self, ledger: u64) -> Self {
        Self {
            ledger: Some(LedgerId(ledger)),
            ..self
        }
    }
}

/// Entries that were acknowledged and cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostEntries {
    /// Their ledger.
    pub ledger: LedgerId,
    /// The first one.
    pub first: u64,
    /// How many.
    pub count: u64,
    /// The file that has, or should have, the first of them; a directory when no file is known.
    pub file: PathBuf,
    /// Where in it the damage begins.
    pub byte_offset: u64,
    /// Why they cannot be read.
    pub what: &'static str,
}

/// What was read for a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Bytes of journals and logs, as far as they hold data.
    pub bytes: u64,
    /// Journal segments with data.
    pub segments: u64,
    /// Groups in them.
    pub groups: u64,
    /// Records in these.
    pub records: u64,
    /// Entry logs in use.
    pub logs: u64,
    /// Runs in the logs.
    pub runs: u64,
    /// Ledgers that exist.
    pub ledgers: u64,
    /// Of these, sealed.
    pub sealed: u64,
    /// Entries that exist or should.
    pub entries: u64,
    /// Of these, lost.
    pub entries_lost: u64,
}

/// What a check found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Entries that cannot be read, by ledger and entry.
    pub lost: Vec<LostEntries>,
    /// Ledgers whose last entries damage may have hidden: recovering them is refused unless the option `salvage` is set.
    pub unknown_ends: Vec<LedgerId>,
    /// All ledgers that exist, by id, and how many entries each has or should have.
    pub ledgers: Vec<(LedgerId, u64)>,
    /// Everything else, the worst first.
    pub findings: Vec<Finding>,
    /// How many further findings were left out.
    pub findings_left_out: u64,
    /// How much was looked at.
    pub totals: Totals,
    /// The store could be read as a whole; otherwise only `findings` means something.
    pub complete: bool,
}

impl Report {
    /// Every acknowledged entry is there, as far as can be told, and the store opens.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        let harmless = self
            .findings
            .iter()
            .all(|finding| finding.effect == Effect::Harmless);
        self.complete && harmless && self.lost.is_empty() && self.unknown_ends.is_empty()
    }
}

/// Findings on their way to a report.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub(super) all: Vec<Finding>,
    pub(super) left_out: u64,
}

impl Findings {
    pub(super) fn push(&mut self, finding: Finding) {
        if self.all.len() < FINDINGS_MAX {
            self.all.push(finding);
            return;
        }
        // What is harmless makes room for what is not.
        let less = self.all.iter_mut().find(|known| known.effect < finding.effect);
        if let Some(known) = less {
            *known = finding;
        }
        self.left_out += 1;
    }
}
