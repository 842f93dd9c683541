//! The program as its user meets it: settings, commands, pages.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
#![allow(
    clippy::disallowed_methods,
    reason = "a test is no part of the broker's runtime"
)]

#[path = "../support/mod.rs"]
mod support;

mod clusters;
mod config;
mod contexts;
mod pages;
mod person;
mod process;
mod runtime_settings;
mod scenarios;
mod storage_command;
