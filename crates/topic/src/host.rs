//! Requests of a topic to the shard that holds it, besides the messages to other shards
//! ([`ShardContext`](pharos_mesh::ShardContext)): rare, and never for a message that is published or delivered from
//! memory.

use std::rc::Rc;

use pharos_feed::Room;
use tokio::sync::oneshot;

use super::Topic;

/// The shard that holds a topic.
pub trait TopicHost {
    /// Room for at most `bytes_max` read from the log for dispatchers; when there is none, where it comes in turn. That is told by
    /// being dropped that the shard is going; dropped itself it gives up the turn.
    fn room_to_read(&self, bytes_max: usize) -> Result<Room, oneshot::Receiver<Room>>;
    /// Returns the room of a read whose entries were dispatched; others may use it.
    fn end_read(&self, room: Room);
    /// Closes a topic that takes no writes for now, after a pause; the next request loads it.
    fn come_back(&self, topic: Rc<Topic>, reason: &str);

    /// Closes a topic whose log another owner took, or whose source is gone.
    fn give_up(&self, topic: Rc<Topic>, reason: &str);
}
