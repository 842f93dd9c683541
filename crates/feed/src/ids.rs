//! Small numbers that name live things inside one broker process. None of them is ever persisted or sent to a client.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};

/// An attached consumer, unique in the process.
pub use pharos_dispatch::ConsumerKey;

/// A map by numbers that we gave out ourselves.
pub type IdMap<K, V> = HashMap<K, V, BuildHasherDefault<IdHasher>>;
/// A set of numbers that we gave out ourselves.
pub type IdSet<K> = HashSet<K, BuildHasherDefault<IdHasher>>;

/// Spreads small numbers over 64 bits with one multiplication. Only for numbers that no peer can choose: those who can
/// choose keys could make them collide.
#[derive(Default)]
pub struct IdHasher(u64);

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u16(&mut self, number: u16) {
        self.write_u64(u64::from(number));
    }

    fn write_u64(&mut self, number: u64) {
        // The golden ratio of 2^64: neighbours end up far apart, in the high bits as well, which the map looks at.
        self.0 = (self.0.rotate_left(26) ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        self.0.rotate_left(20)
    }
}

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

/// Set in the number of a topic whose compacted view is meant.
const COMPACTED: u64 = 1 << 63;

impl TopicId {
    /// The topic as consumers see it that read what is compacted: for shards that listen it is one of its own, with its own feed.
    #[must_use]
    pub fn compacted(self) -> Self {
        Self {
            number: self.number | COMPACTED,
            ..self
        }
    }

    /// True if it names the compacted view.
    #[must_use]
    pub fn is_compacted(self) -> bool {
        self.number & COMPACTED != 0
    }

    /// The topic itself, whichever view was meant.
    #[must_use]
    pub fn itself(self) -> Self {
        Self {
            number: self.number & !COMPACTED,
            ..self
        }
    }
}

/// A connection, of whatever protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId {
    /// The shard on which it lives for good.
    pub shard: ShardId,
    /// Unique on that shard.
    pub number: u64,
}

/// Durable slot in a topic's cursor log: of an ordinary subscription, or of one consumer of a broadcast one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotId(pub u32);

/// An attached producer, unique in the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProducerKey(pub u64);

impl fmt::Display for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.shard.0, self.number)
    }
}
