//! A whole broker on one faulty disk: what its clients were told, and what therefore must hold after every crash.
//!
//! The [`model`] stands outside the broker and keeps every answer that clients got. The tests of this crate run broker,
//! storage engine and metadata store on one thread, on simulated time and a simulated disk, let clients work, crash
//! everything at a random change to the disk, start again and ask the model. One seed gives one history.
//!
//! Nothing here is linked into the broker.

#![forbid(unsafe_code)]

pub mod model;
mod telling;

pub use telling::{tell, tell_all};
