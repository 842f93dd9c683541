//! What front doors ask of the broker, and what they are answered: requests, grants and errors.
//!
//! Plain values that cross threads. Nothing here does anything; the broker does, and each door has its own words for these.

#![forbid(unsafe_code)]

pub mod asked;
pub mod consumer;
pub mod error;
pub mod producer;
