//! Topics that are replicated to other clusters, after a start: what they have not sent goes on without waiting for a client.

use std::rc::Rc;

use pharos_topic::Access;
use pharos_types::TopicName;

use super::Home;

/// Topics of the catalog that are passed before others on the shard get their turn.
const PASSED_PER_TURN: usize = 256;

impl Home {
    /// Loads the topics that are replicated, once; those without anything to send rest again in time.
    pub(crate) async fn run_replicated(self: Rc<Self>) {
        let (catalog, placement) = (&self.cx.shared.catalog, &self.cx.shared.placement);
        // One broker's start: among several a topic is loaded by the one that gets it, when it is asked for.
        if placement.brokers().is_some() || catalog.clusters().names().len() <= 1 {
            return;
        }
        let own = &self.cx.shared.options.cluster_name;
        let mut after: Option<TopicName> = None;
        loop {
            let is_mine = |name: &TopicName| self.cx.is_home_of(name) && self.topics.is_nowhere(name);
            let (names, last) = catalog.topics_after(after.as_ref(), PASSED_PER_TURN, is_mine);
            for name in names {
                let clusters = catalog.effective_policies(&name).replication;
                if clusters.0.iter().any(|cluster| cluster != own)
                    && let Err(error) = self.topic(&name, Access::Existing).await
                {
                    tracing::warn!(topic = %name, %error, "a replicated topic cannot be loaded; it is when it is asked for");
                }
            }
            let Some(last) = last else { return };
            after = Some(last);
            tokio::task::yield_now().await;
        }
    }
}
