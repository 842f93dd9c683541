//! The broker itself: whether it is well, its metrics, and regular work that is wanted now.

use super::{AdminResult, MetricsSnapshot, not_implemented};

/// The broker itself. What is always true of such interfaces: [the module](super).
pub trait BrokerAdmin: Send + Sync {
    /// Measures the backlog of every loaded topic now, and does what its quotas say.
    fn check_backlog_quotas(&self) -> AdminResult<'_, ()> {
        not_implemented("checking backlog quotas")
    }

    /// Publishes one message to the heartbeat topic and reads it back.
    ///
    /// # Errors
    /// `Unavailable` with what failed.
    fn health(&self) -> AdminResult<'_, ()>;

    /// Why the broker does not take work now: it is stopping, or storage or metadata refuse writes, for good or for the moment.
    /// `None`: it does.
    fn why_not_ready(&self) -> Option<String>;

    /// Everything that the metrics page shows.
    fn metrics(&self) -> AdminResult<'_, MetricsSnapshot>;
}
