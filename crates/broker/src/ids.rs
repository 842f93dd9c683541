//! Small numbers that name live things inside one broker process. None of them is ever persisted or sent to a client.

use std::fmt;

/// A shard: one thread, one runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId(pub u16);

impl ShardId {
    /// The shard as an index into per-shard tables.
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// A loaded topic. A topic that is unloaded and loaded again gets a new one, so late messages miss it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicId {
    /// The topic's home shard.
    pub home: ShardId,
    /// Unique on that shard.
    pub number: u64,
}

/// A connection, of whatever protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId {
    /// The shard on which it lives for good.
    pub shard: ShardId,
    /// Unique on that shard.
    pub number: u64,
}

/// One durable place in a topic's cursor log: of an ordinary subscription, or of one consumer of a broadcast one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotId(pub u32);

/// An attached consumer, unique in the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConsumerKey(pub u64);

/// An attached producer, unique in the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProducerKey(pub u64);

impl fmt::Display for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.shard.0, self.number)
    }
}
