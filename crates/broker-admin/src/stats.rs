//! Stats of a topic.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use pharos_admin_api::{ManagedLedgerInfo, PersistentTopicInternalStats, TopicStats};
use pharos_topic::{SubscriptionFigures, TopicFigures, Wanted};
use pharos_types::{Ordinal, TopicName};

use crate::assembly::{Assembly, signed};
use crate::broadcast::lowest;
use crate::error::AdminError;
use crate::gather::Live;
use crate::homes::Homes;
use crate::internals;
use crate::meters::Meters;
use crate::place::{Place, ordinal_of};
use crate::topics::LastMessage;

/// Parts of a topic's stats to leave out or to compute. The default is the cheapest complete result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatsFlags {
    /// Count the backlog exactly rather than from counters.
    pub precise_backlog: bool,
    /// Fill `backlogSize` of subscriptions.
    pub subscription_backlog_size: bool,
    /// Fill the publish time of the oldest message in each backlog; costs a read per subscription.
    pub earliest_time_in_backlog: bool,
    /// Leave `publishers` empty.
    pub exclude_publishers: bool,
    /// Leave `consumers` of every subscription empty.
    pub exclude_consumers: bool,
}

impl Default for StatsFlags {
    fn default() -> Self {
        Self {
            precise_backlog: false,
            subscription_backlog_size: true,
            earliest_time_in_backlog: false,
            exclude_publishers: false,
            exclude_consumers: false,
        }
    }
}

/// Numbers and contents of a topic. What is always true of such types: [the crate](crate).
#[derive(Clone)]
pub struct StatsAdmin {
    homes: Homes,
    meters: Arc<Meters>,
}

impl StatsAdmin {
    pub(crate) fn new(homes: Homes, meters: Arc<Meters>) -> Self {
        Self { homes, meters }
    }

    /// Stats of a topic; loads it when it exists and is not loaded.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn stats(&self, topic: TopicName, flags: StatsFlags) -> Result<TopicStats, AdminError> {
        let wanted = Wanted {
            producers: !flags.exclude_publishers,
            consumers: !flags.exclude_consumers,
            details: false,
        };
        let (figures, live) = self.homes.gather(topic, wanted).await?;
        let mut stats = Assembly {
            topic: &figures,
            live: &live,
            meters: &self.meters,
            flags,
        }
        .topic();
        if flags.earliest_time_in_backlog {
            self.fill_earliest_times(&figures, &live, &mut stats).await?;
        }
        Ok(stats)
    }

    /// Ledgers and cursors; loads the topic. `metadata`: with the engine's own description of each ledger.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn internal_stats(
        &self,
        topic: TopicName,
        metadata: bool,
    ) -> Result<PersistentTopicInternalStats, AdminError> {
        internals::stats(&self.homes, topic, metadata).await
    }

    /// Ledgers and cursors as stored; does not load the topic.
    ///
    /// # Errors
    /// `NotAllowed` on a non-persistent topic; `NotFound`.
    pub async fn internal_info(&self, topic: TopicName) -> Result<ManagedLedgerInfo, AdminError> {
        internals::info(&self.homes, topic).await
    }

    /// The last message.
    ///
    /// # Errors
    /// `NotAllowed` on a non-persistent topic; `NotFound`.
    pub async fn last_message(&self, topic: TopicName) -> Result<LastMessage, AdminError> {
        let last = self
            .homes
            .at_home(topic, |topic| async move { Ok(topic.last_message().await?) })
            .await?;
        Ok(LastMessage {
            position: last.position,
            batch_index: last.batch_size.map(|size| size.saturating_sub(1)),
            batch_size: last.batch_size,
        })
    }

    /// The first message published at or after a time in milliseconds since 1970; the last one when none is that young, as
    /// Pulsar answers.
    ///
    /// # Errors
    /// `NotAllowed` on a non-persistent topic; `NotFound`.
    pub async fn message_at_time(
        &self,
        topic: TopicName,
        timestamp_ms: u64,
    ) -> Result<LastMessage, AdminError> {
        let found = self.homes.at_home(topic, move |topic| async move {
            let place = topic.find_by_time(timestamp_ms).await?;
            let position = match topic.position_of(place) {
                Some(position) => Some(position),
                None => topic.last_message().await?.position,
            };
            Ok(LastMessage::whole(position))
        });
        found.await
    }

    /// Bytes from a place to the end of the topic.
    ///
    /// # Errors
    /// `NotAllowed` on a non-persistent topic; `NotFound`.
    pub async fn backlog_bytes(&self, topic: TopicName, from: Place) -> Result<u64, AdminError> {
        let bytes = self.homes.at_home(topic, move |topic| async move {
            let place = ordinal_of(&topic, from);
            Ok(topic.figures(Wanted::default()).log.bytes_after(place))
        });
        bytes.await
    }

    /// Reads the first entry of each backlog, each place once.
    async fn fill_earliest_times(
        &self,
        figures: &TopicFigures,
        live: &Live,
        stats: &mut TopicStats,
    ) -> Result<(), AdminError> {
        let place = |subscription: &SubscriptionFigures| lowest(figures, subscription, live);
        let places: BTreeSet<Ordinal> = figures.subscriptions.iter().map(place).collect();
        let times = self.homes.at_any_home(figures.name.clone(), |topic| async move {
            let mut times: HashMap<Ordinal, i64> = HashMap::new();
            for place in places {
                if let Some(entry) = topic.entry_at(place).await? {
                    times.insert(place, signed(entry.facts.publish_time_ms));
                }
            }
            Ok(times)
        });
        let times = times.await?;
        for subscription in &figures.subscriptions {
            let time = times.get(&place(subscription)).copied().unwrap_or(0);
            if let Some(shown) = stats.subscriptions.get_mut(&subscription.name) {
                shown.earliest_msg_publish_time_in_backlog = time;
            }
        }
        stats.earliest_msg_publish_time_in_backlogs = times.values().copied().min().unwrap_or(0);
        Ok(())
    }
}
