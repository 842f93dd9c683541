//! Topics: whose they are, making, closing, ending, deleting. Partitioned ones: `partitioned`.

use std::collections::BTreeMap;
use std::sync::Arc;

use pharos_broker::manage::DeleteTurn;
use pharos_broker::placement::Placed;
use pharos_catalog::{Shadows, TopicError};
use pharos_cluster::BrokerAddresses;
use pharos_runtime::many;
use pharos_topic::TopicHandle;
use pharos_types::{Position, TopicName};

use crate::error::AdminError;
use crate::homes::Homes;

/// The last message of a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastMessage {
    /// Its entry; `None` when the topic never had a message (clients get -1:-1).
    pub position: Option<Position>,
    /// Index in its batch; `None` when it is no batch.
    pub batch_index: Option<u32>,
    /// Members of that batch.
    pub batch_size: Option<u32>,
}

impl LastMessage {
    /// An entry, whatever is in it.
    pub(crate) fn whole(position: Option<Position>) -> Self {
        Self {
            position,
            batch_index: None,
            batch_size: None,
        }
    }
}

/// Topics, whole and partitioned. What is always true of such types: [the crate](crate).
#[derive(Clone)]
pub struct TopicAdmin {
    pub(crate) homes: Homes,
}

impl TopicAdmin {
    pub(crate) fn new(homes: Homes) -> Self {
        Self { homes }
    }

    /// True if this broker serves a topic now. Does not take ownership.
    #[must_use]
    pub fn serves(&self, topic: &TopicName) -> bool {
        matches!(self.homes.broker.shared.placement.of(topic), Placed::Here(_))
    }

    /// True if this broker has loaded a topic.
    ///
    /// # Errors
    /// `Unavailable`: the broker stops.
    pub async fn is_loaded(&self, topic: &TopicName) -> Result<bool, AdminError> {
        match self.homes.broker.shared.placement.of(topic) {
            Placed::Here(home) => Ok(self.homes.broker.is_loaded(home, topic.clone()).await?),
            Placed::Elsewhere(_) | Placed::Unowned => Ok(false),
        }
    }

    /// The broker that serves a topic, after taking it if none has it; `None`: this one.
    ///
    /// # Errors
    /// `Unavailable`: it could not be taken now.
    pub async fn served_by(&self, topic: TopicName) -> Result<Option<Arc<BrokerAddresses>>, AdminError> {
        match self.homes.home(&topic).await {
            Ok(_) => Ok(None),
            Err(AdminError::Elsewhere { addresses, .. }) => Ok(Some(addresses)),
            Err(error) => Err(error),
        }
    }

    /// Creates a topic that is no partitioned one.
    ///
    /// # Errors
    /// `Conflict`: it, or a partitioned topic of that name, exists. `Precondition`: a partition name that does not
    /// fit the metadata. `NotFound`: no such namespace.
    pub async fn create_topic(
        &self,
        topic: TopicName,
        properties: BTreeMap<String, String>,
    ) -> Result<(), AdminError> {
        self.homes.home(&topic).await?;
        self.check_shadow(&topic, 0, &properties)?;
        self.homes.catalog().create_topic(&topic, properties).await?;
        // Its log is opened at once, so that a broken store is heard of here rather than by the first client.
        self.homes.at_any_home(topic, |_| async { Ok(()) }).await
    }

    /// Deletes a topic with its subscriptions, schemas and data. `force` disconnects who is on it.
    ///
    /// # Errors
    /// `NotFound`; `Precondition` when there are producers or subscriptions in use and not `force`.
    pub async fn delete_topic(&self, topic: TopicName, force: bool) -> Result<(), AdminError> {
        let home = self.homes.home(&topic).await?;
        self.check_no_shadows(&topic, force)?;
        // One whose deletion was begun and failed is gone on with.
        if !self.homes.catalog().has_record(&topic) {
            self.homes.check_exists(&topic)?;
        }
        Ok(self.homes.broker.delete_topic(home, topic, force).await?)
    }

    /// Checks that the properties of a new topic do not make it an invalid shadow topic.
    pub(crate) fn check_shadow(
        &self,
        topic: &TopicName,
        partitions: u32,
        properties: &BTreeMap<String, String>,
    ) -> Result<(), AdminError> {
        let checked = Shadows::of(self.homes.catalog()).check_new(topic, partitions, properties);
        checked.map_err(|error| AdminError::Precondition(error.to_string()))?;
        Ok(())
    }

