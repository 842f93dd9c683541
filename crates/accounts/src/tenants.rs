//! Limits for all topics of a tenant together on this broker: publish rate and number of subscriptions. Shared by the
//! shards.
//!
//! A topic takes from this rate in addition to its own, and its sends wait in the same way.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use pharos_catalog::policy::PublishRateLimit;
use pharos_runtime::{Buckets, Nanos};
use pharos_types::TopicName;

/// Limits of one tenant; 0 means unlimited.
#[derive(Clone, Copy, Debug, Default)]
pub struct TenantLimits {
    /// Publish rate of all persistent topics of the tenant together.
    pub publish_rate: PublishRateLimit,
    /// Durable subscriptions of its topics that are loaded. As many more as there are shards may come in at one moment.
    pub subscriptions: u32,
}

/// The tenants that have topics loaded.
#[derive(Debug)]
pub struct Tenants {
    limits: TenantLimits,
    tenants: Mutex<HashMap<Box<str>, Weak<TenantShare>>>,
}

/// Usage of one tenant and its remaining allowance.
#[derive(Debug)]
pub struct TenantShare {
    limits: TenantLimits,
    buckets: Mutex<Buckets>,
    subscriptions: AtomicU32,
}

/// One counted subscription of a tenant; the count drops with this value.
#[derive(Debug)]
pub struct SubscriptionSeat(Arc<TenantShare>);

impl Tenants {
    /// Nothing is had yet.
    #[must_use]
    pub fn new(limits: TenantLimits) -> Self {
        Self {
            limits,
            tenants: Mutex::default(),
        }
    }

    /// Share of the topic's tenant; `None` if the tenant has no limits. System topics have no share.
    pub fn of(&self, topic: &TopicName) -> Option<Arc<TenantShare>> {
        let is_unlimited = self.limits.publish_rate.is_off() && self.limits.subscriptions == 0;
        if is_unlimited || topic.is_system() {
            return None;
        }
        let tenant = topic.namespace().tenant();
        let mut tenants = lock(&self.tenants);
        if let Some(share) = tenants.get(tenant).and_then(Weak::upgrade) {
            return Some(share);
        }
        // Each that comes looks once at all: there are as many as tenants with topics loaded.
        tenants.retain(|_, share| share.strong_count() > 0);
        let share = Arc::new(TenantShare {
            limits: self.limits,
            buckets: Mutex::default(),
            subscriptions: AtomicU32::new(0),
        });
        tenants.insert(tenant.into(), Arc::downgrade(&share));
        Some(share)
    }
}

impl TenantShare {
    /// True if the tenant's publish rate is limited.
    pub fn has_rate(&self) -> bool {
        !self.limits.publish_rate.is_off()
    }

    /// Seconds until something may go through.
    pub fn wait(&self, now: Nanos) -> f64 {
        lock(&self.buckets).wait(self.limits.publish_rate.rate(), now)
    }

    /// Takes messages and bytes from the publish rate.
    pub fn take(&self, messages: u64, bytes: u64) {
        lock(&self.buckets).take(messages, bytes);
    }

    /// Checks that the tenant may have another subscription; returns the reason otherwise.
    pub fn check_subscription(&self) -> Result<(), String> {
        let (limit, present) = (
            self.limits.subscriptions,
            self.subscriptions.load(Ordering::Relaxed),
        );
        if limit == 0 || present < limit {
            return Ok(());
        }
        Err(format!(
            "the tenant has {present} subscriptions on this broker, {limit} is the limit (limits.max_subscriptions_per_tenant)"
        ))
    }

    /// Counts a subscription, also one beyond the limit: it was made before, or by another broker.
    pub fn enter(self: &Arc<Self>) -> SubscriptionSeat {
        self.subscriptions.fetch_add(1, Ordering::Relaxed);
        SubscriptionSeat(Arc::clone(self))
    }
}

impl Drop for SubscriptionSeat {
    fn drop(&mut self) {
        self.0.subscriptions.fetch_sub(1, Ordering::Relaxed);
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    // Neither the table nor the numbers are ever left half changed.
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_of_a_tenant_share_what_is_left_and_others_have_their_own() {
        let rates = Tenants::new(TenantLimits {
            publish_rate: PublishRateLimit {
                messages: 10,
                bytes: 1000,
            },
            subscriptions: 0,
        });
        let of = |name: &str| rates.of(&name.parse().unwrap()).unwrap();
        let (first, second) = (of("persistent://a/n/t"), of("persistent://a/m/u"));
        let other = of("persistent://b/n/t");
        let now = Nanos(1_000_000_000);
        assert_eq!(first.wait(now), 0.0);
        first.take(10, 10);
        assert!(second.wait(now) > 0.0);
        assert_eq!(other.wait(now), 0.0);
        let later = Nanos(now.0 + 500_000_000);
        assert_eq!(second.wait(later), 0.0);
        second.take(1, 5000);
        assert!(first.wait(later) > 0.0, "bytes count as well");
        drop((first, second));
        let _ = of("persistent://c/n/t");
        assert!(
            !lock(&rates.tenants).contains_key("a"),
            "who has no topic is forgotten"
        );
    }

    #[test]
    fn without_a_limit_nothing_is_shared() {
        let rates = Tenants::new(TenantLimits::default());
        assert!(rates.of(&"persistent://a/n/t".parse().unwrap()).is_none());
    }

    #[test]
    fn subscriptions_of_all_topics_of_a_tenant_count_as_long_as_they_live() {
        let tenants = Tenants::new(TenantLimits {
            publish_rate: PublishRateLimit::default(),
            subscriptions: 2,
        });
        let of = |name: &str| tenants.of(&name.parse().unwrap()).unwrap();
        let (first, second) = (of("persistent://a/n/t"), of("non-persistent://a/m/u"));
        assert!(!first.has_rate());
        let seat = first.enter();
        assert!(second.check_subscription().is_ok());
        let other = second.enter();
        let refused = first.check_subscription().unwrap_err();
        assert!(
            refused.contains("limits.max_subscriptions_per_tenant"),
            "{refused}"
        );
        assert!(of("persistent://b/n/t").check_subscription().is_ok());
        drop((other, seat));
        assert!(first.check_subscription().is_ok());
    }
}
