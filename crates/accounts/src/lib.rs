//! Counters and limits that span all topics of a broker.
//!
//! Plain numbers, with or without a limit: bytes not yet written to sockets, shares of tenants, events since the
//! start, recent publish rates. Nothing here knows a topic, a consumer or a connection.

#![forbid(unsafe_code)]

pub mod budget;
pub mod counts;
pub mod rates;
mod sent;
pub mod tally;
pub mod tenants;
pub mod unwritten;

pub use sent::Sent;
