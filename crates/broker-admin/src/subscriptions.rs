//! Subscriptions of a topic: making, moving, emptying, deleting, and who listens on a broadcast one.

use std::collections::BTreeMap;

use pharos_admin_api::{AnalyzeBacklogResult, BroadcastDetails};
use pharos_broker::entry::FeedEntry;
use pharos_catalog::properties::asks_for_broadcast;
use pharos_runtime::clock;
use pharos_topic::SeekTo;
use pharos_types::{SubscriptionName, TopicName};

use crate::broadcast::{self, BroadcastQuery};
use crate::error::AdminError;
use crate::homes::Homes;
use crate::place::{Place, ordinal_of, resolve};

/// Entries that one analysis looks at before it stops.
const ANALYZED_MAX: u64 = 10_000;

/// Subscriptions of a topic. What is always true of such types: [the crate](crate). Where not said otherwise a verb answers
/// `NotFound` without the topic or the subscription, and `NotAllowed` on a non-persistent topic.
#[derive(Clone)]
pub struct SubscriptionAdmin {
    pub(crate) homes: Homes,
}

impl SubscriptionAdmin {
    pub(crate) fn new(homes: Homes) -> Self {
        Self { homes }
    }

    /// Names of the topic's durable subscriptions.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn subscriptions(&self, topic: TopicName) -> Result<Vec<String>, AdminError> {
        let found = self
            .homes
            .at_any_home(topic, |topic| async move { Ok(topic.durable_subscriptions()) })
            .await?;
        let mut names: Vec<String> = found.into_iter().map(|found| found.name.to_string()).collect();
        names.sort_unstable();
        Ok(names)
    }

    /// Creates a durable subscription at a place.
    ///
    /// # Errors
    /// `Conflict`: exists. `NotFound`: no such topic. `NotAllowed`: non-persistent, or one that cannot be replicated.
    pub async fn create_subscription(
        &self,
        topic: TopicName,
        subscription: SubscriptionName,
        place: Place,
        properties: BTreeMap<String, String>,
        replicated: bool,
    ) -> Result<(), AdminError> {
        let declared = self.homes.catalog().policies(topic.namespace());
        let broadcast = properties
            .iter()
            .any(|(property, value)| asks_for_broadcast(property, value))
            || declared.is_some_and(|policies| policies.is_broadcast_subscription(subscription.as_str()));
        if replicated && broadcast {
            let reason = "a broadcast subscription is not replicated";
            return Err(AdminError::NotAllowed(reason.to_owned()));
        }
        let properties: Vec<(String, String)> = properties.into_iter().collect();
        let made = self.homes.at_home(topic, move |topic| async move {
            let (at, remaining) = resolve(&topic, place).await?;
            topic
                .create_subscription(subscription.clone(), at, broadcast, &properties, replicated)
                .await?;
            if !remaining.is_empty() {
                topic
                    .reset(&subscription, SeekTo::Place { at, remaining })
                    .await?;
            }
            Ok(())
        });
        made.await
    }

    /// Deletes a subscription; `force` disconnects its consumers.
    ///
    /// # Errors
    /// `NotFound`; `Precondition` when consumers are connected and not `force`.
    pub async fn delete_subscription(
        &self,
        topic: TopicName,
        subscription: SubscriptionName,
        force: bool,
    ) -> Result<(), AdminError> {
        let deleted = self.homes.at_home(topic, move |topic| async move {
            Ok(topic.delete_subscription(&subscription, force).await?)
        });
        deleted.await
    }

    /// Moves a subscription to a place; consumers are disconnected and come back.
    ///
    /// # Errors
    /// `NotFound`; `Precondition` when the place does not exist; `NotAllowed` on a non-persistent topic.
    pub async fn reset_to(
        &self,
        topic: TopicName,
        subscription: SubscriptionName,
        place: Place,
    ) -> Result<(), AdminError> {
        let moved = self.homes.at_home(topic, move |topic| async move {
            let (at, remaining) = resolve(&topic, place).await?;
            Ok(topic
                .reset(&subscription, SeekTo::Place { at, remaining })
                .await?)
        });
        moved.await
    }

    /// Moves a subscription to the first message published at or after a time in milliseconds since 1970.
    ///
    /// # Errors
    /// As [`reset_to`](Self::reset_to).
    pub async fn reset_to_time(
        &self,
        topic: TopicName,
        subscription: SubscriptionName,
        timestamp_ms: u64,
    ) -> Result<(), AdminError> {
        let moved = self.homes.at_home(topic, move |topic| async move {
            Ok(topic.reset(&subscription, SeekTo::Time(timestamp_ms)).await?)
        });
        moved.await
    }

    /// Acknowledges the next `count` entries of the backlog.
    ///
    /// # Errors
    /// See the [type](Self).
    pub async fn skip(
        &self,
        topic: TopicName,
        subscription: SubscriptionName,
        count: u64,
    ) -> Result<(), AdminError> {
        let skipped = self.homes.at_home(topic, move |topic| async move {
            Ok(topic.skip(&subscription, count).await?)
        });
        skipped.await
    }

    /// Acknowledges the whole backlog; of a replicator, by the name of its cursor, it is not sent.
    ///
    /// # Errors
    /// See the [type](Self).
    pub async fn skip_all(&self, topic: TopicName, subscription: SubscriptionName) -> Result<(), AdminError> {
        let skipped = self.homes.at_home(topic, move |topic| async move {
            if let Some(skipped) = topic.skip_replication(&subscription, None).await {
                return Ok(skipped.map(drop)?);
            }
            Ok(topic.skip_all(&subscription).await?)
        });
        skipped.await
    }

    /// Acknowledges what is older than `seconds`.
    ///
    /// # Errors
    /// See the [type](Self).
    pub async fn expire_older(
        &self,
        topic: TopicName,
        subscription: SubscriptionName,
        seconds: u64,
    ) -> Result<(), AdminError> {
        let before_ms = clock::wall_ms().saturating_sub(seconds.saturating_mul(1000));
        let expired = self.homes.at_home(topic, move |topic| async move {
            let to = topic.find_by_time(before_ms).await?;
            if let Some(expired) = topic.skip_replication(&subscription, Some(to)).await {
                return Ok(expired.map(drop)?);
            }
            Ok(topic.expire_to(&subscription, to).await?)
        });
        expired.await
    }

    /// Acknowledges everything up to a place.
    ///
    /// # Errors
    /// See the [type](Self).
    pub async fn expire_to(
        &self,
        topic: TopicName,
        subscription: SubscriptionName,
        place: Place,
    ) -> Result<(), AdminError> {
        let expired = self.homes.at_home(topic, move |topic| async move {
            let to = match place {
                Place::Earliest => topic.first(),
                Place::Latest => topic.end(),
                // That entry is expired as well.
                Place::At { position, .. } => topic.after(position).min(topic.end()),
            };
            if let Some(expired) = topic.skip_replication(&subscription, Some(to)).await {
                return Ok(expired.map(drop)?);
            }
            Ok(topic.expire_to(&subscription, to).await?)
        });
        expired.await
    }

    /// Properties of a subscription.
    ///
    /// # Errors
    /// See the [type](Self).
    pub async fn subscription_properties(
        &self,
        topic: TopicName,
        subscription: SubscriptionName,
    ) -> Result<BTreeMap<String, String>, AdminError> {
        let found = self.homes.at_home(topic, move |topic| async move {
            Ok(topic.subscription_properties(&subscription)?)
        });
        Ok(found.await?.into_iter().collect())
    }

    /// Replaces the properties of a subscription.
    ///
    /// # Errors
    /// See the [type](Self).
    pub async fn set_subscription_properties(
        &self,
        topic: TopicName,
        subscription: SubscriptionName,
        properties: BTreeMap<String, String>,
    ) -> Result<(), AdminError> {
        let properties = properties.into_iter().collect();
        let set = self.homes.at_home(topic, move |topic| async move {
            Ok(topic
                .set_subscription_properties(&subscription, properties)
                .await?)
        });
        set.await
    }

    /// True if a subscription is replicated to other clusters.
    ///
    /// # Errors
    /// See the [type](Self).
    pub async fn is_replicated(
        &self,
        topic: TopicName,
        subscription: SubscriptionName,
    ) -> Result<bool, AdminError> {
        let found = self.homes.at_home(topic, move |topic| async move {
            Ok(topic.is_subscription_replicated(&subscription)?)
        });
        found.await
    }

    /// Says whether a subscription is replicated to other clusters.
    ///
    /// # Errors
    /// See the [type](Self); `NotAllowed` for one that cannot be.
    pub async fn set_replicated(
        &self,
        topic: TopicName,
        subscription: SubscriptionName,
        is_replicated: bool,
    ) -> Result<(), AdminError> {
        let set = self.homes.at_home(topic, move |topic| async move {
            Ok(topic
                .set_subscription_replicated(&subscription, is_replicated)
                .await?)
        });
        set.await
    }

    /// Consumers of a broadcast subscription.
    ///
    /// # Errors
    /// `NotFound`; `Precondition` when the subscription is of another kind.
    pub async fn broadcast_details(
        &self,
        topic: TopicName,
        subscription: SubscriptionName,
        query: BroadcastQuery,
    ) -> Result<BroadcastDetails, AdminError> {
        broadcast::details(&self.homes, topic, subscription, query).await
    }

    /// Reads through a backlog and counts.
    ///
    /// # Errors
    /// See the [type](Self).
    pub async fn analyze_backlog(
        &self,
        topic: TopicName,
        subscription: SubscriptionName,
        from: Option<Place>,
    ) -> Result<AnalyzeBacklogResult, AdminError> {
        let analyzed = self.homes.at_home(topic, move |topic| async move {
            let acks = topic.acks_of(&subscription).await?;
            let start = from.map_or(acks.acked_to(), |place| ordinal_of(&topic, place));
            let mut result = AnalyzeBacklogResult::default();
            let reached = topic.scan(start, topic.end(), |entry| {
                if !acks.is_acked(entry.ordinal) {
                    count(&mut result, entry);
                }
                result.entries < ANALYZED_MAX
            });
            result.aborted = !reached.await?;
            Ok(result)
        });
        analyzed.await
    }
}

fn count(result: &mut AnalyzeBacklogResult, entry: &FeedEntry) {
    result.entries += 1;
    if entry.facts.is_marker {
        result.marker_messages += 1;
    } else {
        let messages = u64::from(entry.facts.message_count);
        result.messages += messages;
        result.filter_accepted_entries += 1;
        result.filter_accepted_messages += messages;
    }
    let position = entry.position.to_string();
    if result.first_message_id.is_none() {
        result.first_message_id = Some(position.clone());
    }
    result.last_message_id = Some(position);
}
