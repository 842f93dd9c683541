//! Errors of opening a store.

use std::path::PathBuf;

/// Reason why a store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenStoreError {
    /// Another process, or another store in this process, has the directory open.
    #[error("{} is in use by another process", .0.display())]
    Locked(PathBuf),
    /// Written by a version that this one does not understand.
    #[error("{} has format version {found}, this program understands version {known}", .dir.display())]
    Version {
        /// The directory.
        dir: PathBuf,
        /// The version it has.
        found: u32,
        /// The version this program writes.
        known: u32,
    },
    /// A file that the store cannot be understood without was changed.
    #[error("{} is damaged", .0.display())]
    Damaged(PathBuf),
    /// The directory has data but no file that says what it is.
    #[error("{} has data files but no VERSION file", .0.display())]
    NoVersion(PathBuf),
    /// The directory belongs somewhere else, or something that belongs there is missing.
    #[error("{}: {what}", .dir.display())]
    WrongDirectory {
        /// The directory.
        dir: PathBuf,
        /// Description of the damage.
        what: String,
    },
    /// An option is out of its range.
    #[error("invalid storage option: {0}")]
    Options(String),
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

impl OpenStoreError {
    pub(crate) fn io(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { what, path, source }
    }

    pub(crate) fn wrong(dir: impl Into<PathBuf>, what: impl Into<String>) -> Self {
        Self::WrongDirectory {
            dir: dir.into(),
            what: what.into(),
        }
    }
}
