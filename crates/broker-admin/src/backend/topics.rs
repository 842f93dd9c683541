//! Making, unloading, terminating and deleting topics that are no partitioned ones.

use std::collections::BTreeMap;
use std::sync::Arc;

use pharos_cluster::BrokerAddresses;
use pharos_types::TopicName;

use super::Backend;
use crate::resource::{AdminError, AdminResult, LastMessage, TopicAdmin};
use pharos_broker::manage::DeleteTurn;
use pharos_broker::placement::Placed;

impl TopicAdmin for Backend {
    fn serves(&self, topic: &TopicName) -> bool {
        matches!(self.broker.shared.placement.of(topic), Placed::Here(_))
    }

    fn served_by(&self, topic: TopicName) -> AdminResult<'_, Option<Arc<BrokerAddresses>>> {
        Box::pin(async move {
            match self.home(&topic).await {
                Ok(_) => Ok(None),
                Err(AdminError::Elsewhere { addresses, .. }) => Ok(Some(addresses)),
                Err(error) => Err(error),
            }
        })
    }

    fn create_topic(&self, topic: TopicName, properties: BTreeMap<String, String>) -> AdminResult<'_, ()> {
        Box::pin(self.create_topic(topic, properties))
    }

    fn create_partitioned(
        &self,
        topic: TopicName,
        partitions: u32,
        properties: BTreeMap<String, String>,
        metadata_only: bool,
    ) -> AdminResult<'_, ()> {
        Box::pin(self.create_partitioned(topic, partitions, properties, metadata_only))
    }

    fn grow_partitioned(&self, topic: TopicName, partitions: u32) -> AdminResult<'_, ()> {
        Box::pin(self.grow_partitioned(topic, partitions))
    }

    fn create_missed_partitions(&self, topic: TopicName) -> AdminResult<'_, ()> {
        Box::pin(async move { Ok(self.catalog().create_missing_partitions(&topic).await?) })
    }

    fn delete_partitioned(&self, topic: TopicName, force: bool) -> AdminResult<'_, ()> {
        Box::pin(self.delete_partitioned(topic, force))
    }

    fn delete_topic(&self, topic: TopicName, force: bool) -> AdminResult<'_, ()> {
        Box::pin(self.delete_topic(topic, force))
    }

    fn terminate(&self, topic: TopicName) -> AdminResult<'_, LastMessage> {
        Box::pin(self.terminate(topic))
    }

    fn unload(&self, topic: TopicName) -> AdminResult<'_, ()> {
        Box::pin(self.unload(topic))
    }

    fn trim(&self, topic: TopicName) -> AdminResult<'_, ()> {
        Box::pin(self.at_home(topic, |topic| async move {
            topic.trim();
            Ok(())
        }))
    }

    fn truncate(&self, topic: TopicName) -> AdminResult<'_, ()> {
        Box::pin(self.at_home(topic, |topic| async move { Ok(topic.truncate().await?) }))
    }
}

impl Backend {
    pub(super) async fn create_topic(
        &self,
        name: TopicName,
        properties: BTreeMap<String, String>,
    ) -> Result<(), AdminError> {
        self.home(&name).await?;
        self.catalog().create_topic(&name, properties).await?;
        // Its log is opened at once, so that a broken store is heard of here rather than by the first client.
        self.at_any_home(name, |_| async { Ok(()) }).await
    }

    pub(super) async fn delete_topic(&self, name: TopicName, force: bool) -> Result<(), AdminError> {
        let home = self.home(&name).await?;
        // One whose deletion was begun and failed is gone on with.
        if !self.catalog().has_record(&name) {
            self.check_exists(&name)?;
        }
        Ok(self.broker.delete_topic(home, name, force).await?)
    }

    /// Holds a topic for its deletion, if no client is on it or `force` is set.
    pub(super) async fn hold_for_delete(
        &self,
        name: TopicName,
        force: bool,
    ) -> Result<DeleteTurn, AdminError> {
        let home = self.home(&name).await?;
        Ok(self.broker.hold_for_delete(home, name, force).await?)
    }

    pub(super) async fn unload(&self, name: TopicName) -> Result<(), AdminError> {
        let home = self.home(&name).await?;
        self.check_exists(&name)?;
        Ok(self.broker.unload(home, name).await?)
    }

    pub(super) async fn last_message(&self, name: TopicName) -> Result<LastMessage, AdminError> {
        let outcome = self.at_home(name, |topic| async move { Ok(topic.last_message().await?) });
        let last = outcome.await?;
        Ok(LastMessage {
            position: last.position,
            batch_index: last.batch_size.map(|size| size.saturating_sub(1)),
            batch_size: last.batch_size,
        })
    }

    pub(super) async fn terminate(&self, name: TopicName) -> Result<LastMessage, AdminError> {
        let outcome = self.at_home(name, |topic| async move {
            let last = topic.terminate().await.map_err(AdminError::Internal)?;
            Ok(LastMessage {
                position: last,
                batch_index: None,
                batch_size: None,
            })
        });
        outcome.await
    }
}
