//! Statistics of a dispatcher for operators.

use pharos_types::Ordinal;

use super::core::{Dispatcher, Mode};
use super::types::ConsumerKey;
use super::types::HashRange;

/// Statistics of a consumer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConsumerStats {
    /// Messages it will still take; may be below 0 by one batch (`availablePermits`).
    pub permits: i64,
    /// Messages it has and has not acknowledged (`unackedMessages`).
    pub unacked: u64,
    /// True if it reached the limit of these (`blockedConsumerOnUnackedMsgs`).
    pub is_blocked: bool,
    /// Bytes handed out that its socket has not taken.
    pub bytes_unwritten: u64,
}

/// The subscription.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DispatchStats {
    /// Entries not acknowledged (`msgBacklog`).
    pub backlog: u64,
    /// Messages delivered and not acknowledged (`unackedMessages`).
    pub unacked: u64,
    /// Entries delivered and not acknowledged.
    pub pending: u64,
    /// Entries that wait for their time (`msgDelayed`).
    pub delayed: u64,
    /// Memory used for tracking them, in bytes (`delayedMessageIndexSizeInBytes`).
    pub delayed_bytes: u64,
    /// Entries that wait to be delivered out of turn (`msgInReplay`).
    pub in_replay: u64,
    /// Nothing new is read, because too much is unacknowledged (`blockedSubscriptionOnUnackedMsgs`).
    pub is_blocked: bool,
    /// Key_Shared: hashes that wait for another consumer to finish with them.
    pub draining_hashes: u64,
    /// Key_Shared: order is not kept when consumers come and go (`allowOutOfOrderDelivery`).
    pub allows_out_of_order: bool,
}

impl Dispatcher {
    /// Returns the statistics of one consumer; `None` if it is not attached.
    #[must_use]
    pub fn consumer_stats(&self, key: ConsumerKey) -> Option<ConsumerStats> {
        let consumer = self.consumers.get(self.consumers.slot(key)?)?;
        Some(ConsumerStats {
            permits: consumer.permits,
            unacked: consumer.unacked,
            is_blocked: consumer.blocked,
            bytes_unwritten: consumer.bytes_unwritten,
        })
    }

    /// The subscription's numbers. `tail_end`: the ordinal after the last entry.
    #[must_use]
    pub fn stats(&self, tail_end: Ordinal) -> DispatchStats {
        let draining = match &self.mode {
            Mode::Shared { .. } => 0,
            Mode::KeyShared(keys) => keys.draining(),
        };
        DispatchStats {
            backlog: self.acks.backlog(tail_end),
            unacked: self.unacked,
            pending: self.pending.len() as u64,
            delayed: self.delayed.len(),
            delayed_bytes: self.delayed.index_bytes(),
            in_replay: self.replay.len() as u64,
            is_blocked: self.is_blocked,
            draining_hashes: draining as u64,
            allows_out_of_order: matches!(&self.mode, Mode::KeyShared(keys) if keys.allows_out_of_order()),
        }
    }

    /// Returns the side that assigns keys, as stats name it; `None` for Shared and while no consumer is attached.
    #[must_use]
    pub fn key_shared_mode(&self) -> Option<&'static str> {
        match &self.mode {
            Mode::Shared { .. } => None,
            Mode::KeyShared(keys) => keys.mode_name(),
        }
    }

    /// The slot hashes a Key_Shared consumer is responsible for, rising (`keyHashRangeArrays`); empty otherwise.
    #[must_use]
    pub fn hash_ranges(&self, key: ConsumerKey) -> Vec<HashRange> {
        match (&self.mode, self.consumers.slot(key)) {
            (Mode::KeyShared(keys), Some(slot)) => keys.ranges_of(slot),
            _ => Vec::new(),
        }
    }
}
