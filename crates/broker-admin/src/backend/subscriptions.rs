//! Subscriptions: listing, making, moving, expiring.

use std::collections::BTreeMap;

use pharos_admin_api::{AnalyzeBacklogResult, BroadcastDetails};
use pharos_runtime::clock;
use pharos_types::{Ordinal, SubscriptionName, TopicName};

use super::Backend;
use crate::resource::{AdminError, AdminResult, BroadcastQuery, Place, SubscriptionAdmin};
use pharos_broker::manage::TopicHandle;
use pharos_broker::properties::asks_for_broadcast;
use pharos_broker::topic::{SeekTo, StartAt};

impl SubscriptionAdmin for Backend {
    fn subscriptions(&self, topic: TopicName) -> AdminResult<'_, Vec<String>> {
        Box::pin(self.subscriptions(topic))
    }

    fn create_subscription(
        &self,
        topic: TopicName,
        subscription: SubscriptionName,
        place: Place,
        properties: BTreeMap<String, String>,
        replicated: bool,
    ) -> AdminResult<'_, ()> {
        Box::pin(self.create_subscription(topic, subscription, place, properties, replicated))
    }

    fn delete_subscription(
        &self,
        topic: TopicName,
        subscription: SubscriptionName,
        force: bool,
    ) -> AdminResult<'_, ()> {
        Box::pin(self.at_home(topic, move |topic| async move {
            Ok(topic.delete_subscription(&subscription, force).await?)
        }))
    }

    fn reset_to(
        &self,
        topic: TopicName,
        subscription: SubscriptionName,
        place: Place,
    ) -> AdminResult<'_, ()> {
        Box::pin(self.reset_to(topic, subscription, place))
    }

    fn reset_to_time(
        &self,
        topic: TopicName,
        subscription: SubscriptionName,
        timestamp_ms: u64,
    ) -> AdminResult<'_, ()> {
        Box::pin(self.reset_to_time(topic, subscription, timestamp_ms))
    }

    fn skip(&self, topic: TopicName, subscription: SubscriptionName, count: u64) -> AdminResult<'_, ()> {
        Box::pin(self.at_home(topic, move |topic| async move {
            Ok(topic.skip(&subscription, count).await?)
        }))
    }

    fn skip_all(&self, topic: TopicName, subscription: SubscriptionName) -> AdminResult<'_, ()> {
        Box::pin(self.at_home(topic, move |topic| async move {
            Ok(topic.skip_all(&subscription).await?)
        }))
    }

    fn expire_older(
        &self,
        topic: TopicName,
        subscription: SubscriptionName,
        seconds: u64,
    ) -> AdminResult<'_, ()> {
        Box::pin(self.expire_older(topic, subscription, seconds))
    }

    fn expire_to(
        &self,
        topic: TopicName,
        subscription: SubscriptionName,
        place: Place,
    ) -> AdminResult<'_, ()> {
        Box::pin(self.expire_to(topic, subscription, place))
    }

    fn subscription_properties(
        &self,
        topic: TopicName,
        subscription: SubscriptionName,
    ) -> AdminResult<'_, BTreeMap<String, String>> {
        Box::pin(self.at_home(topic, move |topic| async move {
            Ok(topic
                .subscription_properties(&subscription)?
                .into_iter()
                .collect())
        }))
    }

    fn set_subscription_properties(
        &self,
        topic: TopicName,
        subscription: SubscriptionName,
        properties: BTreeMap<String, String>,
    ) -> AdminResult<'_, ()> {
        Box::pin(self.at_home(topic, move |topic| async move {
            let properties = properties.into_iter().collect();
            Ok(topic
                .set_subscription_properties(&subscription, properties)
                .await?)
        }))
    }

    fn broadcast_details(
        &self,
        topic: TopicName,
        subscription: SubscriptionName,
        query: BroadcastQuery,
    ) -> AdminResult<'_, BroadcastDetails> {
        Box::pin(self.broadcast_details(topic, subscription, query))
    }

    fn analyze_backlog(
        &self,
        topic: TopicName,
        subscription: SubscriptionName,
        from: Option<Place>,
    ) -> AdminResult<'_, AnalyzeBacklogResult> {
        Box::pin(self.analyze_backlog(topic, subscription, from))
    }
}

impl Backend {
    pub(super) async fn subscriptions(&self, name: TopicName) -> Result<Vec<String>, AdminError> {
        let found = self
            .at_any_home(name, |topic| async move { Ok(topic.durable_subscriptions()) })
            .await?;
        let mut names: Vec<String> = found.into_iter().map(|found| found.name.to_string()).collect();
        names.sort_unstable();
        Ok(names)
    }

