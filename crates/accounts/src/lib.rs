//! What a broker counts and bounds over all its topics, apart from any of them.
//!
//! Plain numbers with a limit or without: what sockets have not taken, what tenants have and may have, what happened since the start, what was
//! published lately. Nothing here knows a topic, a consumer or a connection.

#![forbid(unsafe_code)]

pub mod budget;
pub mod counts;
pub mod rates;
mod sent;
pub mod tally;
pub mod tenants;
pub mod unwritten;

pub use sent::Sent;
