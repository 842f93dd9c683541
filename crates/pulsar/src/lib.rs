//! The Pulsar binary protocol as a front door to the broker.
//!
//! [`open`] listens; each connection lives on one shard and translates commands into broker calls and what comes back
//! into frames. Reading order: `door`, `newcomer`, `reader`, `handlers`, `connection`, `turn`, `outgoing`.
//!
//! Facts of the protocol: `docs/protocols/pulsar.md`.

#![forbid(unsafe_code)]

mod closing;
mod connection;
mod consumer;
mod door;
mod groups;
mod handlers;
mod newcomer;
mod outgoing;
mod producer;
mod reader;
mod refusal;
mod sink;
mod turn;

pub use door::{Door, Options, open};
