//! The numbers behind the metrics page, gathered here and rendered by the admin front door.
//!
//! Cheap to make: counters and histograms are merged over shards; nothing is read from storage.

use std::collections::BTreeMap;

use pharos_admin_api::TopicStats;
use pharos_runtime::Histogram;
use pharos_types::{NamespaceName, TopicName};

use pharos_topic::{BroadcastCounts, EntrySizes, PastTotals};

/// A stretch of a message's way. The six of the broadcast study, and the way back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// From the producer's publish time to the frame's arrival; clocks of two machines.
    Producing,
    /// From arrival to the append.
    Receive,
    /// From the append to durable.
    Persistence,
    /// From durable to the stream consumers' shards knowing it.
    Notification,
    /// From there to the frames being ready to send.
    Preparation,
    /// Handing the frames to the sockets, first to last stream consumer.
    Broadcasting,
    /// From sending to the consumer's acknowledgement.
    Acknowledgement,
}

impl Stage {
    /// All, in the order a message passes them.
    pub const ALL: [Self; 7] = [
        Self::Producing,
        Self::Receive,
        Self::Persistence,
        Self::Notification,
        Self::Preparation,
        Self::Broadcasting,
        Self::Acknowledgement,
    ];

    /// The label value.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Producing => "producing",
            Self::Receive => "receive",
            Self::Persistence => "persistence",
            Self::Notification => "notification",
            Self::Preparation => "preparation",
            Self::Broadcasting => "broadcasting",
            Self::Acknowledgement => "acknowledgement",
        }
    }
}

/// Everything that the metrics page shows, at one moment.
#[derive(Clone, Debug, Default)]
pub struct MetricsSnapshot {
    /// Metrics of each loaded topic.
    pub topics: Vec<TopicMetrics>,
    /// Totals of topics that are not loaded any more, by namespace.
    pub past: BTreeMap<NamespaceName, PastTotals>,
    /// Totals of namespaces that do not exist any more.
    pub past_gone: PastTotals,
    /// Connections of all front doors.
    pub connections: ConnectionCounters,
    /// Connections that live on each shard.
    pub shard_connections: Vec<u64>,
    /// Lookups.
    pub lookups: LookupCounters,
    /// Time of each stage over all topics.
    pub stages: Vec<(Stage, Histogram)>,
    /// Time from a message's arrival to its receipt.
    pub publish_latency: Histogram,
    /// Time to load a topic.
    pub topic_load: Histogram,
    /// Topics that failed to load.
    pub topic_load_failed_total: u64,
    /// Stored entries that turned out to be unreadable; a topic that is loaded anew counts them again.
    pub entries_unreadable_total: u64,
    /// Reads that moved consumers past a lost entry: one for each entry and subscription, or each shard that listens.
    pub lost_skipped_total: u64,
    /// Events on broadcast subscriptions since the start, including topics that are not loaded any more.
    pub broadcast: BroadcastCounts,
    /// Bytes held or reserved of entries read back for stream consumers and subscriptions that are behind.
    pub catch_up_read_cache_bytes: u64,
    /// Bytes of the newest entries that shards have at hand.
    pub newest_cache_bytes: u64,
    /// Bytes given to consumers of Shared, Key_Shared and non-persistent subscriptions that sockets have not taken.
    pub unwritten_bytes: u64,
    /// Bytes of these that were set aside so far because sockets took nothing.
    pub set_aside_bytes_total: u64,
    /// Reads for such stream consumers that wait for room.
    pub catch_up_reads_waiting: u64,
    /// Metrics of storage, caches and metadata, rendered unchanged.
    pub families: Vec<MetricFamily>,
}

/// Metrics of one topic.
#[derive(Clone, Debug)]
pub struct TopicMetrics {
    /// The topic.
    pub topic: TopicName,
    /// Its numbers; lists of publishers and consumers may be left out, their counts not.
    pub stats: TopicStats,
    /// Time of each stage on this topic; may be empty.
    pub stages: Vec<(Stage, Histogram)>,
    /// Time from append to durable, since the topic was loaded.
    pub storage_write_latency: Histogram,
    /// Sizes of the entries published since then.
    pub entry_sizes: EntrySizes,
}

/// Connections since start, and now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionCounters {
    /// Open now.
    pub active: u64,
    /// Accepted.
    pub created_total: u64,
    /// Connections with a successful CONNECT.
    pub create_success_total: u64,
    /// Connections with a failed or missing CONNECT.
    pub create_fail_total: u64,
    /// Closed.
    pub closed_total: u64,
}

/// Lookups over the Pulsar protocol since start.
#[derive(Clone, Debug, Default)]
pub struct LookupCounters {
    /// Failed.
    pub failures_total: u64,
    /// Time of those that were answered.
    pub latency: Histogram,
}

/// A metric of a crate below the broker, under the name it chose.
#[derive(Clone, Debug)]
pub struct MetricFamily {
    /// Full name with unit suffix: `pharos_journal_sync_seconds`.
    pub name: &'static str,
    /// Help text, in one sentence.
    pub help: &'static str,
    /// Metric type.
    pub kind: MetricKind,
    /// Its values.
    pub samples: Vec<MetricSample>,
}

/// Kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Durations, shown as buckets, sum and count.
    Histogram,
    /// Histogram in milliseconds, with the buckets that Pulsar has.
    MillisecondHistogram,
    /// Durations in milliseconds, shown as quantiles, sum and count.
    Summary,
}

/// Value of a metric.
#[derive(Clone, Debug)]
pub enum MetricSample {
    /// A number.
    Value {
        /// Label names and values; bounded in number.
        labels: Vec<(&'static str, String)>,
        /// The number.
        value: f64,
    },
    /// Durations.
    Durations {
        /// Label names and values.
        labels: Vec<(&'static str, String)>,
        /// The durations.
        histogram: Histogram,
    },
}
