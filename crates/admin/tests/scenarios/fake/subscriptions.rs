//! Subscriptions remember what was asked of them.

use pharos_admin_api::{BroadcastConsumer, BroadcastDetails, BroadcastSummary};
use pharos_broker_admin::{AdminError, AdminResult, BroadcastQuery, Place, SubscriptionAdmin};
use pharos_types::{SubscriptionName, TopicName};

use super::{FakeBroker, Properties, Subscription, now};

impl SubscriptionAdmin for FakeBroker {
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
}
