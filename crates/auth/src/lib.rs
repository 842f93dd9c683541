//! Identity of a peer, and the check that it may perform an action.
//!
//! A protocol handler gives each connection or request a [`Principal`]. Every action calls [`Access::check`] once,
//! before anything is read for the caller, created or changed. An [`Authorizer`] decides; without one everything is
//! allowed.
//!
//! ```
//! use pharos_auth::{Access, Action, Principal, Resource};
//! use pharos_types::TopicName;
//!
//! let access = Access::everyone();
//! let caller = Principal::anonymous("/127.0.0.1:6650");
//! let topic: TopicName = "notices".parse().unwrap();
//! assert!(access.check(&caller, Action::Produce, Resource::Topic(&topic)).is_ok());
//! ```
//!
//! The variants of [`Action`] are the permission table: the [`Need`] of each action. [`Rules`] apply it as Pulsar
//! does.
//!
//! Decisions are passed to an [`AuditLog`], if there is one.
//!
//! Deliberately absent: the check of credentials. It happens once per connection and results in a [`Principal`];
//! nothing here waits.

#![forbid(unsafe_code)]

mod access;
mod action;
mod audit;
mod grants;
mod need;
mod principal;
mod rules;

pub use access::{Access, Authorizer, Denied};
pub use action::{Action, Resource};
pub use audit::{AuditEvent, AuditLevel, AuditLog};
pub use grants::{
    AUTH_POLICIES, CONSUMER_NAMES, NAMESPACE_AUTH, SUBSCRIPTION_AUTH, SUBSCRIPTION_AUTH_MODE, TOPIC_AUTH,
};
pub use need::{Need, Permission};
pub use principal::{Door, Principal};
pub use rules::{Facts, RuleOptions, Rules, StoredPolicies};
