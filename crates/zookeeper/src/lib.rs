//! The metadata store of a cluster: ZooKeeper behind the contract of `metadata`.
//!
//! ```text
//!  key    ledgers/00/0000/L0042         node  /ledgers/00/0000/L0042 below the root that the address names
//!  version                              mzxid: the transaction that wrote the value; never the same again
//!  session, ephemeral key               a ZooKeeper session of its own, an ephemeral node
//!  sequence                             an ephemeral sequential node, deleted at once
//!  watch                                one persistent recursive watch for all
//! ```
//! It speaks through the crate `zookeeper-client`, which has what this needs of ZooKeeper 3.9: persistent recursive watches, the
//! transaction in an event, and a session that is come back to by itself.
//!
//! What ZooKeeper does otherwise than the other stores:
//! - A node needs a parent. Parents that had to be made are empty; a node without data that has children is not a key. One whose
//!   last child went is left as a key with an empty value.
//! - `scan` is not of one moment: each value is read by itself.
//! - A write that insists on a version reads first and then insists on the number of changes that it found, so it is two trips.
//! - Between two writers that delete and make the same key in that moment the number may be the same again; keys that many write are
//!   not deleted.

#![forbid(unsafe_code)]

mod options;
mod session;
mod store;
mod tree;

pub use options::{Acl, ConnectOptions, TlsFiles};
pub use store::{ConnectError, ZooKeeper};
