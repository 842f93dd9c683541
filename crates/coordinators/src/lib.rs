//! The coordinators of transactions, with their logs: what clients ask of one is durable before it is answered, and an end goes on
//! until every participant has it, also after a crash.
//!
//! ```text
//!   begin · add · end ──► Coordinator (state) ──► CoordinatorLog (notes, durable) ──► answer
//!                                                  │ end: COMMITTING or ABORTING is durable
//!                                                  ▼
//!                                      each topic and subscription ends it, durably; again until it did
//!                                                  │
//!                                                  ▼
//!                                      forgotten; clients that wait for the end are answered
//! ```
//! A coordinator's log is the cursor log of a managed ledger without entries: notes, group commits, and a new ledger with a snapshot when it
//! has grown, so it is as long as the transactions that are open.
//!
//! Two locks nest, in this order: a log's, then its coordinator's ([`Coordinators`](pharos_transactions::Coordinators)). Neither is held
//! over an await.

#![forbid(unsafe_code)]

mod end;
mod log;
mod open;
#[cfg(test)]
mod tests;
mod transactions;

pub use open::{OpenTransactionsError, stored_coordinators};
pub use pharos_transactions::{CalledTopic, CoordinatorLimits, CoordinatorStats, TxnError, TxnStatus};
pub use transactions::{AddError, TopicTransactionFigures, TransactionInfo, Transactions};
