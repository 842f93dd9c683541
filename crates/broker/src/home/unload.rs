//! Unused topics: let go after a while, loaded again by the next request.
//!
//! A resting topic costs its shard a name and a time. Its log and cursors stay where they are; a topic that holds
//! messages or subscriptions is loaded once in a while by the shard itself, so that retention and expiry go on. After a start
//! all topics rest and none is known to: the shard walks through the catalog once, a few topics in each round, loads those
//! that were not asked for yet, and from then on looks at those with subscriptions like at others that rest.
//!
//! Always true: a request for a topic that is being let go waits for that and then gets it; none is refused.

use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use pharos_runtime::clock;
use pharos_topic::{Access, Maintenance, Staying, Topic};
use pharos_types::{Domain, TopicName};

use super::Home;

/// A resting topic with something in it is looked at this often, or as often as an absent consumer's time can run out.
const LOOK_INTERVAL_MS: u64 = 3_600_000;

/// Resting topics that are loaded in one round of the shard's ticks.
const LOOKS_PER_ROUND: usize = 256;

/// Topics of the catalog that are passed in one round of the walk after a start, of all shards.
const PASSED_PER_ROUND: usize = 4096;

/// Next check times of unloaded topics, in milliseconds since 1970. Only topics with messages or subscriptions.
#[derive(Default)]
pub(crate) struct Resting {
    looks: HashMap<TopicName, Look>,
    walk: Walk,
}

/// Progress of the shard's walk through the catalog since the start.
#[derive(Default)]
enum Walk {
    #[default]
    Begins,
    After(TopicName),
    Done,
}

/// A look to be taken at a resting topic.
#[derive(Clone, Copy)]
struct Look {
    at_ms: u64,
    /// Last use of the topic, in milliseconds since 1970; a check does not count as use.
    used_ms: u64,
}

impl Resting {
    /// Returns the topics to check in this round, the longest overdue first.
    fn due(&self, now_ms: u64) -> Vec<(TopicName, u64)> {
        let due = self.looks.iter().filter(|(_, look)| look.at_ms <= now_ms);
        let mut due: Vec<_> = due.collect();
        if due.len() > LOOKS_PER_ROUND {
            due.select_nth_unstable_by_key(LOOKS_PER_ROUND, |(_, look)| look.at_ms);
            due.truncate(LOOKS_PER_ROUND);
        }
        due.into_iter()
            .map(|(name, look)| (name.clone(), look.used_ms))
            .collect()
    }

    pub(super) fn remove(&mut self, name: &TopicName) {
        self.looks.remove(name);
    }
}

impl Home {
    /// Runs one round: unloads idle topics, and checks the unloaded ones that are due.
    pub(super) async fn rest_topics(self: &Rc<Self>) {
        let Some(idle_after) = self.cx.shared.options.unload_idle_after else {
            return;
        };
        for topic in self.topics.all() {
            let persistent = topic.name().domain() == Domain::Persistent;
            if persistent && Staying(&topic).may_rest(idle_after) {
                self.put_to_rest(&topic, true).await;
            }
        }
        self.walk_on().await;
        let due = self.topics.resting.borrow().due(clock::wall_ms());
        for (name, used_ms) in due {
            match self.topic(&name, Access::Existing).await {
                Ok(topic) => {
                    // It was not asked for: it may rest again as soon as this look is over.
                    Staying(&topic).forget_touch();
                    Staying(&topic).set_last_used_ms(used_ms);
                    for what in Maintenance::ALL {
                        self.maintain(&topic, what).await;
                    }
                }
                Err(error) => {
                    tracing::debug!(topic = %name, %error, "a resting topic cannot be looked at");
                    self.topics.resting.borrow_mut().remove(&name);
                }
            }
        }
    }

    /// Runs one round of the walk through the topics that no request has used since the start.
    async fn walk_on(self: &Rc<Self>) {
        let after = match &self.topics.resting.borrow().walk {
            Walk::Begins => None,
            Walk::After(name) => Some(name.clone()),
            Walk::Done => return,
        };
        let is_unseen = |name: &TopicName| {
            self.cx.is_home_of(name)
                && !self.topics.resting.borrow().looks.contains_key(name)
                && self.topics.is_nowhere(name)
        };
        let catalog = &self.cx.shared.catalog;
        let count = PASSED_PER_ROUND.min(LOOKS_PER_ROUND * usize::from(self.cx.shared.options.shards.max(1)));
        let (names, last) = catalog.topic_lists().after(after.as_ref(), count, is_unseen);
        self.topics.resting.borrow_mut().walk = last.map_or(Walk::Done, Walk::After);
        for name in names {
            let topic = match self.topic(&name, Access::Existing).await {
                Ok(topic) => topic,
                Err(error) => {
                    tracing::debug!(topic = %name, %error, "an unused topic cannot be looked at");
                    continue;
                }
            };
            Staying(&topic).forget_touch();
            topic.maintain_part(Maintenance::Ledgers).await;
            // Without subscriptions no consumer is absent. It is left as it was found, whatever else would be done to a topic
            // that is not used.
            let has_subscriptions = Staying(&topic).has_subscriptions();
            if Staying(&topic).may_rest(Duration::ZERO) {
                self.put_to_rest(&topic, has_subscriptions).await;
            }
        }
    }

    /// Returns the interval between checks of an unloaded topic, in milliseconds.
    fn look_interval_ms(&self) -> u64 {
        let absent = self.cx.shared.options.absent_retention;
        let absent_ms = absent.and_then(|time| u64::try_from(time.as_millis()).ok());
        absent_ms.map_or(LOOK_INTERVAL_MS, |absent_ms| absent_ms.min(LOOK_INTERVAL_MS))
    }

    /// `is_looked_at`: whether it is to be looked at again when something is in it.
    async fn put_to_rest(self: &Rc<Self>, topic: &Rc<Topic>, is_looked_at: bool) {
        if !self.topics.begin_rest(topic) {
            return;
        }
        topic.close().await;
        let holds = is_looked_at && Staying(topic).holds_something();
        let waiters = self.topics.end_rest(topic);
        if holds {
            let look = Look {
                at_ms: clock::wall_ms() + self.look_interval_ms(),
                used_ms: Staying(topic).last_used_ms(),
            };
            self.topics
                .resting
                .borrow_mut()
                .looks
                .insert(topic.name().clone(), look);
        }
        tracing::debug!(topic = %topic.name(), "unloaded, it is not used");
        if waiters.is_empty() {
            return;
        }
        let again = self.topic(topic.name(), Access::Existing).await;
        for waiter in waiters {
            // A caller that no longer waits does not mind.
            let _ = waiter.send(again.clone());
        }
    }
}