    pub(super) async fn create_subscription(
        &self,
        name: TopicName,
        subscription: SubscriptionName,
        place: Place,
        properties: BTreeMap<String, String>,
        replicated: bool,
    ) -> Result<(), AdminError> {
        if replicated {
            let reason = "replicated subscriptions are not available in this release";
            return Err(AdminError::NotImplemented(reason.to_owned()));
        }
        let declared = self.catalog().policies(name.namespace());
        let broadcast = properties
            .iter()
            .any(|(property, value)| asks_for_broadcast(property, value))
            || declared.is_some_and(|policies| policies.is_broadcast_subscription(subscription.as_str()));
        let properties: Vec<(String, String)> = properties.into_iter().collect();
        let outcome = self.at_home(name, move |topic| async move {
            let (at, remaining) = resolve(&topic, place).await?;
            topic
                .create_subscription(subscription.clone(), at, broadcast, &properties)
                .await?;
            if !remaining.is_empty() {
                topic
                    .reset(&subscription, SeekTo::Place { at, remaining })
                    .await?;
            }
            Ok(())
        });
        outcome.await
    }

    pub(super) async fn reset_to(
        &self,
        name: TopicName,
        subscription: SubscriptionName,
        place: Place,
    ) -> Result<(), AdminError> {
        let outcome = self.at_home(name, move |topic| async move {
            let (at, remaining) = resolve(&topic, place).await?;
            Ok(topic
                .reset(&subscription, SeekTo::Place { at, remaining })
                .await?)
        });
        outcome.await
    }

    pub(super) async fn reset_to_time(
        &self,
        name: TopicName,
        subscription: SubscriptionName,
        timestamp_ms: u64,
    ) -> Result<(), AdminError> {
        let outcome = self.at_home(name, move |topic| async move {
            Ok(topic.reset(&subscription, SeekTo::Time(timestamp_ms)).await?)
        });
        outcome.await
    }

    pub(super) async fn expire_older(
        &self,
        name: TopicName,
        subscription: SubscriptionName,
        seconds: u64,
    ) -> Result<(), AdminError> {
        let before_ms = clock::wall_ms().saturating_sub(seconds.saturating_mul(1000));
        let outcome = self.at_home(name, move |topic| async move {
            let to = topic.find_by_time(before_ms).await?;
            Ok(topic.expire_to(&subscription, to).await?)
        });
        outcome.await
    }

    pub(super) async fn expire_to(
        &self,
        name: TopicName,
        subscription: SubscriptionName,
        place: Place,
    ) -> Result<(), AdminError> {
        let outcome = self.at_home(name, move |topic| async move {
            let to = match place {
                Place::Earliest => topic.first(),
                Place::Latest => topic.end(),
                // That entry is expired as well.
                Place::At { position, .. } => topic.after(position).min(topic.end()),
            };
            Ok(topic.expire_to(&subscription, to).await?)
        });
        outcome.await
    }
}

/// The ordinal at which a place begins.
pub(super) fn ordinal_of(topic: &TopicHandle, place: Place) -> Ordinal {
    match place {
        Place::Earliest => topic.first(),
        Place::Latest => topic.end(),
        Place::At {
            position,
            excluded: true,
            ..
        } => topic.after(position),
        Place::At { position, .. } => topic.at_or_after(position),
    }
}

/// A place as topics take it, and of a batch that is entered in its middle the indexes that are left.
async fn resolve(topic: &TopicHandle, place: Place) -> Result<(StartAt, Vec<i64>), AdminError> {
    let (position, index, excluded) = match place {
        Place::Earliest => return Ok((StartAt::Earliest, Vec::new())),
        Place::Latest => return Ok((StartAt::Latest, Vec::new())),
        Place::At {
            position,
            batch_index: Some(index),
            excluded,
        } => (position, index, excluded),
        Place::At { .. } => return Ok((topic.start_at(ordinal_of(topic, place)), Vec::new())),
    };
    let ordinal = ordinal_of(
        topic,
        Place::At {
            position,
            batch_index: None,
            excluded: false,
        },
    );
    let entry = topic
        .entry_at(ordinal)
        .await?
        .filter(|entry| entry.position == position);
    let Some(count) = entry.and_then(|entry| entry.facts.batch_size()) else {
        // No batch: the index says nothing.
        let whole = Place::At {
            position,
            batch_index: None,
            excluded,
        };
        return Ok((topic.start_at(ordinal_of(topic, whole)), Vec::new()));
    };
    let first = index.saturating_add(u32::from(excluded));
    if first >= count {
        return Ok((topic.start_at(ordinal.next()), Vec::new()));
    }
    Ok((topic.start_at(ordinal), remaining(first, count)))
}

/// The indexes `first..count` of a batch as bits; empty when that is all of it.
fn remaining(first: u32, count: u32) -> Vec<i64> {
    if first == 0 {
        return Vec::new();
    }
    let mut words = vec![0_i64; count.div_ceil(64) as usize];
    for index in first..count {
        if let Some(word) = words.get_mut((index / 64) as usize) {
            *word |= 1 << (index % 64);
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::remaining;

    #[test]
    fn the_rest_of_a_batch_is_what_comes_from_an_index_on() {
        assert!(remaining(0, 10).is_empty());
        assert_eq!(remaining(3, 5), [0b11000]);
        assert_eq!(remaining(65, 67), [0, 0b110]);
    }
}
