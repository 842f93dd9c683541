//! Several brokers: who owns a topic, and what of it is told to clients.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
#![allow(
    clippy::disallowed_methods,
    reason = "a test is no part of the broker's runtime"
)]

#[path = "../support/brokers.rs"]
mod brokers;
#[path = "../support/mod.rs"]
mod support;

mod broadcast_carriers;
mod geo_replication;
mod isolation;
mod listeners;
mod load;
mod lost_broker;
mod many_owners;
mod redirects_over_tls;
mod shadow_topics;
mod two_brokers;
mod web_socket;
