//! Settings that are one of a few words.

use super::Value;

/// Form of the log on standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Lines for people on a terminal, JSON elsewhere.
    Auto,
    /// Lines for people.
    Human,
    /// One JSON object per line.
    Json,
}

/// Kind of topic made on first use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopicType {
    /// One log.
    NonPartitioned,
    /// Several.
    Partitioned,
}

/// What happens when a backlog is over its quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaPolicy {
    /// Producers are turned away and try again.
    Hold,
    /// Producers are turned away and fail.
    Exception,
    /// Slow cursors are moved on.
    Eviction,
}

/// Which topics count as not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InactiveMode {
    /// Those without subscriptions.
    NoSubscriptions,
    /// Those whose subscriptions have no backlog.
    CaughtUp,
}

/// When an append counts as durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StorageSync {
    /// Synced to the device.
    Sync,
    /// Handed to the operating system.
    Async,
    /// In memory; written to the device later.
    Bypass,
}

/// How the log's bytes reach the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StorageIo {
    /// Past the page cache, where the file system can.
    Direct,
    /// Through the page cache.
    Buffered,
}

/// Which copy of an offloaded ledger is read while there are two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadPriority {
    /// The object store's.
    Tiered,
    /// The broker's own, as the field calls it.
    Bookkeeper,
}

macro_rules! words {
    ($type:ty, $kind:literal, $($variant:ident = $word:literal),+) => {
        impl Value for $type {
            const KIND: &'static str = $kind;

            fn parse(text: &str) -> Result<Self, String> {
                match text {
                    $($word => Ok(Self::$variant),)+
                    _ => Err(format!("'{text}' is none of: {}", [$($word),+].join(", "))),
                }
            }

            fn show(&self) -> String {
                match self {
                    $(Self::$variant => $word.into(),)+
                }
            }
        }
    };
}

words!(
    LogFormat,
    "auto, human or json",
    Auto = "auto",
    Human = "human",
    Json = "json"
);
words!(
    TopicType,
    "non-partitioned or partitioned",
    NonPartitioned = "non-partitioned",
    Partitioned = "partitioned"
);
words!(
    QuotaPolicy,
    "producer_request_hold, producer_exception or consumer_backlog_eviction",
    Hold = "producer_request_hold",
    Exception = "producer_exception",
    Eviction = "consumer_backlog_eviction"
);
words!(
    InactiveMode,
    "delete_when_no_subscriptions or delete_when_subscriptions_caught_up",
    NoSubscriptions = "delete_when_no_subscriptions",
    CaughtUp = "delete_when_subscriptions_caught_up"
);
words!(
    ReadPriority,
    "tiered-storage-first or bookkeeper-first",
    Tiered = "tiered-storage-first",
    Bookkeeper = "bookkeeper-first"
);
words!(
    StorageSync,
    "sync, async or bypass",
    Sync = "sync",
    Async = "async",
    Bypass = "bypass"
);
words!(
    StorageIo,
    "direct or buffered",
    Direct = "direct",
    Buffered = "buffered"
);
