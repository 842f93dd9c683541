//! Topics that nobody uses: let go after a while, loaded again by whoever asks next.
//!
//! A resting topic costs its shard a name and a time. Its log and cursors stay where they are; a topic that holds
//! messages or subscriptions is loaded once in a while by the shard itself, so that retention and expiry go on.
//!
//! Always true: whoever asks for a topic while it is being let go waits for that and then gets it; nobody is refused.

use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use pharos_runtime::clock;
use pharos_types::{Domain, TopicName};

use super::load::Access;
use super::{State, Topic, Upkeep};
use crate::rules::QuotaAction;
use crate::shard::Shard;

/// A resting topic with something in it is looked at this often.
const LOOK_INTERVAL_MS: u64 = 3_600_000;

/// Resting topics that are loaded in one round of the shard's ticks.
const LOOKS_PER_ROUND: usize = 256;

/// When resting topics are to be looked at, in milliseconds since 1970. Only those with something in them.
#[derive(Default)]
pub(crate) struct Resting {
    looks: HashMap<TopicName, Look>,
}

/// A look to be taken at a resting topic.
#[derive(Clone, Copy)]
struct Look {
    at_ms: u64,
    /// When the topic was last used: being looked at is no use of it.
    used_ms: u64,
}

impl Resting {
    fn due(&self, now_ms: u64) -> Vec<(TopicName, u64)> {
        let due = self.looks.iter().filter(|(_, look)| look.at_ms <= now_ms);
        due.map(|(name, look)| (name.clone(), look.used_ms))
            .take(LOOKS_PER_ROUND)
            .collect()
    }

    pub(super) fn remove(&mut self, name: &TopicName) {
        self.looks.remove(name);
    }
}

impl Topic {
    /// Notes that somebody asked for the topic.
    pub(super) fn touch(&self) {
        self.used_ms.set(clock::wall_ms());
    }

    /// Whether nobody has used it for `idle_after` and nothing is under way.
    fn may_rest(&self, now_ms: u64, idle_after: Duration) -> bool {
        let idle_after_ms = u64::try_from(idle_after.as_millis()).unwrap_or(u64::MAX);
        let state = self.state.borrow();
        let last_ms = self.used_ms.get().max(state.counters.last_publish_ms);
        let quiet = !state.ledger.is_offloading()
            && state.pending.is_empty()
            && state.terminating.is_empty()
            && state.fault.is_none();
        quiet
            && !state.closing
            && state.producers.len() == 0
            && state.consumers.is_empty()
            && !is_clock_running(&state)
            && now_ms.saturating_sub(last_ms) >= idle_after_ms
    }
}

/// Whether a rule has work here that an hour's delay would be late for: messages or subscriptions that expire.
fn is_clock_running(state: &State) -> bool {
    let rules = &state.rules;
    let evicts = rules
        .quota_age
        .is_some_and(|quota| quota.action == QuotaAction::Evict);
    let end = state.ledger.durable_end();
    let has_backlog = state.marks.lowest().is_some_and(|lowest| lowest < end);
    let has_durable = || {
        state
            .subscriptions
            .values()
            .any(|subscription| subscription.is_durable())
    };
    (has_backlog && (rules.ttl_ms.is_some() || evicts)) || (rules.subscription_ms.is_some() && has_durable())
}

/// Whether retention, expiry or absent consumers may have work in it one day.
fn holds_something(state: &State) -> bool {
    !state.subscriptions.is_empty() || state.ledger.first() < state.ledger.end()
}

impl Shard {
    /// One round: lets idle topics go, and looks at resting ones whose time has come.
    pub(crate) async fn rest_topics(self: &Rc<Self>) {
        let Some(idle_after) = self.shared.options.unload_idle_after else {
            return;
        };
        for topic in self.topics.all() {
            let persistent = topic.name.domain() == Domain::Persistent;
            if persistent && topic.may_rest(clock::wall_ms(), idle_after) {
                self.put_to_rest(&topic).await;
            }
        }
        let due = self.topics.resting.borrow().due(clock::wall_ms());
        for (name, used_ms) in due {
            match self.topic(&name, Access::Existing).await {
                Ok(topic) => {
                    // Nobody asked for it: it may rest again as soon as this look is over.
                    topic.used_ms.set(0);
                    topic.state.borrow_mut().last_used_ms = used_ms;
                    for what in Upkeep::ALL {
                        topic.look_after(what).await;
                    }
                }
                Err(error) => {
                    tracing::debug!(topic = %name, %error, "a resting topic cannot be looked at");
                    self.topics.resting.borrow_mut().remove(&name);
                }
            }
        }
    }

    async fn put_to_rest(self: &Rc<Self>, topic: &Rc<Topic>) {
        if !self.topics.begin_rest(topic) {
            return;
        }
        topic.close().await;
        let holds = holds_something(&topic.state.borrow());
        let waiters = self.topics.end_rest(topic);
        if holds {
            let look = Look {
                at_ms: clock::wall_ms() + LOOK_INTERVAL_MS,
                used_ms: topic.state.borrow().last_used_ms,
            };
            self.topics
                .resting
                .borrow_mut()
                .looks
                .insert(topic.name.clone(), look);
        }
        tracing::debug!(topic = %topic.name, "unloaded, nobody uses it");
        if waiters.is_empty() {
            return;
        }
        let again = self.topic(&topic.name, Access::Existing).await;
        for waiter in waiters {
            // Whoever no longer waits does not mind.
            let _ = waiter.send(again.clone());
        }
    }
}
