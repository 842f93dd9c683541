//! Periodic maintenance, and the application of changed policies to a topic.

use std::rc::Rc;
use std::time::Duration;

use pharos_catalog::policy::EffectivePolicies;
use pharos_catalog::{PolicyEvent, Shadows};

use super::expiry::Expiring;
use super::quota::Quotas;
use super::{Compacting, State, Stored, Topic, TopicContext};

/// No look is taken more often.
const INTERVAL_MIN: Duration = Duration::from_millis(100);

/// Something to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Maintenance {
    /// Ages of ledgers, retention, absent consumers.
    Ledgers,
    /// Messages beyond their time to live.
    Messages,
    /// Backlogs beyond their quota.
    Quotas,
    /// Subscriptions without consumers.
    Subscriptions,
    /// Compaction by the policies.
    Compaction,
    /// Topics without users: their shard looks.
    Topics,
}

impl Maintenance {
    /// All that there is to look at.
    pub const ALL: [Self; 6] = [
        Self::Ledgers,
        Self::Messages,
        Self::Quotas,
        Self::Subscriptions,
        Self::Compaction,
        Self::Topics,
    ];

    /// Interval of this maintenance task.
    #[must_use]
    pub fn interval(self, options: &pharos_mesh::Options) -> Duration {
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
            Self::Compaction => options.compaction_check_interval,
            Self::Topics => options.inactive_topic_interval,
        };
        interval.max(INTERVAL_MIN)
    }
}

impl State {
    /// Applies policies to the topic, as of a version of all policies.
    fn set_policies(&mut self, cx: &TopicContext, policies: EffectivePolicies, version: u64) {
        self.stored.policy_version = version;
        if *self.stored.policies == policies || self.stored.closing {
            return;
        }
        let replication = policies.persistence.replication;
        self.stored.log.ledger.set_durability(policies.durability);
        let affinity = || policies.bookie_affinity.clone();
        self.stored.log.ledger.set_copies(replication, affinity());
        self.stored.cursors.log_mut().set_copies(replication, affinity());
        self.stored.policies = Rc::new(policies);
        self.stored.await_compaction();
        self.stored.offload_soon();
        let (options, limits) = self.stored.dispatch_options();
        for subscription in self.attached.subscriptions.values_mut() {
            subscription.body.kind_mut().set_options(options, limits);
        }
        self.set_dispatch_rates();
        self.attached.run_dispatchers(cx, &mut self.stored);
        self.let_through(cx);
        self.stored.publishing.watch(cx);
        self.stored.trim_soon(cx);
        self.stored.log.maintain(cx);
        self.stored.maintain_cursors(cx);
    }
}

impl State {
    /// Applies the shadow policies: those of the topic, and those of its source about it.
    fn follow_policies(&mut self, cx: &TopicContext, is_followed: bool) {
        let log = &mut self.stored.log;
        if let Some(following) = &mut log.following {
            following.on_policies_changed(cx);
        }
        if log.is_followed() != is_followed {
            log.set_followed(is_followed);
            log.maintain(cx);
        }
    }
}

impl Stored {
    /// Cancels the closing. Policy changes were missed meanwhile.
    pub(crate) fn reopen(&mut self) {
        self.closing = false;
        self.policy_version = 0;
    }
}

impl TopicContext {
    /// True if a change of policies may affect this topic.
    pub(crate) fn is_meant(&self, event: &PolicyEvent) -> bool {
        match event {
            PolicyEvent::Namespace(namespace) => self.name.namespace() == namespace,
            PolicyEvent::Topic(name) => self.name == *name || self.name.base() == *name,
            PolicyEvent::Broker => true,
        }
    }
}

impl Topic {
    /// True if a change of policies may affect this topic, or the source that it is a shadow of.
    pub fn is_meant(&self, event: &PolicyEvent) -> bool {
        let is_of_source = |name| {
            let state = self.state.borrow();
            let following = state.stored.log.following.as_ref();
            following.is_some_and(|following| following.is_of(name))
        };
        self.cx.is_meant(event) || matches!(event, PolicyEvent::Topic(name) if is_of_source(name))
    }
}

impl Topic {
    /// Looks at one thing.
    pub async fn maintain_part(&self, what: Maintenance) {
        if self.state.borrow().stored.closing {
            return;
        }
        match what {
            Maintenance::Ledgers => self.on_tick(),
            Maintenance::Messages => {
                if let Err(error) = Expiring(self).by_policies().await {
                    tracing::warn!(topic = %self.cx.name, %error, "cannot expire messages");
                }
            }
            Maintenance::Quotas => Quotas(self).enforce().await,
            Maintenance::Subscriptions => Expiring(self).subscriptions_by_policies().await,
            Maintenance::Compaction => Compacting(self).compact_if_due(),
            Maintenance::Topics => {}
        }
    }

    /// A policy that may be about this topic changed.
    pub fn on_policies_changed(&self) {
        let catalog = &self.cx.shard.shared.catalog;
        let version = catalog.policy_version();
        let policies = catalog.effective_policies(&self.cx.name);
        let is_followed = Shadows::of(catalog).are_there(&self.cx.name);
        self.state.borrow_mut().follow_policies(&self.cx, is_followed);
        self.state.borrow_mut().set_policies(&self.cx, policies, version);
        self.state.borrow_mut().stored.follow_deduplication(&self.cx);
        self.state.borrow_mut().stored.follow_replication(&self.cx);
        self.replicate_subscriptions();
    }

    /// Makes sure that the policies are those of now: the news of a change may still be on its way.
    pub(crate) fn catch_up_policies(&self) {
        let version = self.cx.shard.shared.catalog.policy_version();
        if self.state.borrow().stored.policy_version != version {
            self.on_policies_changed();
        }
    }
}
