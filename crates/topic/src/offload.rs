//! Offloading of one topic: when its log plans, and what administrators ask.

use std::time::Duration;

use pharos_managed_ledger::{OffloadAskError, OffloadWork};
use pharos_runtime::clock;
use pharos_types::Position;

use super::{Compacting, Stored, Topic, TopicContext};

/// Time limit for a closing topic to wait for the offload step that it cancelled.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

impl Stored {
    /// Begins to offload the closed ledgers before a place.
    pub(crate) fn ask_offload(&mut self, cx: &TopicContext, before: Position) -> Result<(), OffloadAskError> {
        OffloadWork::of(&mut self.log.ledger).ask(before, &self.policies.offload, clock::wall_ms())?;
        self.log.maintain(cx);
        Ok(())
    }

    /// Has the log look at what is to be offloaded, deleted or cleaned up; that runs off the path.
    pub(super) fn offload_soon(&mut self) {
        if !self.closing {
            OffloadWork::of(&mut self.log.ledger).plan(&self.policies.offload, clock::wall_ms());
        }
    }
}

impl Topic {
    /// Closes clients before the log goes: nothing of what is appended or acknowledged matters any more.
    pub async fn close_for_good(&self) {
        self.close_clients().await;
        self.stop_offload().await;
        Compacting(self).stop_compaction().await;
    }

    /// Calls off what is under way. What does not end soon is cleaned up when the topic is next opened.
    pub(super) async fn stop_offload(&self) {
        OffloadWork::of(&mut self.state.borrow_mut().stored.log.ledger).stop();
        let ended = async {
            while self.state.borrow().stored.log.ledger.offloads().is_running() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        if tokio::time::timeout(STOP_TIMEOUT, ended).await.is_err() {
            tracing::warn!(topic = %self.cx.name, "an offload under way did not end in time");
        }
    }
}
