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
//! Deliberately absent: how credentials are checked. That happens once, when a connection is made, and results in a
//! [`Principal`]; here nothing waits.

#![forbid(unsafe_code)]

mod access;
mod action;
mod principal;

pub use access::{Access, Authorizer, Denied};
pub use action::{Action, Resource};
pub use principal::Principal;
