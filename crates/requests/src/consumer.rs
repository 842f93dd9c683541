//! What a consumer asks for when it subscribes, and what it is given.

use std::sync::Arc;

use pharos_dispatch::KeySharedSpec;
use pharos_feed::ids::{ConnectionId, ConsumerKey};
use pharos_feed::{CursorHandoff, FeedSeed};
use pharos_types::{Ordinal, Position, SubscriptionName, TopicName};

/// How messages of a subscription are shared out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubscriptionType {
    /// One consumer.
    Exclusive,
    /// One active consumer, others in wait.
    Failover,
    /// Each message to one of many.
    Shared,
    /// Each message to one of many, the same for the same key.
    KeyShared,
    /// Each message to all.
    Broadcast,
}

impl SubscriptionType {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Exclusive,
        Self::Failover,
        Self::Shared,
        Self::KeyShared,
        Self::Broadcast,
    ];

    /// Its name in policies and stats. Broadcast has none of its own in Pulsar; its consumers ask for Exclusive.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Exclusive | Self::Broadcast => "Exclusive",
            Self::Failover => "Failover",
            Self::Shared => "Shared",
            Self::KeyShared => "Key_Shared",
        }
    }
}

/// Where a new cursor starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartAt {
    /// After the last entry.
    Latest,
    /// At the first entry that exists.
    Earliest,
    /// At this entry, or the next that exists.
    At(Position),
    /// At this place, which may lie before the first entry of the log: in what was compacted.
    Place(Ordinal),
}

/// What a connection tells of a consumer, for stats.
#[derive(Clone, Debug, Default)]
pub struct ConsumerInfo {
    /// The peer's address.
    pub address: Arc<str>,
    /// What the client says it is.
    pub client_version: Arc<str>,
    /// When it connected, in milliseconds since 1970.
    pub connected_since_ms: u64,
    /// Key and value pairs that the client gave.
    pub metadata: Vec<(String, String)>,
}

/// A wish to consume.
#[derive(Clone, Debug)]
pub struct SubscribeRequest {
    /// The topic.
    pub topic: TopicName,
    /// The subscription.
    pub subscription: SubscriptionName,
    /// How messages are shared out.
    pub kind: SubscriptionType,
    /// The connection.
    pub connection: ConnectionId,
    /// The id that the client chose.
    pub consumer_id: u64,
    /// The consumer's name; `None` when the client gave none.
    pub consumer_name: Option<String>,
    /// 0 is served first.
    pub priority_level: i32,
    /// Whether the cursor outlives its consumers.
    pub durable: bool,
    /// Where a new cursor starts.
    pub start: StartAt,
    /// Whether it gets what was compacted, as far as that goes, and then the log.
    pub read_compacted: bool,
    /// Rewind an existing cursor to the first message published at or after this time, in ms since 1970.
    pub rewind_to_ms: Option<u64>,
    /// Whether a durable subscription may be created.
    pub may_create: bool,
    /// Properties of a new subscription.
    pub properties: Vec<(String, String)>,
    /// Whether other clusters are told how far a durable one is; `false` changes nothing of one that exists.
    pub is_replicated: bool,
    /// For Key_Shared.
    pub key_shared: Option<KeySharedSpec>,
    /// For stats.
    pub info: Arc<ConsumerInfo>,
}

/// A consumer was attached.
#[derive(Debug)]
pub struct Subscribed {
    /// Who it is.
    pub key: ConsumerKey,
    /// How it gets its messages.
    pub attach: Attach,
    /// Of Failover: whether it is the active one; `None` when that is announced later.
    pub active: Option<bool>,
    /// The topic, as the listening shard must know it.
    pub seed: FeedSeed,
}

/// How a consumer gets its messages.
#[derive(Debug)]
pub enum Attach {
    /// It listens on its shard, with this cursor.
    Listen(CursorHandoff),
    /// It waits to be activated.
    Dormant,
    /// The topic's home chooses its messages.
    Dispatched,
}
