//! Offloading, as administrators ask for it.

use pharos_admin_api::{MessageIdJson, OffloadProcessStatus};
use pharos_managed_ledger::{OffloadAskError, OffloadStatus};
use pharos_types::{Position, TopicName};

use super::Backend;
use crate::resource::{AdminError, AdminResult, OffloadAdmin};

impl OffloadAdmin for Backend {
    fn offload(&self, topic: TopicName, before: Position) -> AdminResult<'_, ()> {
        Box::pin(self.offload(topic, before))
    }

    fn offload_status(&self, topic: TopicName) -> AdminResult<'_, OffloadProcessStatus> {
        Box::pin(self.offload_status(topic))
    }

    fn check_offload_policies(&self, policies: &serde_json::Value) -> Result<(), AdminError> {
        super::offload_policies::check(policies, &self.broker.shared.options)
    }
}

impl Backend {
    pub(super) async fn offload(&self, name: TopicName, before: Position) -> Result<(), AdminError> {
        let asked = self.at_home(name, move |topic| async move {
            topic.ask_offload(before).map_err(|error| match &error {
                OffloadAskError::Running => AdminError::Conflict(error.to_string()),
                OffloadAskError::NoTarget => AdminError::Precondition(format!(
                    "{error}: neither the node (offload.driver) nor a policy of the topic or its namespace names one"
                )),
                OffloadAskError::Target(cause) => AdminError::Precondition(cause.to_string()),
            })
        });
        asked.await
    }

    pub(super) async fn offload_status(&self, name: TopicName) -> Result<OffloadProcessStatus, AdminError> {
        let partition = name.partition();
        let status = self
            .at_home(name, |topic| async move { Ok(topic.offload_status()) })
            .await?;
        let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let message_id = |position: Position| MessageIdJson {
            ledger_id: signed(position.ledger.0),
            entry_id: signed(position.entry.0),
            partition_index: partition.map_or(-1, |index| i32::try_from(index).unwrap_or(i32::MAX)),
            batch_index: None,
            batch_size: None,
        };
        let (status, last_error, first) = match status {
            OffloadStatus::NotRun => ("NOT_RUN", String::new(), None),
            OffloadStatus::Running => ("RUNNING", String::new(), None),
            OffloadStatus::Success(first) => ("SUCCESS", String::new(), first),
            OffloadStatus::Failed(cause) => ("ERROR", cause, None),
        };
        Ok(OffloadProcessStatus {
            status: status.to_owned(),
            last_error,
            first_unoffloaded_message: first.map(message_id),
        })
    }
}
