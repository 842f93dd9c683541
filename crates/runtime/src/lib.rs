//! The door to the outside world: clocks, threads and tasks, processors that stay awake, files, the word to stop, and a histogram
//! to time it all.
//!
//! Nothing else in the workspace reads a clock, opens a file of the data directory or spawns a task directly, so that
//! a test can stand in for each.

#![forbid(unsafe_code)]

mod awake;
pub mod clock;
pub mod fs;
mod histogram;
mod log_throttle;
mod many;
mod pool;
#[cfg(feature = "test-util")]
pub mod random;
mod rate;
mod shutdown;
#[cfg(feature = "test-util")]
pub mod simulated;
pub mod sync;
mod thread;
mod time;

pub use awake::Awake;
pub use clock::Nanos;
pub use histogram::Histogram;
pub use log_throttle::LogThrottle;
pub use many::many;
pub use pool::Pool;
pub use rate::{Buckets, Rate};
pub use shutdown::{Shutdown, ShutdownToken};
pub use thread::{ShardThread, run_blocking, spawn_local, spawn_shard, stand_back};
pub use time::{iso_time, millis};
