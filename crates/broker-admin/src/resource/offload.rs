//! Offloading: asking for it, and hearing what came of it.

use pharos_admin_api::OffloadProcessStatus;
use pharos_types::{Position, TopicName};

use super::{AdminError, AdminResult, not_implemented};

/// Offloading of closed ledgers. What is always true of such interfaces: [the module](super).
pub trait OffloadAdmin: Send + Sync {
    /// Begins to offload the closed ledgers before a place.
    ///
    /// # Errors
    /// `Conflict`: an earlier call is not done. `Precondition`: no driver is set, or it cannot be used.
    fn offload(&self, topic: TopicName, before: Position) -> AdminResult<'_, ()> {
        drop((topic, before));
        not_implemented("offloading")
    }

    /// What came of the last [`offload`](Self::offload) since the topic was loaded.
    fn offload_status(&self, topic: TopicName) -> AdminResult<'_, OffloadProcessStatus> {
        drop(topic);
        not_implemented("offloading")
    }

    /// Checks offload policies before they are set.
    ///
    /// # Errors
    /// `Precondition` or `Invalid` with what is wrong.
    fn check_offload_policies(&self, policies: &serde_json::Value) -> Result<(), AdminError> {
        let _ = policies;
        Ok(())
    }
}
