//! Shards: their connections, the topics whose home they are, and what front doors ask of them.
//!
//! ```text
//!   connection shard                      home shard of the topic                listening shards
//!   SEND ──► Shard::publish ──────────►   Topic: append, wait for durable  ───►  Feed: Groups of stream consumers, cohorts
//!        ◄── ConnectionHandle::on_receipts ◄─────   receipts                                 │ acks end here
//!                                         cursors, dispatchers, trimming   ◄───  Progress, once a second
//! ```
//!
//! A front door implements [`shard::ConnectionHandle`] for its connections and calls the operations of [`shard::Shard`]; it never
//! sees a topic. Who administers the broker comes through [`manage`]. Reading order: `broker`, `shard`, `home`, then the crates
//! `topic` and `feed`; `mesh` is what shards tell each other.

#![forbid(unsafe_code)]

// The tests reach the crate by its name as well, so that the crate above can share what sets them up.
#[cfg(test)]
extern crate self as pharos_broker;

pub mod broker;
mod home;
pub mod manage;
pub mod shard;
#[cfg(test)]
mod tests;

pub use broker::{Broker, Threads, start, start_among};
pub use pharos_accounts::tenants::TenantLimits;
pub use pharos_accounts::unwritten;
pub use pharos_feed as feed;
pub use pharos_feed::{entry, ids};
pub use pharos_mesh::{OffloadLimits, Options, options, placement};
pub use pharos_requests::error;
