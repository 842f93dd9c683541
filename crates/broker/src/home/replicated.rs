//! Topics that are replicated to other clusters: what they have not sent goes on without waiting for a client.
//!
//! A broker that is alone opens them once, after its start. Of several, each looks every few seconds for those that came to it, and for those that
//! no broker has, which it takes as a lookup would: so what a broker had that died, or what was unloaded, goes on at another.

use std::collections::HashSet;
use std::convert::Infallible;
use std::rc::Rc;
use std::time::Duration;

use pharos_mesh::placement::Placed;
use pharos_runtime::many;
use pharos_topic::Access;
use pharos_types::TopicName;

use super::Home;

/// Topics of the catalog that are passed before others on the shard get their turn.
const PASSED_PER_TURN: usize = 256;
/// Interval at which brokers look for topics that moved to them, and for those without an owner.
const INTERVAL: Duration = Duration::from_secs(5);

impl Home {
    /// Loads the topics that are replicated, once after they came to this broker; those without anything to send rest again in time.
    pub(crate) async fn run_replicated(self: Rc<Self>) {
        let placement = &self.cx.shared.placement;
        let mut losses = placement.losses();
        let mut seen = HashSet::new();
        loop {
            if self.cx.shared.catalog.clusters().names().len() > 1 {
                self.open_replicated(&mut seen).await;
            }
            if placement.brokers().is_none() {
                return;
            }
            tokio::time::sleep(INTERVAL).await;
            match losses.has_changed() {
                Ok(false) => {}
                // Which topics went is not said, and they may have come back.
                Ok(true) => {
                    losses.mark_unchanged();
                    seen.clear();
                }
                // The end of the process.
                Err(_) => return,
            }
        }
    }

    /// Loads those that are not among `seen`, which is then all that there are here.
    async fn open_replicated(self: &Rc<Self>, seen: &mut HashSet<TopicName>) {
        let (catalog, placement) = (&self.cx.shared.catalog, &self.cx.shared.placement);
        let is_alone = placement.brokers().is_none();
        let mut here = HashSet::new();
        let mut after: Option<TopicName> = None;
        loop {
            let may_be_here = |name: &TopicName| {
                placement.shard_of(name) == self.cx.id && !matches!(placement.of(name), Placed::Elsewhere(_))
            };
            let (names, last) =
                catalog
                    .clusters()
                    .replicated_after(after.as_ref(), PASSED_PER_TURN, may_be_here);
            let names = names.into_iter().filter(|name| {
                let is_known = seen.contains(name) && self.cx.is_home_of(name);
                here.extend(is_known.then(|| name.clone()));
                !is_known
            });
            let names: Vec<TopicName> = names.collect();
            let opened = many(
                names,
                async |name| self.open_one(&name, is_alone).await.then_some(name),
                |name| {
                    here.extend(name);
                    Ok::<_, Infallible>(())
                },
            );
            let _ = opened.await;
            let Some(last) = last else { break };
            after = Some(last);
            tokio::task::yield_now().await;
        }
        *seen = here;
    }

    /// Says whether it is loaded.
    async fn open_one(self: &Rc<Self>, name: &TopicName, is_alone: bool) -> bool {
        let own = &self.cx.shared.options.cluster_name;
        let clusters = self.cx.shared.catalog.effective_policies(name).replication;
        if clusters.0.iter().all(|cluster| cluster == own) {
            return false;
        }
        // Any broker that sees it; exactly one gets it.
        if let Err(error) = self.cx.shared.placement.claim(name).await {
            tracing::debug!(topic = %name, %error, "a replicated topic has no owner yet");
        }
        if !self.cx.is_home_of(name) {
            return false;
        }
        match self.topic(name, Access::Existing).await {
            Ok(_) => true,
            Err(error) if is_alone => {
                tracing::warn!(topic = %name, %error, "a replicated topic cannot be loaded; it is when it is asked for");
                false
            }
            Err(error) => {
                tracing::debug!(topic = %name, %error, "a replicated topic is not loaded yet");
                false
            }
        }
    }
}
