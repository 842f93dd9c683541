//! Getting a topic's numbers: once from its home, and once from every shard that may have stream consumers.

use std::collections::HashMap;

use pharos_types::TopicName;

use crate::error::AdminError;
use crate::homes::Homes;
use pharos_broker::ids::{ConsumerKey, TopicId};
use pharos_topic::{AckFigures, CursorFigures, StreamConsumerFigures, TopicFigures, Wanted};

/// Figures of stream consumers, by consumer.
#[derive(Default)]
pub(crate) struct Live(HashMap<ConsumerKey, StreamConsumerFigures>);

impl Live {
    pub(crate) fn new(consumers: impl IntoIterator<Item = StreamConsumerFigures>) -> Self {
        Self(
            consumers
                .into_iter()
                .map(|consumer| (consumer.key, consumer))
                .collect(),
        )
    }

    pub(crate) fn get(&self, key: ConsumerKey) -> Option<&StreamConsumerFigures> {
        self.0.get(&key)
    }

    /// The stream consumer that has a cursor.
    pub(crate) fn of(&self, cursor: &CursorFigures) -> Option<&StreamConsumerFigures> {
        self.get(cursor.handed_over_to?)
    }

    /// Returns the most recent figures of a cursor's acknowledgements.
    pub(crate) fn acks<'a>(&'a self, cursor: &'a CursorFigures) -> &'a AckFigures {
        self.of(cursor).map_or(&cursor.acks, |consumer| &consumer.acks)
    }
}

impl Homes {
    /// A topic's numbers, with what its stream consumers know.
    pub(crate) async fn gather(
        &self,
        name: TopicName,
        wanted: Wanted,
    ) -> Result<(TopicFigures, Live), AdminError> {
        let figures = self
            .at_any_home(name, move |topic| async move { Ok(topic.figures(wanted)) })
            .await?;
        let is_handed_over = |cursor: &CursorFigures| cursor.handed_over_to.is_some();
        if !figures
            .subscriptions
            .iter()
            .any(|subscription| subscription.cursors.iter().any(is_handed_over))
        {
            return Ok((figures, Live::default()));
        }
        let live = self.stream_consumers(figures.id, wanted.details).await?;
        Ok((figures, live))
    }

    /// Returns the figures of every stream consumer of a topic, in one round over the shards.
    async fn stream_consumers(&self, topic: TopicId, with_ranges: bool) -> Result<Live, AdminError> {
        Ok(Live::new(self.broker.stream_consumers(topic, with_ranges).await?))
    }
}
