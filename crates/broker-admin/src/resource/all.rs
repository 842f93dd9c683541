//! All interfaces together.

use std::sync::Arc;

use super::{BrokerAdmin, MessageAdmin, OffloadAdmin, StatsAdmin, SubscriptionAdmin, TopicAdmin};

/// What can be administered, one interface each. Cheap to clone.
#[derive(Clone)]
pub struct Resources {
    /// Topics, whole and partitioned.
    pub topics: Arc<dyn TopicAdmin>,
    /// Numbers and contents of topics.
    pub stats: Arc<dyn StatsAdmin>,
    /// Subscriptions of topics.
    pub subscriptions: Arc<dyn SubscriptionAdmin>,
    /// Single stored messages.
    pub messages: Arc<dyn MessageAdmin>,
    /// Offloading of closed ledgers.
    pub offload: Arc<dyn OffloadAdmin>,
    /// The broker itself.
    pub brokers: Arc<dyn BrokerAdmin>,
}

impl<A> From<Arc<A>> for Resources
where
    A: TopicAdmin + StatsAdmin + SubscriptionAdmin + MessageAdmin + OffloadAdmin + BrokerAdmin + 'static,
{
    fn from(all: Arc<A>) -> Self {
        Self {
            topics: all.clone(),
            stats: all.clone(),
            subscriptions: all.clone(),
            messages: all.clone(),
            offload: all.clone(),
            brokers: all,
        }
    }
}
