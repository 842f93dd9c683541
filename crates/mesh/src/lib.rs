//! Messages between shards, and the state that shards share.
//!
//! ```text
//!   ShardContext     one shard, as its parts and its topics see it
//!   ├ Shared         settings, catalog, stores, budgets: the same for all shards
//!   │ └ Placement    the broker and shard of a topic
//!   └ Mesh           the way to other shards: `Message`s, in batches
//! ```
//! [`ConnectionHandle`] is implemented by protocol handlers, so that messages about their connections reach them.

#![forbid(unsafe_code)]

mod connection_handle;
mod mesh;
mod message;
pub mod options;
pub mod placement;
mod shard_context;
mod shared;

pub use connection_handle::{ConnectionEvent, ConnectionHandle, Dispatched, ProducerRef, Pumped, Receipt};
pub use mesh::{INBOX_BATCHES, MESH_BYTES_MAX, Mesh};
pub use message::{AnswerTo, Ask, FeedMessage, HomeMessage, Job, Message, Publish};
pub use options::{OffloadLimits, Options};
pub use placement::{Placed, Placement};
pub use shard_context::ShardContext;
pub use shared::{COMPACTIONS_MAX, PUBLISH_BUDGET_BYTES, Shared};
