//! Carriers that are this shard's ([`pharos_catalog::carriers_of`]): loaded although no consumer asks for them, and let go of when their
//! topic has none any more.

use std::collections::HashSet;
use std::rc::Rc;
use std::time::Duration;

use pharos_catalog::{Carriers, carrier_in, carrier_name};
use pharos_mesh::Placed;
use pharos_topic::Access;
use pharos_types::TopicName;

use super::Home;

/// Interval of the check of carriers.
const INTERVAL: Duration = Duration::from_secs(5);

impl Home {
    /// Loads the carriers that are this shard's, so that their absent consumers come to an end and what is over goes, whether or not
    /// a consumer asks for one. One that is not wanted any more has no owner then.
    pub(crate) async fn run_carriers(self: Rc<Self>) {
        if self.cx.shared.placement.brokers().is_none() {
            return;
        }
        let mut left = HashSet::new();
        loop {
            tokio::time::sleep(INTERVAL).await;
            for (topic, slots) in Carriers::of(&self.cx.shared.catalog).topics() {
                for carrier in carriers(&topic, slots).filter(|name| self.cx.is_home_of(name)) {
                    if self.topics.is_nowhere(&carrier)
                        && let Err(error) = self.topic(&carrier, Access::Existing).await
                    {
                        tracing::debug!(%carrier, %error, "a carrier is not loaded yet");
                    }
                }
                self.load_source(&topic).await;
            }
            left = self.release_unwanted(&left).await;
        }
    }

    /// A topic with carriers is loaded by its owner: it says what it is, trims, and gets carriers an owner. Another broker takes it when
    /// its owner was lost, also while nothing is published.
    async fn load_source(self: &Rc<Self>, topic: &TopicName) {
        let placement = &self.cx.shared.placement;
        if placement.of(topic) == Placed::Unowned && placement.shard_of(topic) == self.cx.id {
            // Any broker that sees it; exactly one gets it.
            if let Err(error) = placement.claim(topic).await {
                tracing::debug!(%topic, %error, "a topic with carriers has no owner yet");
            }
        }
        if self.cx.is_home_of(topic)
            && self.topics.is_nowhere(topic)
            && let Err(error) = self.topic(topic, Access::Existing).await
        {
            tracing::debug!(%topic, %error, "a topic with carriers is not loaded yet");
        }
    }

    /// Lets go of carriers that are not on record: their topic was deleted, or its last subscription with carriers. `left`: what the last
    /// look found so; a record that is corrected meanwhile costs nothing. Gives back what this one found.
    async fn release_unwanted(self: &Rc<Self>, left: &HashSet<TopicName>) -> HashSet<TopicName> {
        let placement = &self.cx.shared.placement;
        let wanted = || {
            let topics = Carriers::of(&self.cx.shared.catalog).topics();
            let names = topics.iter().flat_map(|(topic, slots)| carriers(topic, *slots));
            names.collect::<HashSet<TopicName>>()
        };
        let owned: Vec<TopicName> = {
            let wanted = wanted();
            let owned = placement.bundles();
            let owned = owned.iter().filter_map(|bundle| carrier_in(bundle));
            let owned = owned.filter(|carrier| self.cx.is_home_of(carrier));
            owned.filter(|carrier| !wanted.contains(carrier)).collect()
        };
        for carrier in owned.iter().filter(|carrier| left.contains(carrier)) {
            self.unload(carrier).await;
            if wanted().contains(carrier) {
                continue;
            }
            match placement.release(carrier).await {
                Ok(()) => tracing::info!(%carrier, "a carrier is over: no broker has it any more"),
                Err(error) => {
                    tracing::warn!(%carrier, %error, "a carrier that is over has an owner for longer")
                }
            }
        }
        owned.into_iter().collect()
    }
}

/// The carriers of a topic with so many slots.
fn carriers(topic: &TopicName, slots: u32) -> impl Iterator<Item = TopicName> + '_ {
    (1..slots).filter_map(|number| carrier_name(topic, number))
}
