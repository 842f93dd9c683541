//! Pulsar's WebSocket API: producers, consumers and readers for programs that speak JSON over a WebSocket.
//!
//! ```text
//!  browser, script ──HTTP upgrade──► admin ──► Door ──► session ──► client ──┬─ a pair of sockets ──► this broker
//!                                              │ how many     │ JSON        └─ TCP or TLS ────────► the broker that owns the topic
//!                                              └ when to stop └ Pulsar protocol
//! ```
//! A session is a client of the Pulsar protocol like any other. It shows the broker what the caller has shown here, from the caller's
//! address, so that who it is and what it may do is decided where it is decided for everyone, and told to the same audit log.
//! A session has no rights of its own, and what it got and the caller has not acknowledged is delivered again.
//!
//! Reading order: `target` and `query` (what is asked for), `handshake`, `door`, `link` (the way to the broker), `sessions`, `socket`,
//! `frames` (the JSON), `producer` and its `batch`, `consumer` and its `dead_letters`.
//!
//! Always true: a send is answered "ok" only after its receipt, in the order of the sends; a message is acknowledged only when the caller
//! said so; what one session holds is bounded in messages and bytes, and it stops reading when it has enough.

#![forbid(unsafe_code)]

mod batch;
mod consumer;
mod consumer_parameters;
mod counts;
mod dead_letters;
mod door;
mod frames;
mod handshake;
mod link;
mod memory;
mod outgoing;
mod partitions;
mod producer;
mod producer_parameters;
mod query;
mod refusal;
mod sessions;
mod socket;
mod source;
mod target;
mod time;

pub use counts::WebSocketCounts;
pub use door::{DoorOptions, WebSocketDoor};
pub use link::{Caller, EnterBroker, Entering, ShownCredentials};
pub use refusal::UpgradeRefusal;
pub use sessions::Sessions;
