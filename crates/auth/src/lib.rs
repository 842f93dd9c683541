//! Who a peer is, and the one question whether it may do something.
//!
//! A front door gives each connection or request a [`Principal`]. Every action asks [`Access::check`] once, before anything
//! is read for the caller, created or changed. What answers is an [`Authorizer`]; without one everything is allowed.
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
//! [`Action`]'s list is the permission table: what each action needs ([`Need`]). [`Rules`] decide by it as Pulsar does.
//!
//! What was decided is told to an [`AuditLog`], where there is one.
//!
//! Deliberately absent: how credentials are checked. That happens once, when a connection is made, and results in a
//! [`Principal`]; here nothing waits.

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