    /// Refuses a topic that has had messages in transactions: its shadows would not know which of them were aborted.
    async fn check_no_transactions(&self, topic: &TopicName) -> Result<(), AdminError> {
        let stored = match self.homes.catalog().partitioned().get(topic) {
            Some(whole) => (0..whole.partitions)
                .map(|index| topic.with_partition(index))
                .collect(),
            None => vec![topic.clone()],
        };
        let is_there = |name: &TopicName| self.homes.catalog().topic_exists(name);
        let ask = |name: TopicName| {
            self.homes
                .at_home(name, |topic| async move { Ok(topic.had_transactions()) })
        };
        let mut had = false;
        many(stored.into_iter().filter(is_there), ask, |asked| match asked {
            // Another broker's: of a cluster, whose topics have none.
            Err(AdminError::Elsewhere { .. }) => Ok::<_, AdminError>(()),
            asked => {
                had |= asked?;
                Ok(())
            }
        })
        .await?;
        if had {
            let text = format!(
                "{topic} has had messages in transactions, and a shadow would show those that were aborted"
            );
            return Err(AdminError::Precondition(text));
        }
        Ok(())
    }

    /// Refuses to delete a topic with shadow topics, unless `force` is set: they end with it.
    pub(crate) fn check_no_shadows(&self, topic: &TopicName, force: bool) -> Result<(), AdminError> {
        let is_source = !Shadows::of(self.homes.catalog()).topics_of(topic).is_empty();
        if is_source && !force {
            return Err(AdminError::Precondition("Topic has shadow topics".to_owned()));
        }
        Ok(())
    }

    /// Names the shadows of a topic, instead of those it had.
    ///
    /// # Errors
    /// `Precondition`: one of them is none of its shadows, or the topic is a partition, or has had transactions. `Internal`.
    pub async fn set_shadow_topics(
        &self,
        topic: &TopicName,
        shadows: &[TopicName],
    ) -> Result<(), AdminError> {
        if !shadows.is_empty() {
            self.check_no_transactions(topic).await?;
        }
        match Shadows::of(self.homes.catalog()).set(topic, shadows).await {
            Err(TopicError::NotAllowed(reason)) => Err(AdminError::Precondition(reason)),
            outcome => Ok(outcome?),
        }
    }

    /// Holds a topic for its deletion, if no client is on it or `force` is set.
    pub(crate) async fn hold_for_delete(
        &self,
        topic: TopicName,
        force: bool,
    ) -> Result<DeleteTurn, AdminError> {
        let home = self.homes.home(&topic).await?;
        Ok(self.homes.broker.hold_for_delete(home, topic, force).await?)
    }

    /// Refuses appends from now on; says the last message.
    ///
    /// # Errors
    /// `NotAllowed` on a non-persistent topic; `NotFound`.
    pub async fn terminate(&self, topic: TopicName) -> Result<LastMessage, AdminError> {
        let terminated = self.homes.at_home(topic, |topic| async move {
            own_log(&topic)?;
            let last = topic.terminate().await.map_err(AdminError::Internal)?;
            Ok(LastMessage::whole(last))
        });
        terminated.await
    }

    /// Disconnects clients and forgets the loaded topic; it loads again when asked for.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn unload(&self, topic: TopicName) -> Result<(), AdminError> {
        let home = self.homes.home(&topic).await?;
        self.homes.check_exists(&topic)?;
        Ok(self.homes.broker.unload(home, topic).await?)
    }

    /// Deletes ledgers that are not needed, now.
    ///
    /// # Errors
    /// `NotAllowed` on a non-persistent topic; `NotFound`.
    pub async fn trim(&self, topic: TopicName) -> Result<(), AdminError> {
        let trimmed = self.homes.at_home(topic, |topic| async move {
            own_log(&topic)?;
            topic.trim();
            Ok(())
        });
        trimmed.await
    }

    /// Moves every subscription to the end and deletes closed ledgers.
    ///
    /// # Errors
    /// `NotAllowed` on a non-persistent topic; `NotFound`.
    pub async fn truncate(&self, topic: TopicName) -> Result<(), AdminError> {
        let truncated = self.homes.at_home(topic, |topic| async move {
            own_log(&topic)?;
            Ok(topic.truncate().await?)
        });
        truncated.await
    }
}

/// Refuses what changes a log, where the log is another topic's.
fn own_log(topic: &TopicHandle) -> Result<(), AdminError> {
    match topic.is_shadow() {
        true => Err(AdminError::NotAllowed(
            "a shadow topic stores nothing: ask that of its source".to_owned(),
        )),
        false => Ok(()),
    }
}
