//! Behaviour of one broker towards its clients.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
#![allow(
    clippy::disallowed_methods,
    reason = "a test is no part of the broker's runtime"
)]

#[path = "../support/mod.rs"]
mod support;

mod answers;
mod broadcast_absence;
mod broadcast_rivals;
mod client_delivery;
mod client_limits;
mod deduplication;
mod dispatch_rates;
mod geo_replication;
mod idle_topics;
mod policies_backlog;
mod policies_durability;
mod policies_limits;
mod protocol_bad_input;
mod protocol_bad_values;
mod protocol_delivery;
mod protocol_parity;
mod protocol_refusals;
mod protocol_retention;
mod protocol_shards;
mod replicated_subscriptions;
mod stalled_consumers;
mod topic_compaction;
mod transactions;
mod web_socket;
mod web_socket_batches;
mod web_socket_letters;
