//! Offloading, as administrators ask for it.

use pharos_admin_api::{MessageIdJson, OffloadProcessStatus};
use pharos_managed_ledger::{OffloadAskError, OffloadStatus};
use pharos_types::{Position, TopicName};

use crate::error::AdminError;
use crate::homes::Homes;
use crate::offload_policies;

/// Offloading of closed ledgers. What is always true of such types: [the crate](crate).
#[derive(Clone)]
pub struct OffloadAdmin {
    homes: Homes,
}

impl OffloadAdmin {
    pub(crate) fn new(homes: Homes) -> Self {
        Self { homes }
    }

    /// Begins to offload the closed ledgers before a place.
    ///
    /// # Errors
    /// `Conflict`: an earlier call is not done. `Precondition`: no driver is set, or it cannot be used.
    pub async fn offload(&self, topic: TopicName, before: Position) -> Result<(), AdminError> {
        let asked = self.homes.at_home(topic, move |topic| async move {
            topic.ask_offload(before).map_err(|error| match &error {
                OffloadAskError::Running => AdminError::Conflict(error.to_string()),
                OffloadAskError::NoTarget => AdminError::Precondition(format!(
                    "{error}: neither the node (offload.driver) nor a policy of the topic or its namespace names one"
                )),
                OffloadAskError::Shadow => AdminError::NotAllowed(error.to_string()),
                OffloadAskError::Target(cause) => AdminError::Precondition(cause.to_string()),
            })
        });
        asked.await
    }

    /// Returns the result of the last [`offload`](Self::offload) since the topic was loaded.
    ///
    /// # Errors
    /// `NotAllowed` on a non-persistent topic; `NotFound`.
    pub async fn offload_status(&self, topic: TopicName) -> Result<OffloadProcessStatus, AdminError> {
        let partition = topic.partition();
        let status = self
            .homes
            .at_home(topic, |topic| async move { Ok(topic.offload_status()) })
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
    /// Checks offload policies before they are set.
    ///
    /// # Errors
    /// `Precondition` or `Invalid` with what is wrong.
    pub fn check_offload_policies(&self, policies: &serde_json::Value) -> Result<(), AdminError> {
        offload_policies::check(policies, &self.homes.broker.shared.options)
    }
}
