//! Planned faults of a [`FaultFs`](super::FaultFs), and the number of times they occurred.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::random::Random;

/// A call that a fault can be planned for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FaultOp {
    /// Opening a file that is there.
    Open,
    /// Making a file by opening it.
    Create,
    /// Reading from a file.
    Read,
    /// Writing to a file.
    Write,
    /// Setting the length of a file.
    SetLen,
    /// Reserving room for a file.
    Allocate,
    /// Syncing a file.
    SyncFile,
    /// Renaming a file.
    Rename,
    /// Removing a file.
    Remove,
    /// Listing a directory.
    List,
    /// Making a directory.
    CreateDir,
    /// Syncing a directory.
    SyncDir,
    /// Taking the lock on a file.
    Lock,
}

/// Effect on the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// Refused: the device failed (`EIO`). A write may have taken effect up to any byte; a sync loses, in part or in whole,
    /// what was not synced.
    Io,
    /// Refused: no room (`ENOSPC`), otherwise as [`Fault::Io`].
    NoSpace,
    /// Refused: the process has as many files open as it may (`EMFILE`). Nothing has happened.
    TooManyFiles,
    /// Answered as done, and not done: of a write its bytes, of a sync all that it was to sync. The page cache shows the
    /// bytes until it is dropped; the device never has them.
    Lost,
    /// Misdirected write: reported as done, but its bytes are at another offset of the same file or in another file.
    /// The page cache shows the intended content until it is dropped.
    Misdirected,
}

impl Fault {
    /// Returns the error that the caller gets; `None` if it is told that the call succeeded.
    pub(super) fn error(self) -> Option<io::Error> {
        match self {
            Self::Io => Some(Errno::IO.into()),
            Self::NoSpace => Some(Errno::NOSPC.into()),
            Self::TooManyFiles => Some(Errno::MFILE.into()),
            Self::Lost | Self::Misdirected => None,
        }
    }
}

/// Selection of the calls that are hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// The call after so many others of its kind, once: 0 is the next one.
    In(u64),
    /// Each with a probability of one in so many, as the seed decides; `OneIn(1)` is all of them.
    OneIn(u64),
}

/// A planned fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The call it is planned for.
    pub op: FaultOp,
    /// Effect on the call.
    pub fault: Fault,
    /// Calls that are hit.
    pub when: When,
    /// Only files (or directories) at or below this path; `None`: everywhere.
    pub under: Option<PathBuf>,
}

impl Plan {
    /// Everywhere, the `calls`-th call from now (0: the next one).
    #[must_use]
    pub fn next(op: FaultOp, fault: Fault, calls: u64) -> Self {
        Self {
            op,
            fault,
            when: When::In(calls),
            under: None,
        }
    }

    /// Everywhere, one in `calls` as the seed decides.
    #[must_use]
    pub fn one_in(op: FaultOp, fault: Fault, calls: u64) -> Self {
        Self {
            when: When::OneIn(calls),
            ..Self::next(op, fault, 0)
        }
    }

    /// Returns the same plan for files at or below a path.
    #[must_use]
    pub fn under(self, path: &Path) -> Self {
        Self {
            under: Some(path.to_owned()),
            ..self
        }
    }

    /// True if a [`FaultFs`](super::FaultFs) can do this: only writes and file syncs can be lost, only writes
    /// misdirected.
    pub(super) fn is_possible(&self) -> bool {
        match self.fault {
            Fault::Lost => matches!(self.op, FaultOp::Write | FaultOp::SyncFile),
            Fault::Misdirected => self.op == FaultOp::Write,
            Fault::Io | Fault::NoSpace | Fault::TooManyFiles => self.when != When::OneIn(0),
        }
    }

    fn concerns(&self, op: FaultOp, path: Option<&Path>) -> bool {
        let below = |under: &PathBuf| path.is_some_and(|path| path.starts_with(under));
        self.op == op && self.under.as_ref().is_none_or(below)
    }
}

/// The fault that hits this call, if one does. Plans for one call are forgotten once they have hit.
pub(super) fn hit(
    plans: &mut Vec<Plan>,
    random: &mut Random,
    op: FaultOp,
    path: Option<&Path>,
) -> Option<Fault> {
    let mut found = None;
    plans.retain_mut(|plan| {
        if found.is_some() || !plan.concerns(op, path) {
            return true;
        }
        match &mut plan.when {
            When::OneIn(calls) => {
                if random.below(*calls as usize) == 0 {
                    found = Some(plan.fault);
                }
                true
            }
            When::In(0) => {
                found = Some(plan.fault);
                false
            }
            When::In(calls) => {
                *calls -= 1;
                true
            }
        }
    });
    found
}

/// Faults so far, over all lives. With these a test checks that it reaches the faults it is for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaultCounts {
    /// Calls that a plan hit, by call and fault.
    pub hits: BTreeMap<(FaultOp, Fault), u64>,
    /// Writes that failed after a part of them was done.
    pub partial_writes: u64,
    /// Failed syncs after which bytes are gone that were written before.
    pub lossy_syncs: u64,
    /// Calls refused because [`handles_max`](super::FaultFs::set_handles_max) were open.
    pub refused_handles: u64,
    /// Writes refused because [`bytes_max`](super::FaultFs::set_bytes_max) was reached.
    pub refused_bytes: u64,
    /// Reads of a range that [cannot be read](super::FaultFs::fail_range).
    pub refused_reads: u64,
    /// Crashes that kept a change of a name and lost an earlier one of the same directory.
    pub names_out_of_order: u64,
    /// Writes of which a crash kept some bytes of a sector and not others.
    pub torn_sectors: u64,
}

impl FaultCounts {
    /// Returns the number of calls of this kind that met this fault.
    #[must_use]
    pub fn hits_of(&self, op: FaultOp, fault: Fault) -> u64 {
        self.hits.get(&(op, fault)).copied().unwrap_or_default()
    }
}
