//! The Pulsar binary protocol as a front door to the broker.
//!
//! [`open`] listens; each connection lives on one shard and translates commands into broker calls and what comes back
//! into frames. Reading order: `server`, `handover`, `reader`, `handlers`, `connection`, `limits`, `turn`,
//! `outgoing`.
//!
//! Facts of the protocol: `docs/protocols/pulsar.md`.

#![forbid(unsafe_code)]

mod batch;
mod closing;
mod connection;
mod consumer;
mod credential;
mod decision;
mod dispatched;
mod entry;
mod entry_queue;
mod groups;
mod handlers;
mod handover;
mod limits;
mod list_turns;
mod listeners;
mod outgoing;
mod producer;
mod proving;
mod read_ahead;
mod reader;
mod refusal;
mod requests;
mod sent_away;
mod server;
mod shared;
mod sink;
mod stall;
mod tenant_connections;
mod turn;

pub use decision::{Decision, decision};
pub use limits::ClientLimits;
pub use listeners::{Door, ListenerOptions};
/// Encoding of the entries that this protocol handler stores.
pub use pharos_wire::message::PulsarEntries;
pub use server::{InnerDoor, Options, open};
pub use shared::Server;
