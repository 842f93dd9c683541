//! A consumer as its connection knows it.

use std::cell::Cell;
use std::sync::Arc;

use pharos_broker::entry::FeedEntry;
use pharos_broker::feed::ConsumerHandle;
use pharos_broker::ids::{ConsumerKey, TopicId};
use pharos_cluster::BrokerAddresses;
use pharos_topic::SubscriptionType;

use crate::limits::TenantHold;

/// What stands under a consumer id.
pub(crate) enum ConsumerSlot {
    /// SUBSCRIBE came and is not answered yet.
    Creating {
        /// Tells this attempt from a later one under the same id.
        attempt: u64,
        /// The last consumer that the broker closed under this id meanwhile: it may be the one that comes.
        closed: Option<ConsumerKey>,
    },
    /// It was told that it is there, and is to go to another broker, which it hears with its first FLOW: some clients cannot take a
    /// CLOSE_CONSUMER before.
    Elsewhere(Arc<BrokerAddresses>),
    /// It is attached.
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
    /// It counts for its tenant.
    pub(crate) counted: TenantHold,
    pub(crate) messages_out: Cell<u64>,
    pub(crate) bytes_out: Cell<u64>,
}

/// How it gets its messages.
pub(crate) enum Attached {
    /// It listens here.
    Listening(ConsumerHandle),
    /// Of Failover, not the active one.
    Dormant {
        /// What it would accept.
        permits: u32,
    },
    /// The topic's home chooses its messages.
    Dispatched {
        /// What the client granted and the home was told, for stats.
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
