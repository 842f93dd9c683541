//! Connections to bookies: one each, made when it is needed and again when it ended.

mod connection;
mod digest_md5;
mod mailbox;
mod sasl;

pub(crate) use connection::{Connection, Limits, Reply};
pub(crate) use mailbox::Mailbox;
