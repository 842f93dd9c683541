//! The node: puts the crates together into one program. Everything the binary does can be started from a test.
//!
//! ```text
//! pharos serve      metadata → storage → broker → Pulsar door → HTTP door; stops in the other order
//! pharos config     which settings would be in force, and where each came from
//! ```

#![forbid(unsafe_code)]

mod broker;
mod command;
mod limits;
pub mod logging;
mod offload;
mod serve;
pub mod settings;
mod signals;
mod start;
mod storage_metrics;

pub use command::command;
pub use start::run;
