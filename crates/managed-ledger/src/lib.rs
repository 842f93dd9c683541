//! A topic's endless log: an ordered chain of ledgers, and the places of its readers in it.

#![forbid(unsafe_code)]

pub mod cursor;
#[expect(dead_code, reason = "the cursor log uses the rest")]
mod varint;

pub use cursor::AckState;
