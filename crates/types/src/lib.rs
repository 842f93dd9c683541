//! The vocabulary of Pharos: names, ids, positions, hashes of names and keys, what shows a server who we are, what is known of an [`entry`], and the integers that
//! formats are made of: what three crates or more speak about.
//!
//! No I/O and no async. Everything here parses, prints and compares.
//!
//! ```
//! use pharos_types::{Position, TopicName};
//!
//! let topic: TopicName = "notices".parse().unwrap();
//! assert_eq!(topic.to_string(), "persistent://public/default/notices");
//! assert!(Position::new(3, 9) < Position::new(4, 0));
//! ```

#![forbid(unsafe_code)]

pub mod entry;
pub mod hash;
mod login;
mod name;
mod position;
pub mod steps;
mod txn;
pub mod varint;

pub use login::Login;
pub use name::{
    Domain, NAMESPACE_BYTES_MAX, NameError, NamespaceName, SubscriptionName, TOPIC_BYTES_MAX, TopicName,
};
pub use position::{EntryId, LedgerId, Ordinal, Position};
pub use txn::{TxnEntry, TxnId, TxnOutcome};
