//! Partitioned topics: metadata in the catalog, and the partitions' data and subscriptions on their homes.

use std::collections::BTreeMap;
use std::convert::identity;

use pharos_runtime::many;
use pharos_types::{Domain, SubscriptionName, TopicName};

use crate::error::AdminError;
use crate::topics::TopicAdmin;
use pharos_broker::error::{CursorError, TopicError};
use pharos_broker::manage::DeleteTurn;
use pharos_catalog::{PartitionedTopicError, Shadows};
use pharos_topic::{DurableSubscription, StartAt};

impl TopicAdmin {
    /// Creates a partitioned topic and, unless `metadata_only`, its partitions.
    ///
    /// # Errors
    /// `Conflict`: exists. `NotAcceptable`: count out of range. `NotFound`: no such namespace.
    pub async fn create_partitioned(
        &self,
        name: TopicName,
        partitions: u32,
        properties: BTreeMap<String, String>,
        metadata_only: bool,
    ) -> Result<(), AdminError> {
        self.check_shadow(&name, partitions, &properties)?;
        Ok(self
            .homes
            .catalog()
            .partitioned()
            .create(&name, partitions, properties, !metadata_only)
            .await?)
    }

    /// Grows a partitioned topic. Subscriptions of the existing partitions are created on the new ones at the earliest
    /// position, so that nothing is missed.
    ///
    /// The new partitions exist a moment before their subscriptions do. Nothing is missed all the same: these start at
    /// the first entry, and without a durable cursor nothing but closed ledgers is ever trimmed.
    ///
    /// # Errors
    /// `Conflict`: not partitioned. `Unprocessable`: fewer than now.
    pub async fn grow_partitioned(&self, name: TopicName, partitions: u32) -> Result<(), AdminError> {
        let Some(before) = self.homes.catalog().partitioned().get(&name) else {
            return Err(AdminError::Conflict("Topic is not partitioned topic".to_owned()));
        };
        // Its shadow may not get ahead of a source.
        if let Some(source) = Shadows::of(self.homes.catalog()).source_of(&name) {
            let of_source = self.homes.catalog().partitioned().get(&source);
            let most = of_source.map_or(0, |whole| whole.partitions);
            if partitions > most {
                let text = format!("{source} has {most} partitions; its shadow topics have as many");
                return Err(AdminError::Precondition(text));
            }
        }
        let (wishes, bare) = self.subscriptions_of(&name, before.partitions).await?;
        self.homes.catalog().partitioned().grow(&name, partitions).await?;
        if name.domain() == Domain::NonPersistent {
            return Ok(()); // Nothing waits in a subscription without consumers, so none is missed.
        }
        let mut new: Vec<_> = (before.partitions..partitions)
            .map(|index| name.with_partition(index))
            .collect();
        if new.is_empty() {
            // The same number again: an earlier attempt may have got as far as the partitions.
            new = bare;
        }
        let subscribe = |partition| self.subscribe_partition(partition, wishes.clone());
        many(new, subscribe, identity).await
    }

    /// The durable subscriptions that any partition has, and the partitions that have none.
    async fn subscriptions_of(
        &self,
        name: &TopicName,
        partitions: u32,
    ) -> Result<(BTreeMap<SubscriptionName, DurableSubscription>, Vec<TopicName>), AdminError> {
        let (mut wishes, mut bare) = (BTreeMap::new(), Vec::new());
        let made = (0..partitions)
            .map(|index| name.with_partition(index))
            .filter(|partition| self.homes.catalog().topic_exists(partition));
        let ask = |partition: TopicName| async move {
            let of = partition.clone();
            let found =
                self.homes.at_any_home(
                    partition,
                    |topic| async move { Ok(topic.durable_subscriptions()) },
                );
            Ok::<_, AdminError>((of, found.await?))
        };
        many(made, ask, |found| {
            let (partition, found) = found?;
            if found.is_empty() {
                bare.push(partition);
            }
            wishes.extend(found.into_iter().map(|wish| (wish.name.clone(), wish)));
            Ok::<_, AdminError>(())
        })
        .await?;
        Ok((wishes, bare))
    }

    async fn subscribe_partition(
        &self,
        partition: TopicName,
        wishes: BTreeMap<SubscriptionName, DurableSubscription>,
    ) -> Result<(), AdminError> {
        let outcome = self.homes.at_home(partition, |topic| async move {
            for wish in wishes.into_values() {
                let made = topic.create_subscription(
                    wish.name,
                    StartAt::Earliest,
                    wish.is_broadcast,
                    &wish.properties,
                    wish.is_replicated,
                );
                match made.await {
                    // A consumer that knew of the new partition was faster.
                    Ok(()) | Err(CursorError::Exists(_)) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            Ok(())
        });
        outcome.await
    }

    /// Creates the partitions that metadata speaks of and that do not exist.
    ///
    /// # Errors
    /// `Conflict`: not partitioned.
    pub async fn create_missed_partitions(&self, name: TopicName) -> Result<(), AdminError> {
        Ok(self.homes.catalog().partitioned().create_missing(&name).await?)
    }

    /// Deletes a partitioned topic: its partitions, then its metadata, schemas and policies.
    ///
    /// Every partition is held before the mark is set: if one is in use, all are there as before.
    ///
    /// # Errors
    /// `NotFound`; `Precondition` when there are producers or consumers and not `force`.
    pub async fn delete_partitioned(&self, name: TopicName, force: bool) -> Result<(), AdminError> {
        let Some(whole) = self.homes.catalog().partitioned().get(&name) else {
            return Err(PartitionedTopicError::NotPartitioned(name).into());
        };
        self.check_no_shadows(&name, force)?;
        let partitions = (0..whole.partitions).map(|index| name.with_partition(index));
        let mut held = Vec::new();
        let hold = |partition| self.hold_for_delete(partition, force);
        many(partitions, hold, |turn| {
            held.push(turn?);
            Ok::<_, AdminError>(())
        })
        .await?;
        self.homes.catalog().partitioned().begin_delete(&name).await?;
        let delete = |turn: DeleteTurn| async move {
            match turn.delete().await {
                // It was never made.
                Ok(()) | Err(TopicError::NotFound(_)) => Ok(()),
                Err(error) => Err(AdminError::from(error)),
            }
        };
        many(held, delete, identity).await?;
        Ok(self.homes.catalog().partitioned().delete(&name).await?)
    }
}
