//! A broker made of maps: enough to tell whether the door asks for the right thing and passes on the answer.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use pharos_broker_admin::{
    AdminError, AdminResult, BrokerAdmin, MessageAdmin, MetricsSnapshot, OffloadAdmin,
};
use pharos_catalog::Catalog;
use pharos_types::{SubscriptionName, TopicName};

mod stats;
mod subscriptions;
mod topics;

pub(crate) struct FakeBroker {
    catalog: Catalog,
    topics: Mutex<BTreeMap<TopicName, BTreeMap<String, Subscription>>>,
}

struct Subscription {
    /// What was last asked of it, in words; shown in its stats.
    last: String,
    properties: BTreeMap<String, String>,
}

type Properties = BTreeMap<String, String>;

impl FakeBroker {
    pub(crate) fn new(catalog: Catalog) -> Self {
        Self {
            catalog,
            topics: Mutex::default(),
        }
    }

    fn topics(&self) -> MutexGuard<'_, BTreeMap<TopicName, BTreeMap<String, Subscription>>> {
        self.topics.lock().unwrap()
    }

    fn exists(&self, topic: &TopicName) -> Result<(), AdminError> {
        let exists = self.catalog.topic_exists(topic);
        exists
            .then_some(())
            .ok_or_else(|| AdminError::NotFound(format!("Topic {topic} not found")))
    }

    fn note(&self, topic: &TopicName, name: &SubscriptionName, what: String) -> Result<(), AdminError> {
        self.exists(topic)?;
        let mut topics = self.topics();
        let subscription = topics.entry(topic.clone()).or_default().get_mut(name.as_str());
        let subscription =
            subscription.ok_or_else(|| AdminError::NotFound("Subscription not found".into()))?;
        subscription.last = what;
        Ok(())
    }
}

fn now<'a, T: Send + 'a>(outcome: Result<T, AdminError>) -> AdminResult<'a, T> {
    Box::pin(std::future::ready(outcome))
}

impl BrokerAdmin for FakeBroker {
    fn health(&self) -> AdminResult<'_, ()> {
        now(Ok(()))
    }

    fn why_not_ready(&self) -> Option<String> {
        None
    }

    fn metrics(&self) -> AdminResult<'_, MetricsSnapshot> {
        now(Ok(MetricsSnapshot::default()))
    }
}

impl MessageAdmin for FakeBroker {}

impl OffloadAdmin for FakeBroker {}
