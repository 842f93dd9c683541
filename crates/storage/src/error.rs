//! Why a store could not be opened.

use std::path::PathBuf;

/// What keeps a store from opening.
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
    /// The file that says what the directory is was changed.
    #[error("{} is damaged", .0.display())]
    Damaged(PathBuf),
    /// The directory has segments but no file that says what it is.
    #[error("{} has segment files but no VERSION file", .0.display())]
    NoVersion(PathBuf),
    /// An option is out of its range.
    #[error("invalid storage option: {0}")]
    Options(String),
    /// The system refused.
    #[error("cannot {what} {}", .path.display())]
    Io {
        /// What was tried.
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
}
