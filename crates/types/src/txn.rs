//! Transactions: their ids, how they end, and what an entry of a topic's log says of one.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TxnId {
    /// The coordinator.
    pub most: u64,
    /// The transaction within it.
    pub least: u64,
}

/// `(most,least)`, Pulsar's usual form.
impl fmt::Display for TxnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({},{})", self.most, self.least)
    }
}

/// Outcome of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TxnOutcome {
    /// All that was done in it counts.
    Committed,
    /// Nothing of it counts.
    Aborted,
}

/// Transaction data of an entry in a topic's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TxnEntry {
    /// Message published in the transaction.
    Message(TxnId),
    /// Marker of the transaction's outcome for this topic.
    End(TxnId, TxnOutcome),
}
