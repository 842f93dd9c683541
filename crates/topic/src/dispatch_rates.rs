//! Dispatch rate limits of a topic and its subscriptions, by policy. Messages over the limit stay in the log.
//!
//! Stream consumers ask the limiter of their subscription on the shard where they are, dispatchers ask it here.

use std::sync::Arc;

use pharos_feed::{DispatchRateLimiter, Sent};
use pharos_runtime::clock;

use super::{State, Stored};

impl Stored {
    /// A limiter for a subscription that comes into being.
    pub(super) fn subscription_rate(&self) -> Arc<DispatchRateLimiter> {
        let limiter = DispatchRateLimiter::beside(&self.rate);
        let published = self.published();
        let limit = self.policies.subscription_dispatch_rate;
        limiter.set(limit.rate(published.messages, published.bytes));
        Arc::new(limiter)
    }

    /// Returns the publish rate, per second.
    pub(super) fn published(&self) -> super::Rates {
        let total = Sent {
            messages: self.publishing.counters.messages_in,
            bytes: self.publishing.counters.bytes_in,
        };
        self.publishing.rate_in.rates(clock::wall_ms(), total)
    }
}

impl State {
    /// Limits are what the policies say now.
    pub(super) fn set_dispatch_rates(&mut self) {
        let published = self.stored.published();
        let policies = &self.stored.policies;
        let rate = |limit: pharos_catalog::policy::DispatchRateLimit| {
            limit.rate(published.messages, published.bytes)
        };
        self.stored.rate.set(rate(policies.dispatch_rate));
        for subscription in self.attached.subscriptions.values() {
            subscription.rate.set(rate(policies.subscription_dispatch_rate));
        }
    }

    /// Limits that lie above what is published follow it.
    pub(super) fn follow_publish_rate(&mut self) {
        let policies = &self.stored.policies;
        if policies.dispatch_rate.is_relative || policies.subscription_dispatch_rate.is_relative {
            self.set_dispatch_rates();
        }
    }
}
