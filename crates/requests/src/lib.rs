//! Requests of protocol handlers to the broker, and the answers: requests, grants and errors.
//!
//! Plain values that cross threads. Nothing here has an effect; the broker acts, and each protocol handler translates
//! the values into its protocol.

#![forbid(unsafe_code)]

pub mod asked;
pub mod consumer;
pub mod error;
pub mod producer;
