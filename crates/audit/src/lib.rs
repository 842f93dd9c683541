//! The audit log: who asked for what, by which door, and whether it was allowed, in a file of its own.
//!
//! ```text
//!   shards, HTTP ── note ──► queue, bounded ──► writer thread ──► FILE ─ full ─► FILE.1 ─► … ─► FILE.n, then gone
//!                     └ full: lost and counted       └ disk full: lost and counted, and tried again with the next
//! ```
//! A line is one JSON object ([`record`]). What is lost is counted ([`AuditStats`]), and the next line that can be written says
//! how much that was: a gap in the file never goes unsaid. No action waits for the log, and none is refused because of it.
//! Lines reach the system as they come, and the device when the file is full and at the end.

#![forbid(unsafe_code)]

mod file;
mod record;
mod writer;

pub use writer::{Audit, AuditOptions, AuditStats};
