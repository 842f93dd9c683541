//! Looking into a topic's log: single entries, and what a backlog consists of.

use std::sync::Arc;

use pharos_admin_api::AnalyzeBacklogResult;
use pharos_types::{Ordinal, Position, SubscriptionName, TopicName};

use super::Backend;
use super::subscriptions::ordinal_of;
use crate::resource::{AdminError, AdminResult, ExamineFrom, LastMessage, MessageAdmin, Place, StoredEntry};
use pharos_broker::entry::FeedEntry;
use pharos_broker::error::CursorError;
use pharos_broker::manage::TopicHandle;
use pharos_broker::topic::StartAt;

/// Entries that one analysis looks at before it stops.
const ANALYZED_MAX: u64 = 10_000;

impl MessageAdmin for Backend {
    fn peek(
        &self,
        topic: TopicName,
        subscription: SubscriptionName,
        nth: u64,
    ) -> AdminResult<'_, StoredEntry> {
        Box::pin(self.peek(topic, subscription, nth))
    }

    fn examine(&self, topic: TopicName, from: ExamineFrom, nth: u64) -> AdminResult<'_, StoredEntry> {
        Box::pin(self.examine(topic, from, nth))
    }

    fn entry_at(&self, topic: TopicName, position: Position) -> AdminResult<'_, StoredEntry> {
        Box::pin(self.entry_at(topic, position))
    }
}

impl Backend {
    /// As Pulsar does, makes a subscription that is not there, at the first entry, where subscriptions may be
    /// made automatically: tools look into topics under names of their own.
    pub(super) async fn peek(
        &self,
        name: TopicName,
        subscription: SubscriptionName,
        nth: u64,
    ) -> Result<StoredEntry, AdminError> {
        let catalog = &self.broker.shared.catalog;
        let may_create = catalog.may_create_subscription(&name);
        let outcome = self.at_home(name, move |topic| async move {
            let nth = nth.max(1);
            let place = match topic.backlog_entry(&subscription, nth).await {
                Err(CursorError::NoSubscription(_)) if may_create => {
                    topic
                        .create_subscription(subscription.clone(), StartAt::Earliest, false, &[])
                        .await
                        .or_else(|error| match error {
                            CursorError::Exists(_) => Ok(()),
                            error => Err(error),
                        })?;
                    topic.backlog_entry(&subscription, nth).await?
                }
                known => known?,
            };
            found(topic.entry_at(place).await?)
        });
        outcome.await
    }

    /// Counts messages; the entry that holds the wanted one is shown.
    pub(super) async fn examine(
        &self,
        name: TopicName,
        from: ExamineFrom,
        nth: u64,
    ) -> Result<StoredEntry, AdminError> {
        let outcome = self.at_home(name, move |topic| async move {
            let (first, end) = (topic.first(), topic.end());
            match from {
                ExamineFrom::Earliest => examine_forwards(&topic, first, end, nth.max(1)).await,
                ExamineFrom::Latest => examine_backwards(&topic, first, end, nth.max(1)).await,
            }
        });
        outcome.await
    }

    pub(super) async fn entry_at(
        &self,
        name: TopicName,
        position: Position,
    ) -> Result<StoredEntry, AdminError> {
        let outcome = self.at_home(name, move |topic| async move {
            let place = Place::At {
                position,
                batch_index: None,
                excluded: false,
            };
            let entry = topic.entry_at(ordinal_of(&topic, place)).await?;
            found(entry.filter(|entry| entry.position == position))
        });
        outcome.await
    }

    pub(super) async fn message_at_time(
        &self,
        name: TopicName,
        timestamp_ms: u64,
    ) -> Result<LastMessage, AdminError> {
        let outcome = self.at_home(name, move |topic| async move {
            let place = topic.find_by_time(timestamp_ms).await?;
            let position = topic.position_of(place);
            // Nothing that young: the last message, as Pulsar answers.
            match position {
                Some(_) => Ok(LastMessage {
                    position,
                    batch_index: None,
                    batch_size: None,
                }),
                None => {
                    let last = topic.last_message().await?;
                    Ok(LastMessage {
                        position: last.position,
                        batch_index: None,
                        batch_size: None,
                    })
                }
            }
        });
        outcome.await
    }

    pub(super) async fn backlog_bytes(&self, name: TopicName, from: Place) -> Result<u64, AdminError> {
        let outcome = self.at_home(name, move |topic| async move {
            let place = ordinal_of(&topic, from);
            Ok(topic
                .figures(pharos_broker::topic::Wanted::default())
                .log
                .bytes_after(place))
        });
        outcome.await
    }

    pub(super) async fn analyze_backlog(
        &self,
        name: TopicName,
        subscription: SubscriptionName,
        from: Option<Place>,
    ) -> Result<AnalyzeBacklogResult, AdminError> {
        let outcome = self.at_home(name, move |topic| async move {
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
        outcome.await
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

async fn examine_forwards(
    topic: &TopicHandle,
    first: Ordinal,
    end: Ordinal,
    nth: u64,
) -> Result<StoredEntry, AdminError> {
    let (mut left, mut hit) = (nth, None);
    topic
        .scan(first, end, |entry| {
            let messages = messages_of(entry);
            if left <= messages {
                hit = Some(stored(entry));
                return false;
            }
            left -= messages;
            true
        })
        .await?;
    hit.ok_or_else(no_message)
}

async fn examine_backwards(
    topic: &TopicHandle,
    first: Ordinal,
    end: Ordinal,
    nth: u64,
) -> Result<StoredEntry, AdminError> {
    let (mut at, mut left) = (end, nth);
    while at > first {
        at = Ordinal(at.0 - 1);
        let Some(entry) = topic.entry_at(at).await? else {
            break;
        };
        let messages = messages_of(&entry);
        if left <= messages {
            return Ok(stored(&entry));
        }
        left -= messages;
    }
    Err(no_message())
}

fn messages_of(entry: &FeedEntry) -> u64 {
    if entry.facts.is_marker {
        0
    } else {
        u64::from(entry.facts.message_count)
    }
}

fn found(entry: Option<Arc<FeedEntry>>) -> Result<StoredEntry, AdminError> {
    entry.map(|entry| stored(&entry)).ok_or_else(no_message)
}

fn stored(entry: &FeedEntry) -> StoredEntry {
    StoredEntry {
        position: entry.position,
        payload: entry.payload.clone(),
    }
}

fn no_message() -> AdminError {
    AdminError::NotFound("Message not found".to_owned())
}
