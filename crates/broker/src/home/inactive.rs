//! Deleting topics that were not used for as long as the policies ask.

use std::rc::Rc;

use pharos_catalog::PartitionedTopicError;
use pharos_requests::error::TopicError;
use pharos_runtime::clock;
use pharos_topic::{Staying, Topic};
use pharos_types::{Domain, TopicName};

use super::Home;
use super::delete::{DeleteIf, partitioned_error};

impl Home {
    /// Deletes a topic that was not used for long enough; one that stores nothing is let go.
    pub(super) async fn give_up_unused(self: &Rc<Self>, topic: &Topic) {
        if !Staying(topic).is_to_be_given_up(clock::wall_ms()) {
            return;
        }
        let name = topic.name().clone();
        if name.domain() == Domain::NonPersistent {
            if let Ok(held) = self.hold_to_delete(&name, DeleteIf::Inactive(topic.id())).await {
                topic.close().await;
                self.cx.shared.catalog.note_unloaded(&name);
                drop(held);
            }
            return;
        }
        let deleted = match self.delete_topic(&name, DeleteIf::Inactive(topic.id())).await {
            Ok(()) => {
                tracing::info!(topic = %name, "deleted an unused topic");
                self.give_up_partitioned(&name).await
            }
            // A client came to it meanwhile, or it is another one.
            Err(TopicError::InUse | TopicError::Closing(_)) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = deleted {
            tracing::warn!(topic = %name, %error, "cannot delete an unused topic");
        }
    }

    /// Deletes a partitioned topic when the last of its partitions was deleted.
    async fn give_up_partitioned(&self, partition: &TopicName) -> Result<(), TopicError> {
        let catalog = &self.cx.shared.catalog;
        let base = partition.base();
        if partition.partition().is_none() || !self.cx.shared.options.delete_inactive_partitioned {
            return Ok(());
        }
        if catalog.partitioned().get(&base).is_none() {
            return Ok(());
        }
        match catalog.partitioned().begin_delete_unmade(&base).await {
            Ok(true) => catalog
                .partitioned()
                .delete(&base)
                .await
                .map_err(partitioned_error),
            Ok(false) | Err(PartitionedTopicError::NotPartitioned(_)) => Ok(()),
            Err(error) => Err(partitioned_error(error)),
        }
    }
}
