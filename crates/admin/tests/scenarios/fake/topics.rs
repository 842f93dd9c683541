//! Topics are what the catalog says, and nothing besides.

use pharos_broker_admin::{AdminError, AdminResult, LastMessage, TopicAdmin};
use pharos_types::TopicName;

use super::{FakeBroker, Properties, now};

const LAST: LastMessage = LastMessage {
    position: None,
    batch_index: None,
    batch_size: None,
};

impl TopicAdmin for FakeBroker {
    fn create_topic(&self, topic: TopicName, properties: Properties) -> AdminResult<'_, ()> {
        Box::pin(async move { Ok(self.catalog.create_topic(&topic, properties).await?) })
    }

    fn create_partitioned(
        &self,
        topic: TopicName,
        count: u32,
        properties: Properties,
        metadata_only: bool,
    ) -> AdminResult<'_, ()> {
        Box::pin(async move {
            Ok(self
                .catalog
                .create_partitioned(&topic, count, properties, !metadata_only)
                .await?)
        })
    }

    fn grow_partitioned(&self, topic: TopicName, partitions: u32) -> AdminResult<'_, ()> {
        Box::pin(async move { Ok(self.catalog.grow_partitioned(&topic, partitions).await?) })
    }

    fn create_missed_partitions(&self, topic: TopicName) -> AdminResult<'_, ()> {
        Box::pin(async move { Ok(self.catalog.create_missing_partitions(&topic).await?) })
    }

    fn delete_partitioned(&self, topic: TopicName, _: bool) -> AdminResult<'_, ()> {
        Box::pin(async move { Ok(self.catalog.delete_partitioned(&topic).await?) })
    }

    fn delete_topic(&self, topic: TopicName, force: bool) -> AdminResult<'_, ()> {
        Box::pin(async move {
            self.exists(&topic)?;
            if !force
                && self
                    .topics()
                    .get(&topic)
                    .is_some_and(|subscriptions| !subscriptions.is_empty())
            {
                return Err(AdminError::Precondition(
                    "Topic has active producers/subscriptions".into(),
                ));
            }
            self.catalog.delete_topic(&topic).await?;
            self.topics().remove(&topic);
            Ok(())
        })
    }

    fn terminate(&self, topic: TopicName) -> AdminResult<'_, LastMessage> {
        now(self.exists(&topic).map(|()| LAST))
    }

    fn unload(&self, topic: TopicName) -> AdminResult<'_, ()> {
        now(self.exists(&topic))
    }

    fn trim(&self, topic: TopicName) -> AdminResult<'_, ()> {
        now(self.exists(&topic))
    }
}
