//! Topic compaction, as administrators ask for it.

use pharos_admin_api::LongRunningProcessStatus;
use pharos_topic::{CompactionAskError, CompactionStatus};
use pharos_types::TopicName;

use crate::error::AdminError;
use crate::homes::Homes;

/// Topic compaction. What is always true of such types: [the crate](crate).
#[derive(Clone)]
pub struct CompactionAdmin {
    homes: Homes,
}

impl CompactionAdmin {
    pub(crate) fn new(homes: Homes) -> Self {
        Self { homes }
    }

    /// Begins to compact a topic.
    ///
    /// # Errors
    /// `Conflict`: an earlier run is not done. `NotAllowed`: the topic cannot be compacted. `NotFound`.
    pub async fn compact(&self, topic: TopicName) -> Result<(), AdminError> {
        let asked = self.homes.at_home(topic, |topic| async move {
            topic.compact().map_err(|error| match &error {
                CompactionAskError::Running => AdminError::Conflict(error.to_string()),
                CompactionAskError::Closing => AdminError::Unavailable(error.to_string()),
                CompactionAskError::Refused(_) => AdminError::NotAllowed(error.to_string()),
            })
        });
        asked.await
    }

    /// Returns the result of the last run since the topic was loaded.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn compaction_status(&self, topic: TopicName) -> Result<LongRunningProcessStatus, AdminError> {
        let status = self
            .homes
            .at_home(topic, |topic| async move { Ok(topic.compaction_status()) });
        let (status, last_error) = match status.await? {
            CompactionStatus::NotRun => ("NOT_RUN", String::new()),
            CompactionStatus::Running => ("RUNNING", String::new()),
            CompactionStatus::Success => ("SUCCESS", String::new()),
            CompactionStatus::Failed(cause) => ("ERROR", cause),
        };
        Ok(LongRunningProcessStatus {
            status: status.to_owned(),
            last_error,
        })
    }
}
