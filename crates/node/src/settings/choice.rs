//! Settings that are one of a few words.

use pharos_auth::AuditLevel;
use pharos_bookkeeper::Spread;
use pharos_catalog::policy::{AutoTopicType, InactiveMode, QuotaAction};
use pharos_ledger::Durability;
use pharos_metadata::MetadataLayout;
use pharos_transport::ProxyProtocol;
use pharos_zookeeper::Acl;

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

/// What keeps ledgers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// This broker, on this machine.
    Embedded,
    /// Apache's bookies.
    BookKeeper,
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
    /// The broker's own, as Pulsar calls it.
    Bookkeeper,
}

/// Where a new replicator begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicationStart {
    /// With what is published from then on.
    Latest,
    /// With what the topic has.
    Earliest,
}

/// How S3 encrypts what is offloaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerSideEncryption {
    /// As the bucket says by itself.
    Bucket,
    /// With keys of S3.
    S3,
    /// With a key of the key management service.
    Kms,
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
    AuditLevel,
    "denied, changes or all",
    Denied = "denied",
    Changes = "changes",
    All = "all"
);
words!(
    Engine,
    "embedded or bookkeeper",
    Embedded = "embedded",
    BookKeeper = "bookkeeper"
);
words!(
    MetadataLayout,
    "pharos or pulsar",
    Pharos = "pharos",
    Pulsar = "pulsar"
);
words!(
    Spread,
    "bookies, racks or regions",
    Bookies = "bookies",
    Racks = "racks",
    Regions = "regions"
);
words!(Acl, "open or creator", Open = "open", Creator = "creator");
words!(
    AutoTopicType,
    "non-partitioned or partitioned",
    NonPartitioned = "non-partitioned",
    Partitioned = "partitioned"
);
words!(
    QuotaAction,
    "producer_request_hold, producer_exception or consumer_backlog_eviction",
    Hold = "producer_request_hold",
    Exception = "producer_exception",
    Evict = "consumer_backlog_eviction"
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
    ReplicationStart,
    "latest or earliest",
    Latest = "latest",
    Earliest = "earliest"
);
words!(
    ServerSideEncryption,
    "bucket-default, AES256 or aws:kms",
    Bucket = "bucket-default",
    S3 = "AES256",
    Kms = "aws:kms"
);
words!(
    ProxyProtocol,
    "off, optional or required",
    Off = "off",
    Optional = "optional",
    Required = "required"
);
words!(
    Durability,
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
