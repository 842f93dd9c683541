//! Objects of deleted topics in the object store.

use std::rc::Rc;
use std::time::Duration;

use pharos_managed_ledger::sweep;
use pharos_requests::error::chain;
use pharos_runtime::spawn_local;

use super::Home;

/// Interval of the search for objects of deleted topics, besides the one after each deletion.
const SWEEP_INTERVAL: Duration = Duration::from_secs(600);

impl Home {
    /// Deletes the objects of topics that were deleted, soon.
    pub(super) fn sweep_soon(self: &Rc<Self>) {
        let home = self.clone();
        spawn_local(async move { home.sweep().await });
    }

    /// Runs the search at the start and then periodically: a crash or an unavailable store may have interrupted a
    /// deletion.
    pub(crate) async fn run_sweeps(self: Rc<Self>) {
        loop {
            self.sweep().await;
            tokio::time::sleep(SWEEP_INTERVAL).await;
        }
    }

    async fn sweep(&self) {
        let Some(offloader) = self.cx.shared.options.managed_ledger.offloader.clone() else {
            return;
        };
        match sweep(&*self.cx.shared.metadata, &*offloader).await {
            Ok(swept) => {
                if let Some(error) = swept.left {
                    tracing::warn!(%error, "objects of deleted topics are left; they are deleted later");
                }
            }
            Err(error) => {
                tracing::warn!(
                    error = chain(&error),
                    "objects of deleted topics are not looked for"
                );
            }
        }
    }
}
