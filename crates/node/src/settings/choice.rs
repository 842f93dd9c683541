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

/// When an append counts as durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StorageSync {
    /// Synced to the device.
    Sync,
    /// Handed to the operating system.
    Async,
}

/// How the log's bytes reach the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StorageIo {
    /// Past the page cache, where the file system can.
    Direct,
    /// Through the page cache.
    Buffered,
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
words!(StorageSync, "sync or async", Sync = "sync", Async = "async");
words!(
    StorageIo,
    "direct or buffered",
    Direct = "direct",
    Buffered = "buffered"
);
