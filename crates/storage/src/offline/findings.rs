//! Findings of a check.

use std::path::{Path, PathBuf};

use pharos_types::LedgerId;

/// The most findings that are kept; of the others only the number is known.
const FINDINGS_MAX: usize = 10_000;

/// Effect of a finding on the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// Nothing is lost by it.
    Harmless,
    /// May hide entries or ledgers; which ones cannot be determined.
    MayHide,
    /// The store does not open while it is so.
    DoesNotOpen,
}

/// Remedy for a finding.
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
    /// Effect on the data.
    pub effect: Effect,
    /// Remedy for it.
    pub remedy: Remedy,
    /// The file, or a directory where a file is missing.
    pub file: PathBuf,
    /// Offset in the file.
    pub byte_offset: u64,
    /// Length, in bytes; 0 if that means nothing.
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
    /// Number of entries.
    pub count: u64,
    /// The file that has, or should have, the first of them; a directory when no file is known.
    pub file: PathBuf,
    /// Offset of the damage in the file.
    pub byte_offset: u64,
    /// Reason why they cannot be read.
    pub what: &'static str,
}

/// Totals of what was read for a report.
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
    /// Number of sealed ledgers.
    pub sealed: u64,
    /// Entries that exist or should.
    pub entries: u64,
    /// Number of lost entries.
    pub entries_lost: u64,
}

/// Result of a check.
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
    /// Number of further findings that were left out.
    pub findings_left_out: u64,
    /// Totals of what was read.
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
