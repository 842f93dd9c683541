//! Single stored messages of a topic: by their place in a backlog, by their number, by their position.

use std::sync::Arc;

use bytes::Bytes;
use pharos_broker::entry::FeedEntry;
use pharos_broker::error::CursorError;
use pharos_topic::{StartAt, TopicHandle};
use pharos_types::{Ordinal, Position, SubscriptionName, TopicName};

use crate::error::AdminError;
use crate::homes::Homes;
use crate::place::{Place, ordinal_of};

/// A stored entry, to look at.
#[derive(Clone, Debug)]
pub struct StoredEntry {
    /// Position of the message.
    pub position: Position,
    /// Message metadata and payload as on the wire, without the frame around them.
    pub payload: Bytes,
}

/// Start of an `examine`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExamineFrom {
    /// The first message, forwards.
    Earliest,
    /// The last message, backwards.
    Latest,
}

/// Single stored messages of a topic. What is always true of such types: [the crate](crate).
#[derive(Clone)]
pub struct MessageAdmin {
    homes: Homes,
}

impl MessageAdmin {
    pub(crate) fn new(homes: Homes) -> Self {
        Self { homes }
    }

    /// The `nth` (from 1) entry of a subscription's backlog.
    ///
    /// As Pulsar does, makes a subscription that is not there, at the first entry, where subscriptions may be
    /// made automatically: tools look into topics under names of their own.
    ///
    /// # Errors
    /// `NotFound`; `NotAllowed` on a non-persistent topic.
    pub async fn peek(
        &self,
        topic: TopicName,
        subscription: SubscriptionName,
        nth: u64,
    ) -> Result<StoredEntry, AdminError> {
        let may_create = self.homes.catalog().may_create_subscription(&topic);
        let peeked = self.homes.at_home(topic, move |topic| async move {
            let nth = nth.max(1);
            let place = match topic.backlog_entry(&subscription, nth).await {
                Err(CursorError::NoSubscription(_)) if may_create => {
                    topic
                        .create_subscription(subscription.clone(), StartAt::Earliest, false, &[], false)
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
        peeked.await
    }

    /// The `nth` (from 1) message of the topic, counted from one of its ends. Counts messages; the entry that holds the wanted one
    /// is shown.
    ///
    /// # Errors
    /// `NotFound`; `NotAllowed` on a non-persistent topic.
    pub async fn examine(
        &self,
        topic: TopicName,
        from: ExamineFrom,
        nth: u64,
    ) -> Result<StoredEntry, AdminError> {
        let examined = self.homes.at_home(topic, move |topic| async move {
            let (first, end) = (topic.first(), topic.end());
            match from {
                ExamineFrom::Earliest => examine_forwards(&topic, first, end, nth.max(1)).await,
                ExamineFrom::Latest => examine_backwards(&topic, first, end, nth.max(1)).await,
            }
        });
        examined.await
    }

    /// The entry at a position.
    ///
    /// # Errors
    /// `NotFound`; `NotAllowed` on a non-persistent topic.
    pub async fn entry_at(&self, topic: TopicName, position: Position) -> Result<StoredEntry, AdminError> {
        let read = self.homes.at_home(topic, move |topic| async move {
            let place = Place::At {
                position,
                batch_index: None,
                excluded: false,
            };
            let entry = topic.entry_at(ordinal_of(&topic, place)).await?;
            found(entry.filter(|entry| entry.position == position))
        });
        read.await
    }
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
