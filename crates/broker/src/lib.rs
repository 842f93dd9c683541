//! Topics, producers, subscriptions, dispatch.
//!
//! See ARCHITECTURE.md for how shards, home shards and feeds fit together.

#![forbid(unsafe_code)]

pub mod admin;
pub mod catalog;
pub mod dispatcher;
