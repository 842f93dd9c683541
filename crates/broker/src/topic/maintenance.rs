//! What is looked at once in a while, and following changes of the policies.

use std::rc::Rc;
use std::time::Duration;

use pharos_types::TopicName;
use tokio::sync::broadcast::error::RecvError;

use super::{State, Topic, TopicContext};
use crate::shard::Shard;
use pharos_catalog::PolicyEvent;
use pharos_catalog::policy::EffectivePolicies;

/// Topics that are looked at before others on the shard get their turn.
const TOPICS_PER_TURN: usize = 64;
/// No look is taken more often.
const INTERVAL_MIN: Duration = Duration::from_millis(100);

/// Something to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Maintenance {
    /// Ages of ledgers, retention, absent consumers.
    Ledgers,
    /// Messages beyond their time to live.
    Messages,
    /// Backlogs beyond their quota.
    Quotas,
    /// Subscriptions without consumers.
    Subscriptions,
    /// Topics without users.
    Topics,
}

impl Maintenance {
    pub(crate) const ALL: [Self; 5] = [
        Self::Ledgers,
        Self::Messages,
        Self::Quotas,
        Self::Subscriptions,
        Self::Topics,
    ];

    /// How often.
    fn interval(self, options: &crate::Options) -> Duration {
        let interval = match self {
            Self::Ledgers => {
                let absent = options.absent_retention.unwrap_or(Duration::MAX);
                let idle = options.managed_ledger.ledger_idle_ms_max;
                let idle = idle.map_or(Duration::MAX, Duration::from_millis);
                let unused = options.unload_idle_after.unwrap_or(Duration::MAX);
                options.retention_check_interval.min(absent).min(idle).min(unused)
            }
            Self::Messages => options.message_expiry_interval,
            Self::Quotas => options.backlog_quota_interval,
            Self::Subscriptions => options.subscription_expiration_interval,
            Self::Topics => options.inactive_topic_interval,
        };
        interval.max(INTERVAL_MIN)
    }
}

impl State {
    /// What holds for the topic, as of a version of all policies.
    fn set_policies(&mut self, cx: &TopicContext, policies: EffectivePolicies, version: u64) {
        self.stored.policy_version = version;
        if *self.stored.policies == policies || self.stored.closing {
            return;
        }
        self.stored.log.ledger.set_durability(policies.durability);
        self.stored.policies = Rc::new(policies);
        self.stored.offload_soon();
        let (options, limits) = self.stored.dispatch_options();
        for subscription in self.attached.subscriptions.values_mut() {
            subscription.body.kind_mut().set_options(options, limits);
        }
        self.attached.run_dispatchers(cx, &mut self.stored);
        self.let_through(cx);
        self.stored.publishing.watch(cx);
        self.stored.trim_soon(cx);
        self.stored.log.maintain(cx);
        self.stored.maintain_cursors(cx);
    }
}

impl TopicContext {
    fn is_meant(&self, event: &PolicyEvent) -> bool {
        match event {
            PolicyEvent::Namespace(namespace) => self.name.namespace() == namespace,
            PolicyEvent::Topic(name) => self.name == *name || self.name.base() == *name,
        }
    }
}

impl Topic {
    /// Looks at one thing.
    pub(super) async fn maintain_part(&self, what: Maintenance) {
        if self.state.borrow().stored.closing {
            return;
        }
        match what {
            Maintenance::Ledgers => self.on_tick(),
            Maintenance::Messages => {
                if let Err(error) = self.expire_by_policies().await {
                    tracing::warn!(topic = %self.cx.name, %error, "cannot expire messages");
                }
            }
            Maintenance::Quotas => self.enforce_quota().await,
            Maintenance::Subscriptions => self.expire_subscriptions().await,
            Maintenance::Topics => {
                if let Some(shard) = self.cx.shard() {
                    shard.give_up_unused(self).await;
                }
            }
        }
    }

    /// A policy that may be about this topic changed.
    pub(crate) fn on_policies_changed(&self) {
        let Some(shard) = self.cx.shard() else { return };
        let version = shard.shared.catalog.policy_version();
        let policies = shard.effective_policies(&self.cx.name);
        self.state.borrow_mut().set_policies(&self.cx, policies, version);
    }

    /// Makes sure that the policies are those of now: the news of a change may still be on its way.
    pub(crate) fn catch_up_policies(&self) {
        let Some(shard) = self.cx.shard() else { return };
        if self.state.borrow().stored.policy_version != shard.shared.catalog.policy_version() {
            self.on_policies_changed();
        }
    }
}

impl Shard {
    /// Looks at every loaded topic, one after the other, so that what must be read is read one entry at a time.
    pub(crate) async fn maintain_all(self: &Rc<Self>, what: Maintenance) {
        for (index, topic) in self.topics.all().into_iter().enumerate() {
            topic.maintain_part(what).await;
            if index % TOPICS_PER_TURN == 0 {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Looks at one thing for as long as the shard lives.
    pub(crate) async fn run_maintenance(self: Rc<Self>, what: Maintenance) {
        let interval = what.interval(&self.shared.options);
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
        let mut events = self.shared.catalog.subscribe_policy_events();
        loop {
            let event = match events.recv().await {
                Ok(event) => Some(event),
                Err(RecvError::Lagged(_)) => None,
                Err(RecvError::Closed) => return,
            };
            let meant = |topic: &Rc<Topic>| event.as_ref().is_none_or(|event| topic.cx.is_meant(event));
            for topic in self.topics.all().iter().filter(|topic| meant(topic)) {
                topic.on_policies_changed();
            }
        }
    }

    /// What holds for a topic of this shard.
    pub(crate) fn effective_policies(&self, name: &TopicName) -> EffectivePolicies {
        self.shared.catalog.effective_policies(name)
    }
}
