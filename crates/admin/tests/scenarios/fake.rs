//! A broker made of maps: enough to tell whether the door asks for the right thing and passes on the answer.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use pharos_admin_api::{
    BroadcastConsumer, BroadcastDetails, BroadcastSummary, ManagedLedgerInfo, PersistentTopicInternalStats,
    SubscriptionStats, TopicStats,
};
use pharos_broker::admin::{
    AdminBackend, AdminError, AdminResult, BroadcastQuery, LastMessage, MetricsSnapshot, Place, StatsFlags,
};
use pharos_catalog::Catalog;
use pharos_types::{Position, SubscriptionName, TopicName};

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

const LAST: LastMessage = LastMessage {
    position: None,
    batch_index: None,
    batch_size: None,
};

impl AdminBackend for FakeBroker {
    fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    fn create_topic(&self, topic: TopicName, properties: Properties) -> AdminResult<'_, ()> {
        Box::pin(async move { Ok(self.catalog.create_topic(&topic, properties).await?) })
    }

    fn create_partitioned(
        &self,
        topic: TopicName,
        count: u32,
        properties: Properties,
        metadata_only: bool,
    ) -> AdminResult<'_, ()> {
        Box::pin(async move {
            Ok(self
                .catalog
                .create_partitioned(&topic, count, properties, !metadata_only)
                .await?)
        })
    }

    fn grow_partitioned(&self, topic: TopicName, partitions: u32) -> AdminResult<'_, ()> {
        Box::pin(async move { Ok(self.catalog.grow_partitioned(&topic, partitions).await?) })
    }

    fn create_missed_partitions(&self, topic: TopicName) -> AdminResult<'_, ()> {
        Box::pin(async move { Ok(self.catalog.create_missing_partitions(&topic).await?) })
    }

    fn delete_partitioned(&self, topic: TopicName, _: bool) -> AdminResult<'_, ()> {
        Box::pin(async move { Ok(self.catalog.delete_partitioned(&topic).await?) })
    }

    fn delete_topic(&self, topic: TopicName, force: bool) -> AdminResult<'_, ()> {
        Box::pin(async move {
            self.exists(&topic)?;
            if !force
                && self
                    .topics()
                    .get(&topic)
                    .is_some_and(|subscriptions| !subscriptions.is_empty())
            {
                return Err(AdminError::Precondition(
                    "Topic has active producers/subscriptions".into(),
                ));
            }
            self.catalog.delete_topic(&topic).await?;
            self.topics().remove(&topic);
            Ok(())
        })
    }

    fn stats(&self, topic: TopicName, flags: StatsFlags) -> AdminResult<'_, TopicStats> {
        if let Err(error) = self.exists(&topic) {
            return now(Err(error));
        }
        let mut stats = TopicStats {
            msg_in_counter: 3,
            deduplication_status: "Disabled".into(),
            ..Default::default()
        };
        for (name, subscription) in self.topics().entry(topic).or_default() {
            let of = SubscriptionStats {
                kind: "None".into(),
                // Shows in a test which flags arrived and what was last asked.
                active_consumer_name: Some(subscription.last.clone()),
                key_shared_mode: flags.precise_backlog.then(|| "precise".into()),
                subscription_properties: subscription.properties.clone(),
                ..Default::default()
            };
            stats.subscriptions.insert(name.clone(), of);
        }
        now(Ok(stats))
    }

    fn internal_stats(&self, topic: TopicName, _: bool) -> AdminResult<'_, PersistentTopicInternalStats> {
        let stats = || PersistentTopicInternalStats {
            last_confirmed_entry: "1:-1".into(),
            state: "LedgerOpened".into(),
            ..Default::default()
        };
        now(self.exists(&topic).map(|()| stats()))
    }

    fn internal_info(&self, topic: TopicName) -> AdminResult<'_, ManagedLedgerInfo> {
        now(self.exists(&topic).map(|()| ManagedLedgerInfo::default()))
    }

    fn last_message(&self, topic: TopicName) -> AdminResult<'_, LastMessage> {
        let last = LastMessage {
            position: Some(Position::new(4, 2)),
            batch_index: Some(0),
            batch_size: Some(1),
        };
        now(self.exists(&topic).map(|()| last))
    }

    fn terminate(&self, topic: TopicName) -> AdminResult<'_, LastMessage> {
        now(self.exists(&topic).map(|()| LAST))
    }

    fn unload(&self, topic: TopicName) -> AdminResult<'_, ()> {
        now(self.exists(&topic))
    }

    fn trim(&self, topic: TopicName) -> AdminResult<'_, ()> {
        now(self.exists(&topic))
    }

    fn subscriptions(&self, topic: TopicName) -> AdminResult<'_, Vec<String>> {
        let names = || {
            self.topics()
                .entry(topic.clone())
                .or_default()
                .keys()
                .cloned()
                .collect()
        };
        now(self.exists(&topic).map(|()| names()))
    }

    fn create_subscription(
        &self,
        topic: TopicName,
        name: SubscriptionName,
        place: Place,
        properties: Properties,
        _: bool,
    ) -> AdminResult<'_, ()> {
        if let Err(error) = self.exists(&topic) {
            return now(Err(error));
        }
        let mut topics = self.topics();
        let subscriptions = topics.entry(topic).or_default();
        if subscriptions.contains_key(name.as_str()) {
            return now(Err(AdminError::Conflict(
                "Subscription already exists for topic".into(),
            )));
        }
        subscriptions.insert(
            name.to_string(),
            Subscription {
                last: format!("{place:?}"),
                properties,
            },
        );
        now(Ok(()))
    }

    fn delete_subscription(&self, topic: TopicName, name: SubscriptionName, _: bool) -> AdminResult<'_, ()> {
        let noted = self.note(&topic, &name, String::new());
        if noted.is_ok() {
            self.topics().entry(topic).or_default().remove(name.as_str());
        }
        now(noted)
    }

    fn reset_to(&self, topic: TopicName, name: SubscriptionName, place: Place) -> AdminResult<'_, ()> {
        now(self.note(&topic, &name, format!("reset to {place:?}")))
    }

    fn reset_to_time(&self, topic: TopicName, name: SubscriptionName, at: u64) -> AdminResult<'_, ()> {
        now(self.note(&topic, &name, format!("reset to time {at}")))
    }

    fn skip(&self, topic: TopicName, name: SubscriptionName, count: u64) -> AdminResult<'_, ()> {
        now(self.note(&topic, &name, format!("skip {count}")))
    }

    fn skip_all(&self, topic: TopicName, name: SubscriptionName) -> AdminResult<'_, ()> {
        now(self.note(&topic, &name, "skip all".into()))
    }

    fn expire_older(&self, topic: TopicName, name: SubscriptionName, seconds: u64) -> AdminResult<'_, ()> {
        now(self.note(&topic, &name, format!("expire {seconds}")))
    }

    fn expire_to(&self, topic: TopicName, name: SubscriptionName, place: Place) -> AdminResult<'_, ()> {
        now(self.note(&topic, &name, format!("expire to {place:?}")))
    }

    fn subscription_properties(
        &self,
        topic: TopicName,
        name: SubscriptionName,
    ) -> AdminResult<'_, Properties> {
        let topics = self.topics();
        let found = topics
            .get(&topic)
            .and_then(|subscriptions| subscriptions.get(name.as_str()));
        now(found
            .map(|s| s.properties.clone())
            .ok_or_else(|| AdminError::NotFound("Subscription not found".into())))
    }

    fn set_subscription_properties(
        &self,
        topic: TopicName,
        name: SubscriptionName,
        properties: Properties,
    ) -> AdminResult<'_, ()> {
        let noted = self.note(&topic, &name, "properties".into());
        if let Some(subscription) = self.topics().entry(topic).or_default().get_mut(name.as_str()) {
            subscription.properties = properties;
        }
        now(noted)
    }

    fn broadcast_details(
        &self,
        topic: TopicName,
        name: SubscriptionName,
        query: BroadcastQuery,
    ) -> AdminResult<'_, BroadcastDetails> {
        let slow = BroadcastConsumer {
            consumer_name: format!("{}", query.slowest),
            connected: true,
            ..Default::default()
        };
        let details = || BroadcastDetails {
            summary: BroadcastSummary {
                consumers_connected: 1,
                ..Default::default()
            },
            mark_delete_position: "1:0".into(),
            slowest: vec![slow.clone()],
            consumers: query.consumers.then(|| vec![slow.clone()]),
        };
        now(self.note(&topic, &name, "details".into()).map(|()| details()))
    }

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
