//! The admin front door: the REST API that existing admin tools speak, lookups over HTTP, metrics, and status.
//!
//! Stateless: every request is answered from the [`Catalog`](pharos_catalog::Catalog) (stored facts) and the
//! [`Resources`](pharos_broker_admin::Resources) (what the broker does). Paths, codes and JSON keys are those of
//! Pulsar; every error is JSON with a `reason`.
//!
//! What is deliberately absent: policies that no part of the broker acts on. Setting one is refused with 501 and a
//! reason, because a policy that is stored and ignored is worse than none.

#![forbid(unsafe_code)]

mod body;
mod bookies;
mod brokers;
mod bundles;
mod clusters;
mod compaction;
mod connections;
mod endpoint;
mod error;
mod forced;
mod identify;
mod isolation;
mod lookup;
mod messages;
mod metrics;
mod namespace_policies;
mod namespaces;
mod offload;
mod origin;
mod owner_link;
mod owners;
mod partitions;
mod paths;
mod permissions;
mod redirect;
mod request_rate;
mod router;
mod schemas;
mod server;
mod state;
mod subscriptions;
mod tenants;
mod topic_policies;
mod topic_stats;
mod topics;
mod transactions;
mod web_socket;

pub use owner_link::BrokerClient;
pub use request_rate::RequestRates;
pub use router::router;
pub use server::{CONNECTIONS_MAX, serve};
pub use state::{Admin, AdminOptions};
