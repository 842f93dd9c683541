//! A shard as the home of topics: which of them are loaded, and how they come and go.
//!
//! ```text
//!   Home             loads (`load`), unloads what is not used (`unload`), deletes (`delete`), looks at all now and then (`maintenance`)
//!   └ Topics         by name and by id; who waits for a name that is being loaded, unloaded or deleted (`hold`)
//! ```
//! A topic knows of this only what it asks of its [`TopicHost`].

mod carriers;
mod delete;
mod failures;
mod hold;
mod inactive;
mod load;
mod maintenance;
mod replicated;
mod sweep;
mod table;
mod unload;

use std::rc::Rc;

pub(crate) use delete::DeleteIf;
pub use delete::DeleteTurn;
pub(crate) use table::Topics;

use pharos_mesh::ShardContext;
use pharos_topic::TopicHost;

/// The topics whose home a shard is, and what is done with them.
pub(crate) struct Home {
    cx: Rc<ShardContext>,
    /// Requests of topics to their shard.
    host: Rc<dyn TopicHost>,
    pub(crate) topics: Topics,
}

impl Home {
    pub(crate) fn new(cx: Rc<ShardContext>, host: Rc<dyn TopicHost>) -> Self {
        Self {
            cx,
            host,
            topics: Topics::default(),
        }
    }
}
