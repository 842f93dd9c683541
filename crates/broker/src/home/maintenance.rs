//! Periodic maintenance of all topics of a shard: checks of the topics, updates after policy changes, and samples of
//! their counters.

use std::rc::Rc;
use std::time::Duration;

use pharos_topic::{Maintenance, Topic};
use tokio::sync::broadcast::error::RecvError;

use super::Home;

/// Topics that are looked at before others on the shard get their turn.
const TOPICS_PER_TURN: usize = 64;

/// Interval of the samples of topic counters.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(10);

/// Topics whose counters are noted before others get their turn.
const SAMPLES_PER_TURN: usize = 1000;

impl Home {
    /// Looks at one thing of one topic.
    pub(super) async fn maintain(self: &Rc<Self>, topic: &Topic, what: Maintenance) {
        match what {
            Maintenance::Topics => self.give_up_unused(topic).await,
            what => topic.maintain_part(what).await,
        }
    }

    /// Looks at every loaded topic, one after the other, so that what must be read is read one entry at a time.
    pub(crate) async fn maintain_all(self: &Rc<Self>, what: Maintenance) {
        for (index, topic) in self.topics.all().into_iter().enumerate() {
            self.maintain(&topic, what).await;
            if index % TOPICS_PER_TURN == 0 {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Looks at one thing for as long as the shard lives.
    pub(crate) async fn run_maintenance(self: Rc<Self>, what: Maintenance) {
        let interval = what.interval(&self.cx.shared.options);
        loop {
            tokio::time::sleep(interval).await;
            self.maintain_all(what).await;
            if what == Maintenance::Ledgers {
                self.rest_topics().await;
            }
        }
    }

    /// Follows changes of policies for as long as the shard lives.
    pub(crate) async fn run_policies(self: Rc<Self>) {
        let mut events = self.cx.shared.catalog.subscribe_policy_events();
        loop {
            let event = match events.recv().await {
                Ok(event) => Some(event),
                Err(RecvError::Lagged(_)) => None,
                Err(RecvError::Closed) => return,
            };
            let meant = |topic: &Rc<Topic>| event.as_ref().is_none_or(|event| topic.is_meant(event));
            for topic in self.topics.all().iter().filter(|topic| meant(topic)) {
                topic.on_policies_changed();
            }
        }
    }

    /// Notes the counters of every loaded topic, so that rates are those of the last minute whenever they are asked for. What
    /// their caches have had for some rounds goes.
    pub(crate) async fn run_samples(self: Rc<Self>) {
        loop {
            tokio::time::sleep(SAMPLE_INTERVAL).await;
            for topics in self.topics.all().chunks(SAMPLES_PER_TURN) {
                topics.iter().for_each(|topic| topic.sample());
                tokio::task::yield_now().await;
            }
        }
    }
}
