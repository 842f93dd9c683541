//! Authentication and authorization of clients.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
#![allow(
    clippy::disallowed_methods,
    reason = "a test is no part of the broker's runtime"
)]

#[path = "../support/mod.rs"]
mod support;

mod audit;
mod authentication;
mod authorization;
mod credentials;
mod hostile_clients;
mod matrix;
mod openid;
mod permissions;
mod proxy_protocol;
mod secrets;
mod tls;
mod web_socket;
