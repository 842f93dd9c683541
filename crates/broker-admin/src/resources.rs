//! All that can be administered, together.

use std::sync::Arc;

use pharos_broker::broker::Broker;
use pharos_catalog::Catalog;

use crate::bookies::BookieAdmin;
use crate::brokers::{BrokerAdmin, Stores};
use crate::compaction::CompactionAdmin;
use crate::homes::Homes;
use crate::messages::MessageAdmin;
use crate::meters::Meters;
use crate::offload::OffloadAdmin;
use crate::stats::StatsAdmin;
use crate::subscriptions::SubscriptionAdmin;
use crate::topics::TopicAdmin;

/// Resources that can be administered, one type each. Cheap to clone.
#[derive(Clone)]
pub struct Resources {
    /// Topics, whole and partitioned.
    pub topics: TopicAdmin,
    /// Numbers and contents of topics.
    pub stats: StatsAdmin,
    /// Subscriptions of topics.
    pub subscriptions: SubscriptionAdmin,
    /// Single stored messages.
    pub messages: MessageAdmin,
    /// Offloading of closed ledgers.
    pub offload: OffloadAdmin,
    /// Topic compaction.
    pub compaction: CompactionAdmin,
    /// The broker itself.
    pub brokers: BrokerAdmin,
    /// Bookies and their racks.
    pub bookies: BookieAdmin,
    /// Stored facts: clusters, tenants, namespaces, policies, schemas, which topics there are.
    pub catalog: Catalog,
}

impl Resources {
    /// Returns the resources of `broker`.
    #[must_use]
    pub fn of(broker: &Broker) -> Self {
        Self::over(broker, None)
    }

    /// As [`of`](Self::of), over stores that say something of themselves.
    #[must_use]
    pub fn with_stores(broker: &Broker, stores: Stores) -> Self {
        Self::over(broker, Some(Arc::new(stores)))
    }

    fn over(broker: &Broker, stores: Option<Arc<Stores>>) -> Self {
        let (homes, meters) = (Homes::of(broker.clone()), Arc::new(Meters::default()));
        Self {
            topics: TopicAdmin::new(homes.clone()),
            stats: StatsAdmin::new(homes.clone(), meters.clone()),
            subscriptions: SubscriptionAdmin::new(homes.clone()),
            messages: MessageAdmin::new(homes.clone()),
            offload: OffloadAdmin::new(homes.clone()),
            compaction: CompactionAdmin::new(homes.clone()),
            catalog: homes.catalog().clone(),
            bookies: BookieAdmin::new(stores.clone()),
            brokers: BrokerAdmin::new(homes, meters, stores),
        }
    }
}
