//! What the sockets of every protocol need: accept balance over shards, memory to read into, room for large frames.
//!
//! It knows no protocol and no broker: bytes come and go, and a connection has a place on a shard.

#![forbid(unsafe_code)]

pub mod balance;
pub mod chunks;
pub mod partial;
