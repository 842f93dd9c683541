//! What became of a call to a bookie.

use crate::entry::EntryError;
use crate::wire::Status;

/// Why a bookie did not do what it was asked to, or may not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// It answered, and not with ok.
    #[error("refused: {0}")]
    Refused(Status),
    /// It did not answer in time, or the connection ended before it did. It may have done it.
    #[error("no answer: {0}")]
    NoAnswer(&'static str),
    /// It was not asked: there is no connection, or too much waits for it already.
    #[error("not sent: {0}")]
    NotSent(&'static str),
    /// Its copy of the entry is of no use.
    #[error("a bad copy: {0}")]
    BadCopy(#[from] EntryError),
}

impl CallError {
    /// Whether the bookie says for certain that it does not have what was asked for.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Refused(Status::NoEntry | Status::NoLedger))
    }
}
