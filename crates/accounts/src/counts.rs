//! Counters of a topic, as plain numbers, and the totals that remain when the topic is unloaded.

use pharos_runtime::Histogram;

use crate::Sent;

/// The stages of a message's way that happen at its home.
#[derive(Debug, Default, Clone)]
pub struct HomeStages {
    /// Published by the client → received by the broker (two clocks).
    pub producing: Histogram,
    /// Received → appended.
    pub receive: Histogram,
    /// Appended → durable.
    pub persistence: Histogram,
    /// Received → durable: what a producer waits for its receipt, the network apart.
    pub publish: Histogram,
}

impl HomeStages {
    /// Adds another topic's.
    pub fn merge(&mut self, other: &Self) {
        self.producing.merge(&other.producing);
        self.receive.merge(&other.receive);
        self.persistence.merge(&other.persistence);
        self.publish.merge(&other.publish);
    }
}

/// Totals since the topic was loaded.
#[derive(Debug, Default, Clone, Copy)]
pub struct Counters {
    /// Messages published.
    pub messages_in: u64,
    /// Entries published.
    pub entries_in: u64,
    /// Bytes published.
    pub bytes_in: u64,
    /// Sizes of those entries.
    pub sizes: EntrySizes,
    /// Sent to consumers; what present stream consumers got is counted when they leave.
    pub sent: Sent,
    /// True if a chunk of a chunked message was counted.
    pub has_chunks: bool,
    /// Time of the last append, in milliseconds since 1970; 0 for never.
    pub last_publish_ms: u64,
}

/// Totals of topics that were loaded and are not any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PastTotals {
    /// Messages published.
    pub messages_in: u64,
    /// Bytes published.
    pub bytes_in: u64,
    /// Messages sent.
    pub messages_out: u64,
    /// Bytes sent.
    pub bytes_out: u64,
    /// Times a publisher was slowed down.
    pub throttled: u64,
    /// Times cursors were moved on because of a quota, by size and by age.
    pub evictions: [u64; 2],
}

impl PastTotals {
    /// Adds others.
    pub fn add(&mut self, more: &Self) {
        self.messages_in += more.messages_in;
        self.bytes_in += more.bytes_in;
        self.messages_out += more.messages_out;
        self.bytes_out += more.bytes_out;
        self.throttled += more.throttled;
        for (sum, count) in self.evictions.iter_mut().zip(more.evictions) {
            *sum += count;
        }
    }
}

/// Histogram of entry sizes. Costs one cache line per topic and a short search per entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EntrySizes {
    counts: [u64; Self::BOUNDS.len() + 1],
    bytes: u64,
}

impl EntrySizes {
    /// The largest size, in bytes, of each class but the last, which takes what is larger.
    pub const BOUNDS: [u64; 8] = [128, 512, 1 << 10, 2 << 10, 4 << 10, 16 << 10, 100 << 10, 1 << 20];

    /// Counts an entry.
    pub fn record(&mut self, bytes: u64) {
        let class = Self::BOUNDS.partition_point(|bound| *bound < bytes);
        if let Some(count) = self.counts.get_mut(class) {
            *count += 1;
        }
        self.bytes += bytes;
    }

    /// Entries in each class.
    #[must_use]
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// All entries.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Their bytes together.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}
