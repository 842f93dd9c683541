//! Clients that come before the store's answer.
//!
//! Others see our key as soon as the store has it, and send clients here: the last owner of a bundle when it closes the topics, any
//! broker that is asked. The answer that tells us may be on its way then. Such a client waits for it, a bounded time, and is not
//! turned away: it would look up again, after a pause that grows.

use pharos_types::TopicName;

use crate::BundleOwnership;
use crate::handover::TAKEN_MAX;

/// The store is asked for a key. It is no more when this is dropped.
pub(crate) struct Taking<'a>(&'a BundleOwnership);

impl<'a> Taking<'a> {
    /// The caller has the turn, so there is one at a time.
    pub(crate) fn begin(ownership: &'a BundleOwnership, key: &str) -> Self {
        ownership.lock().taking = Some(key.to_owned());
        Self(ownership)
    }
}

impl Drop for Taking<'_> {
    fn drop(&mut self) {
        self.0.lock().taking = None;
        self.0.tell_change();
    }
}

/// Waits while the bundle of a topic is being taken.
pub(crate) async fn wait_while_taking(ownership: &BundleOwnership, topic: &TopicName) {
    let Some(key) = ownership.key_of(topic) else {
        return;
    };
    let mut changes = ownership.changes.subscribe();
    let is_taking = || ownership.lock().taking.as_deref() == Some(&*key);
    let taken = async { while is_taking() && changes.changed().await.is_ok() {} };
    if tokio::time::timeout(TAKEN_MAX, taken).await.is_err() {
        tracing::info!(%topic, "the metadata store is slow to say whose it is");
    }
}
