//! Recovery after a kill, on a full disk, or with too little of a resource.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
#![allow(
    clippy::disallowed_methods,
    reason = "a test is no part of the broker's runtime"
)]

#[path = "../../../offload/tests/s3_server/mod.rs"]
mod s3_server;
#[path = "../support/mod.rs"]
mod support;

mod crash_answers;
mod crash_kill;
mod geo_replication_crash;
mod memory_after_burst;
mod offload;
mod real_device;
mod replicated_subscriptions_crash;
mod scarcity;
mod transactions_crash;
