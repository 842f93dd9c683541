//! A consumer as its connection knows it.

use std::cell::Cell;
use std::sync::Arc;

use pharos_broker::entry::FeedEntry;
use pharos_broker::feed::ConsumerHandle;
use pharos_broker::ids::{ConsumerKey, TopicId};
use pharos_cluster::BrokerAddresses;
use pharos_topic::SubscriptionType;

use crate::limits::TenantHold;

/// State of a consumer id.
pub(crate) enum ConsumerSlot {
    /// SUBSCRIBE came and is not answered yet.
    Creating {
        /// Tells this attempt from a later one under the same id.
        attempt: u64,
        /// The last consumer that the broker closed under this id meanwhile: it may be the one that comes.
        closed: Option<ConsumerKey>,
    },
    /// The client was told that the consumer is attached, but must go to another broker. CLOSE_CONSUMER is sent at
    /// its first FLOW: some clients cannot take it before.
    Elsewhere(Arc<BrokerAddresses>),
    /// The consumer is attached.
    Ready(Consumer),
}

/// An attached consumer.
pub(crate) struct Consumer {
    pub(crate) topic: TopicId,
    pub(crate) kind: SubscriptionType,
    pub(crate) key: ConsumerKey,
    pub(crate) attached: Attached,
    /// Newest epoch that the client named. Stamped on dispatched messages; a stream consumer starts with it when it becomes active.
    pub(crate) epoch: Cell<Option<u64>>,
    pub(crate) name: Arc<str>,
    /// Its count against the tenant's quota.
    pub(crate) counted: TenantHold,
    pub(crate) messages_out: Cell<u64>,
    pub(crate) bytes_out: Cell<u64>,
}

/// Source of a consumer's messages.
pub(crate) enum Attached {
    /// The consumer listens on this shard.
    Listening(ConsumerHandle),
    /// A Failover consumer that is not the active one.
    Dormant {
        /// Permits that it would accept.
        permits: u32,
    },
    /// The topic's home chooses its messages.
    Dispatched {
        /// Permits granted by the client and passed to the home, for stats.
        permits: Cell<i64>,
    },
}

impl Consumer {
    /// Counts a dispatched entry.
    pub(crate) fn count_out(&self, entry: &FeedEntry) {
        self.messages_out
            .set(self.messages_out.get() + u64::from(entry.facts.message_count));
        self.bytes_out
            .set(self.bytes_out.get() + entry.payload.len() as u64);
        if let Attached::Dispatched { permits } = &self.attached {
            permits.set(permits.get() - i64::from(entry.facts.message_count));
        }
    }
}
