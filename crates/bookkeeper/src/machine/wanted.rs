//! Actions and errors of a writer, and its policy for bookies that fail.

use pharos_metadata::Version;
use pharos_types::EntryId;

use super::adds::AddEffect;
use crate::metadata::{BookieId, LedgerMetadata};

/// Policy for the replacement of a bookie that fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EnsembleChange {
    /// At its first failure.
    #[default]
    AtOnce,
    /// Replaced if an entry cannot be confirmed otherwise, or if the bookie is read-only: a restart of a bookie then
    /// causes no change.
    WhenNeeded,
    /// Never: it is asked again until it answers.
    Never,
}

/// Reason why a writer will confirm nothing more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriterError {
    /// Another one recovers or has recovered the ledger, or it was deleted.
    #[error("the ledger is fenced")]
    Fenced,
    /// Bookies refuse the ledger's key.
    #[error("not authorized")]
    Unauthorized,
    /// An entry cannot get its ack quorum, and there are no other bookies.
    #[error("not enough bookies")]
    NotEnoughBookies,
}

/// Action that a writer requests.
#[derive(Clone, Debug)]
pub enum WriterEffect {
    /// Send this; the answer goes to `Writer::on_add`.
    Add(AddEffect),
    /// Write this if the version is still there; the answer goes to `Writer::on_metadata`. There is one at a time.
    PutMetadata {
        /// Metadata to write.
        metadata: Box<LedgerMetadata>,
        /// Expected version.
        version: Version,
    },
    /// Call `Writer::resend` after a while.
    ResendLater {
        /// Position in the ensemble.
        position: usize,
        /// Bookie to send to.
        bookie: BookieId,
    },
    /// Call `Writer::force` after a while.
    ForceLater,
    /// Have this bookie sync what it has of the ledger; the answer goes to `Writer::on_forced`.
    Force {
        /// Number of the force; returned with the answer.
        number: u64,
        /// Position in the ensemble.
        position: usize,
        /// Bookie to send to.
        bookie: BookieId,
    },
    /// Tell this bookie how far the ledger is confirmed, without an entry. The answer is of no interest.
    TellConfirmed {
        /// Bookie to send to.
        bookie: BookieId,
        /// The last entry that is confirmed.
        lac: EntryId,
    },
    /// Entries before `end` are confirmed.
    Confirmed {
        /// Exclusive.
        end: EntryId,
    },
    /// The ledger is closed and holds what is confirmed.
    Closed,
    /// Nothing more will be confirmed.
    Failed(WriterError),
}

impl From<AddEffect> for WriterEffect {
    fn from(add: AddEffect) -> Self {
        Self::Add(add)
    }
}
