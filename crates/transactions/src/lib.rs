//! Transactions as state machines: who coordinates one, what a topic makes readable, what a subscription has acknowledged in one.
//!
//! No I/O, no async, no clock. The broker feeds them and stores what they say; times come in as milliseconds since 1970.
//!
//! ```text
//!   Coordinator          NEW ─► OPEN ─ add topics, subscriptions ─► COMMITTING ─┬─► forgotten: every participant has ended
//!                                 └──── END, or its time is over ─► ABORTING ───┘
//!   TransactionBuffer    of a topic: which transactions are open and since which entry; which were aborted
//!   PendingAcks          of a subscription: what is acknowledged in transactions that have not ended
//! ```
//! `Coordinators` is the one part that threads share: topics ask it, for each transactional send, whether the transaction is open.

#![forbid(unsafe_code)]

mod buffer;
mod codec;
mod coordinator;
mod coordinators;
pub mod keys;
mod pending_acks;
#[cfg(test)]
mod tests;

pub use buffer::{BufferStats, TransactionBuffer};
pub use codec::Malformed;
pub use coordinator::{
    Added, CalledTopic, Coordinator, CoordinatorLimits, CoordinatorStats, Participants, Transaction,
    TxnError, TxnStatus,
};
pub use coordinators::{Coordinators, Standing};
pub use pending_acks::{AckIn, BatchParts, Conflict, PendingAcks, PendingStats, Plain};
