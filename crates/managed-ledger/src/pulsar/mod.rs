//! Metadata of a managed ledger as in Apache Pulsar 4.2, read and written so that Pulsar's brokers can take over, and
//! give back.
//!
//! ```text
//! managed-ledgers/<tenant>/<namespace>/persistent/<topic>            ManagedLedgerInfo
//! managed-ledgers/<tenant>/<namespace>/persistent/<topic>/<cursor>   ManagedCursorInfo
//! ```
//!
//! - [`proto`] has the messages, [`info`] the info with Pharos's own data in its properties, [`cursor`] the state of a cursor,
//!   [`compacted`] an entry of a compacted ledger, [`name`] the names.
//! - [`nodes`] takes over the cursors at an opening, and selects what is written from then on; [`compaction`] does the same for
//!   compacted ledgers.
//!
//! The cursor log is unchanged, and has all cursors of a topic first. Subscriptions that Pulsar has too, all but
//! broadcast ones, are written to their nodes a little later. For system cursors and compacted ledgers the nodes
//! alone are authoritative.
//!
//! Always true: of the ledgers that an info names in Pulsar's list only the last may be open, because Pulsar recovers
//! no other; ones that were created ahead of need are named in a property until the ledger before them is closed.

pub(crate) mod compacted;
pub(crate) mod compaction;
pub(crate) mod cursor;
pub(crate) mod info;
pub(crate) mod name;
pub(crate) mod nodes;
pub(crate) mod proto;
#[cfg(test)]
mod tests;
