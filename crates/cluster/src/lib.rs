//! Ownership of topics by brokers.
//!
//! [`Ownership`] is the interface. [`Alone`] implements it for a single broker; [`BundleOwnership`] for one of
//! several, with ephemeral keys in the metadata store: the broker whose key a bundle has owns the topics in it.
//!
//! Ownership tells clients which broker should serve a topic. It does not protect the topic's log: a broker that was
//! stopped for a while may believe in keys that have expired. The log is protected because the next owner fences its
//! ledgers.

#![forbid(unsafe_code)]

mod addresses;
mod arriving;
mod assign;
mod balance;
mod bundles;
mod handover;
mod keeping;
mod keys;
mod leader;
mod limits;
mod load;
mod ownership;
mod reports;

pub use addresses::{BrokerAddresses, ListenerUrls, Listeners};
pub use assign::{ApartFrom, CandidatesOf};
pub use balance::BalanceOptions;
pub use bundles::{BundleOf, BundleOwnership, SessionOptions};
pub use handover::HandoverError;
pub use limits::BundleLimits;
pub use load::{BundleLoad, LoadReport, ResourceUsage};
pub use ownership::{Alone, Owner, Ownership, OwnershipError};
pub use reports::Balancer;
