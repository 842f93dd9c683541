//! Offloading of one topic: when its log plans, and what administrators ask.

use std::rc::Rc;
use std::time::Duration;

use pharos_managed_ledger::{OffloadAskError, sweep};
use pharos_runtime::{clock, spawn_local};
use pharos_types::Position;

use super::{Stored, Topic, TopicContext};
use crate::shard::Shard;

/// How often objects of deleted topics are looked for, besides after a deletion.
const SWEEP_INTERVAL: Duration = Duration::from_secs(600);

/// How long a topic that closes waits for the step of offloading that it called off.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

impl Stored {
    /// Begins to offload the closed ledgers before a place.
    pub(crate) fn ask_offload(&mut self, cx: &TopicContext, before: Position) -> Result<(), OffloadAskError> {
        self.log
            .ledger
            .ask_offload(before, &self.policies.offload, clock::wall_ms())?;
        self.log.maintain(cx);
        Ok(())
    }

    /// Has the log look at what is to be offloaded, deleted or cleaned up; that runs off the path.
    pub(super) fn offload_soon(&mut self) {
        if !self.closing {
            self.log
                .ledger
                .plan_offload(&self.policies.offload, clock::wall_ms());
        }
    }
}

impl Topic {
    /// Calls off what is under way. What does not end soon is cleaned up when the topic is next opened.
    pub(super) async fn stop_offload(&self) {
        self.state.borrow_mut().stored.log.ledger.stop_offload();
        let ended = async {
            while self.state.borrow().stored.log.ledger.is_offloading() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        if tokio::time::timeout(STOP_TIMEOUT, ended).await.is_err() {
            tracing::warn!(topic = %self.cx.name, "an offload under way did not end in time");
        }
    }
}

impl Shard {
    /// Deletes the objects of topics that were deleted, soon.
    pub(super) fn sweep_soon(self: &Rc<Self>) {
        let shard = self.clone();
        spawn_local(async move { shard.sweep().await });
    }

    /// The same at the start and now and then: a deletion may have ended with a crash, or the store was away.
    pub(crate) async fn run_sweeps(self: Rc<Self>) {
        loop {
            self.sweep().await;
            tokio::time::sleep(SWEEP_INTERVAL).await;
        }
    }

    async fn sweep(&self) {
        let Some(offloader) = self.shared.options.managed_ledger.offloader.clone() else {
            return;
        };
        match sweep(&*self.shared.metadata, &*offloader).await {
            Ok(swept) => {
                if let Some(error) = swept.left {
                    tracing::warn!(%error, "objects of deleted topics are left; they are deleted later");
                }
            }
            Err(error) => {
                tracing::warn!(
                    error = super::publish::chain(&error),
                    "objects of deleted topics are not looked for"
                );
            }
        }
    }
}
