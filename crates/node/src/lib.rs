//! The node: puts the crates together into one program. Everything the binary does can be started from a test.
//!
//! ```text
//! pharos serve      metadata → storage → broker → Pulsar server → HTTP server; stops in the other order
//! pharos config     which settings would be in force, and where each came from
//! pharos storage    the data directory of a stopped broker: check, inspect, repair
//! ```

#![forbid(unsafe_code)]

mod audit;
mod balance;
mod broker;
mod changeable;
mod cluster;
mod cluster_metrics;
mod command;
mod event_logs;
mod files;
mod identity;
mod leftovers;
mod limits;
pub mod logging;
mod memory;
mod offline;
mod offload;
mod self_signed;
mod serve;
pub mod settings;
mod signals;
mod start;
mod storage_metrics;
mod stores;
mod takeover;
mod tls;
mod transactions;
mod web_socket;

pub use command::command;
pub use start::run;
