//! Looking at a store that is not open: checking, inspecting and repairing it.
//!
//! ```text
//!  directories, VERSION, CHECKPOINT ─► indexes ─► ledgers' runs ─┐
//!                                   journals behind the marks ───┴► survey ─► check (reads every record)
//!                                                                        ├► overview, ledger, entries
//!                                                                        └► plan ─► repair
//! ```
//! Works as a start of the store would (`recovery`), with the same decoders and the same walk through journals, but
//! changes nothing and keeps no payloads: memory grows with the number of ledgers and runs, as it does in an open store.
//!
//! Always true: without [`Access::Change`] no file is made, written or removed. The directories are locked while an
//! [`Offline`] lives, so no broker opens the store meanwhile; where there is no `LOCK` file no broker has it open.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pharos_runtime::fs::{Fs, FsLock, OpenHow, RealFs};
use pharos_storage_format::checkpoint::Checkpoint;

use crate::Options;

mod base;
mod check;
mod dirs;
mod entries;
mod file;
mod findings;
mod journals;
mod logs;
mod overview;
mod ranges;
mod repair;
mod survey;
mod window;

pub use entries::EntryView;
pub use file::{Item, Value};
pub use findings::{Effect, Finding, LostEntries, Remedy, Report, Totals};
pub use overview::{JournalView, LedgerView, LogView, Overview, RunView, SegmentUse, SegmentView};
pub use repair::{PlannedAction, Refusal, RepairPlan};

use base::{Base, BaseState};
use dirs::Dir;

/// Reason why a store could not be inspected.
#[derive(Debug, thiserror::Error)]
pub enum OfflineError {
    /// A broker has it open.
    #[error("{} is in use: stop the broker first", .0.display())]
    Locked(PathBuf),
    /// There is nothing.
    #[error("there is no store in {}", .0.display())]
    NoStore(PathBuf),
    /// Written by a version that this one does not understand.
    #[error("{} has format version {found}, this program understands version {known}", .dir.display())]
    Version {
        /// The directory.
        dir: PathBuf,
        /// The version it has.
        found: u32,
        /// The version this program understands.
        known: u32,
    },
    /// The store as a whole cannot be understood.
    #[error("{}: {what}", .path.display())]
    Unusable {
        /// The directory or file.
        path: PathBuf,
        /// Description of the damage.
        what: String,
    },
    /// The system refused.
    #[error("cannot {what} {}", .path.display())]
    Io {
        /// Operation that failed.
        what: &'static str,
        /// On which file.
        path: PathBuf,
        /// The system's answer.
        #[source]
        source: std::io::Error,
    },
}

impl OfflineError {
    fn io(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { what, path, source }
    }

    fn unusable(path: impl Into<PathBuf>, what: impl Into<String>) -> Self {
        Self::Unusable {
            path: path.into(),
            what: what.into(),
        }
    }
}

/// Permitted access to a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Nothing is made, written or removed.
    Look,
    /// Repairs may be made.
    Change,
}

/// Progress of a long inspection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes read.
    pub bytes_done: u64,
    /// Bytes that will be read, about.
    pub bytes_total: u64,
}

/// Callback for the progress of an inspection. Called about once per MiB.
pub type OnProgress<'a> = &'a mut dyn FnMut(Progress);

/// A store that is not open, locked so that it stays so.
#[derive(Debug)]
pub struct Offline {
    fs: Arc<dyn Fs>,
    access: Access,
    journals: Vec<Dir>,
    ledgers: Vec<Dir>,
    base: Base,
    _locks: Vec<Box<dyn FsLock>>,
}

impl Offline {
    /// Locks and reads what the store in `dir` is. Of `options` only the directories matter. Blocks shortly.
    ///
    /// # Errors
    /// [`OfflineError`]; `Locked` while a broker has the store open.
    pub fn open(dir: &Path, options: &Options, access: Access) -> Result<Self, OfflineError> {
        Self::open_with(Arc::new(RealFs), dir, options, access)
    }

    /// [`open`](Self::open) on another file system.
    ///
    /// # Errors
    /// As for `open`.
    pub fn open_with(
        fs: Arc<dyn Fs>,
        dir: &Path,
        options: &Options,
        access: Access,
    ) -> Result<Self, OfflineError> {
        let dirs::Opened {
            journals,
            ledgers,
            locks,
        } = dirs::open(&*fs, dir, options, access)?;
        let base = base::read(&*fs, &journals, &ledgers)?;
        Ok(Self {
            fs,
            access,
            journals,
            ledgers,
            base,
            _locks: locks,
        })
    }

    /// Returns the checkpoint that the store continues from, unless no complete one is left.
    fn checkpoint(&self) -> Option<&Checkpoint> {
        match &self.base.state {
            BaseState::Whole(found) | BaseState::OneCopy(found, _) | BaseState::Unfinished(found) => {
                Some(found)
            }
            BaseState::Lost => None,
        }
    }

    /// The bytes of a whole file, which is a small one.
    fn read_file(fs: &dyn Fs, path: &Path) -> Result<Vec<u8>, OfflineError> {
        let file = fs
            .open(path, OpenHow::READ)
            .map_err(OfflineError::io("open", path))?;
        let length = file.len().map_err(OfflineError::io("measure", path))?;
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
        let count = file
            .read_at(&mut bytes, 0)
            .map_err(OfflineError::io("read", path))?;
        bytes.truncate(count);
        Ok(bytes)
    }
}
