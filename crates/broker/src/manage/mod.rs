//! Administration of topics, and the only access to it for the layers above: work on a topic on its home shard, and
//! figures of topics, stream consumers and shards as plain data.
//!
//! ```text
//!   Broker::at_home ───► home shard: TopicHandle, for as long as one piece of work lasts
//!   Broker::stream_consumers, Broker::shard_figures ───► one round over all shards
//! ```
//! Clients use a [`Caller`](crate::shard::Caller), which checks their permissions. Nothing here checks permissions:
//! the administrative layer does so before. Every call may be made from any thread. Cancel safety: dropping a future
//! does not stop work that was sent to a shard.

mod figures;

use std::future::Future;

use pharos_feed::ids::{ShardId, TopicId};
use pharos_requests::error::{Gone, TopicError};
use pharos_topic::{Access, Maintenance, StreamConsumerFigures, TopicHandle};
use pharos_types::TopicName;

pub use crate::home::DeleteTurn;
pub use figures::{FeedFigures, ShardFigures};

use crate::broker::Broker;
use crate::home::DeleteIf;

impl Broker {
    /// Does something with a topic that exists, on its home shard `home`; loads it first when it must.
    ///
    /// # Errors
    /// What `work` answers; [`TopicError`] when the topic cannot be had, [`Gone`] when the broker stops.
    pub async fn at_home<R, E, W, F>(&self, home: ShardId, name: TopicName, work: W) -> Result<R, E>
    where
        R: Send + 'static,
        E: From<TopicError> + From<Gone> + Send + 'static,
        W: FnOnce(TopicHandle) -> F + Send + 'static,
        F: Future<Output = Result<R, E>> + 'static,
    {
        let outcome = self.call(home, move |shard| async move {
            let topic = shard.home.topic(&name, Access::Existing).await?;
            work(TopicHandle::new(topic)).await
        });
        outcome.await?
    }

    /// True if a topic is loaded on its home shard `home` now.
    ///
    /// # Errors
    /// [`Gone`].
    pub async fn is_loaded(&self, home: ShardId, name: TopicName) -> Result<bool, Gone> {
        self.call(home, move |shard| async move {
            shard.home.topics.by_name(&name).is_some()
        })
        .await
    }

    /// Disconnects clients and forgets the loaded topic; it is loaded again when it is asked for.
    ///
    /// # Errors
    /// [`Gone`].
    pub async fn unload(&self, home: ShardId, name: TopicName) -> Result<(), Gone> {
        self.call(home, move |shard| async move { shard.home.unload(&name).await })
            .await
    }

    /// Deletes a topic with all that it has; `force`: also when producers or consumers are on it.
    ///
    /// # Errors
    /// `InUse`, `NotFound`: nothing was done. `Metadata`, `Storage`: it is there as before, or will be gone once the stores
    /// do their part.
    pub async fn delete_topic(&self, home: ShardId, name: TopicName, force: bool) -> Result<(), TopicError> {
        let when = condition(force);
        let outcome = self.call(home, move |shard| async move {
            shard.home.delete_topic(&name, when).await
        });
        outcome.await?
    }

    /// Holds a topic that may be deleted, for a decision that follows. What comes to it waits.
    ///
    /// # Errors
    /// `InUse`.
    pub async fn hold_for_delete(
        &self,
        home: ShardId,
        name: TopicName,
        force: bool,
    ) -> Result<DeleteTurn, TopicError> {
        let when = condition(force);
        let outcome = self.call(home, move |shard| async move {
            shard.home.hold_for_delete(&name, when).await
        });
        outcome.await?
    }

    /// Measures the backlog of every loaded topic now, and does what its quotas say.
    ///
    /// # Errors
    /// [`Gone`].
    pub async fn check_backlog_quotas(&self) -> Result<(), Gone> {
        let all = self.call_all(|shard| async move { shard.home.maintain_all(Maintenance::Quotas).await });
        all.await.map(drop)
    }

    /// Returns the figures of every stream consumer of a loaded topic; `with_ranges`: with the ranges that each has
    /// acknowledged.
    ///
    /// # Errors
    /// [`Gone`].
    pub async fn stream_consumers(
        &self,
        topic: TopicId,
        with_ranges: bool,
    ) -> Result<Vec<StreamConsumerFigures>, Gone> {
        let asked = self.call_all(move |shard| async move {
            let feeds = [topic, topic.compacted()].map(|feed| shard.feeds.get(feed));
            let feeds = feeds.into_iter().flatten();
            let each = feeds.map(|feed| figures::stream_consumers(&feed, with_ranges));
            each.flatten().collect::<Vec<_>>()
        });
        Ok(asked.await?.into_iter().flatten().collect())
    }

    /// The numbers of every shard, of the topics that are loaded there and of the feeds.
    ///
    /// # Errors
    /// [`Gone`].
    pub async fn shard_figures(&self) -> Result<Vec<ShardFigures>, Gone> {
        self.call_all(figures::of_shard).await
    }
}

fn condition(force: bool) -> DeleteIf {
    match force {
        true => DeleteIf::Always,
        false => DeleteIf::Unused,
    }
}
