//! Result of a call to a bookie.

use crate::entry::EntryError;
use crate::wire::Status;

/// Failure of a call to a bookie; the bookie may have executed it nevertheless.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The bookie answered with a status other than ok.
    #[error("refused: {0}")]
    Refused(Status),
    /// The bookie did not answer in time, or the connection ended first. It may have executed the call.
    #[error("no answer: {0}")]
    NoAnswer(&'static str),
    /// The call was not sent: there is no connection, or its queue is full.
    #[error("not sent: {0}")]
    NotSent(&'static str),
    /// Its copy of the entry is of no use.
    #[error("a bad copy: {0}")]
    BadCopy(#[from] EntryError),
}

impl CallError {
    /// True if the bookie reports for certain that it does not have the requested entry.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Refused(Status::NoEntry | Status::NoLedger))
    }
}
