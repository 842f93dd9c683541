//! Making, unloading, terminating and deleting topics that are no partitioned ones.

use std::collections::BTreeMap;

use pharos_types::TopicName;

use super::Backend;
use crate::admin::{AdminBackend as _, AdminError, LastMessage};

impl Backend {
    pub(super) async fn create_topic(
        &self,
        name: TopicName,
        properties: BTreeMap<String, String>,
    ) -> Result<(), AdminError> {
        self.catalog().create_topic(&name, properties).await?;
        // Its log is opened at once, so that a broken store is heard of here rather than by the first client.
        self.at_any_home(name, |_| async { Ok(()) }).await
    }

    pub(super) async fn delete_topic(&self, name: TopicName, force: bool) -> Result<(), AdminError> {
        self.check_exists(&name)?;
        if !force {
            self.check_idle(&name).await?;
        }
        self.delete_at_home(name).await
    }

    /// Refuses a topic that somebody is on. One that is not loaded has nobody.
    pub(super) async fn check_idle(&self, name: &TopicName) -> Result<(), AdminError> {
        let home = self.broker.shared.home_of(name);
        let asked = name.clone();
        let in_use = self.broker.call(home, move |shard| async move {
            shard.loaded(&asked).is_some_and(|topic| topic.is_in_use())
        });
        if in_use.await? {
            return Err(AdminError::Precondition(
                "Topic has active producers/subscriptions".to_owned(),
            ));
        }
        Ok(())
    }

    /// Deletes data and record of a topic.
    pub(super) async fn delete_at_home(&self, name: TopicName) -> Result<(), AdminError> {
        let home = self.broker.shared.home_of(&name);
        let outcome = self
            .broker
            .call(home, move |shard| async move { shard.delete_topic(&name).await });
        Ok(outcome.await??)
    }

    pub(super) async fn unload(&self, name: TopicName) -> Result<(), AdminError> {
        self.check_exists(&name)?;
        let home = self.broker.shared.home_of(&name);
        Ok(self
            .broker
            .call(home, move |shard| async move { shard.unload(&name).await })
            .await?)
    }

    pub(super) async fn last_message(&self, name: TopicName) -> Result<LastMessage, AdminError> {
        let outcome = self.at_home(
            name,
            |topic| async move { Ok(topic.last_message(None, None).await?) },
        );
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
