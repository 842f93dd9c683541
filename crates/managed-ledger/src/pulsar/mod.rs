//! What Apache Pulsar 4.2 keeps of a managed ledger, read and written so that its own brokers can take over, and give back.
//!
//! ```text
//! managed-ledgers/<tenant>/<namespace>/persistent/<topic>            ManagedLedgerInfo
//! managed-ledgers/<tenant>/<namespace>/persistent/<topic>/<cursor>   ManagedCursorInfo
//! ```
//!
//! - [`proto`] has the messages, [`info`] the info with what only Pharos knows in its properties, [`cursor`] the state of a cursor,
//!   [`compacted`] an entry of a compacted ledger, [`name`] the names.
//! - [`nodes`] is what happens to the cursors at an opening, and what of them is written from then on; [`compaction`] the same of what is
//!   compacted.
//!
//! The cursor log stays what it is, and knows all cursors of a topic first. What Pulsar has too, subscriptions that are not broadcast,
//! is written to its nodes a little later. Of system cursors and of what is compacted the nodes alone say what holds.
//!
//! Always true: of the ledgers that an info names in Pulsar's list only the last may be open, because Pulsar recovers no other; ones
//! that were made ahead of need are named in a property until the ledger before them is closed.

pub(crate) mod compacted;
pub(crate) mod compaction;
pub(crate) mod cursor;
pub(crate) mod info;
pub(crate) mod name;
pub(crate) mod nodes;
pub(crate) mod proto;
#[cfg(test)]
mod tests;
