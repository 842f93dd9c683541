//! Limits on producers, consumers and subscriptions, and the subscription types that are served at all.
//!
//! Checked when a client connects; a lowered limit disconnects no client.

use std::collections::HashMap;

use pharos_catalog::policy::{EffectivePolicies, SubscribeRateLimit};
use pharos_requests::error::{ProducerError, SubscribeError};
use pharos_runtime::{clock, millis};
use pharos_types::steps::step;

use super::attached_producers::Others;
use super::hosts::host;
use super::replication::is_replicator;
use super::subscription::Body;
use super::{Attached, ProducerRequest, Stored, SubscribeRequest, SubscriptionType, TopicContext};

/// Consumers whose subscribes are remembered whatever their number; with more, those whose period is over are forgotten.
const CONSUMERS_REMEMBERED: usize = 1_024;

/// Subscribes per consumer, told apart by address, name and id: when its period began, and how often since.
#[derive(Default)]
pub(super) struct Subscribes {
    seen: HashMap<(String, Option<String>, u64), (u64, u32)>,
    /// Number left when expired ones were last forgotten.
    kept: usize,
}

impl Subscribes {
    /// Checks the subscribe rate of a consumer.
    pub(super) fn check(
        &mut self,
        policies: &EffectivePolicies,
        request: &SubscribeRequest,
    ) -> Result<(), SubscribeError> {
        let limit = policies.subscribe_rate;
        if limit.count == 0 || self.may(request, limit, clock::wall_ms()) {
            return Ok(());
        }
        let text = "Subscribe limited by subscribe rate limit per consumer.";
        Err(SubscribeError::NotAllowed(text.to_owned()))
    }

    fn may(&mut self, request: &SubscribeRequest, limit: SubscribeRateLimit, now_ms: u64) -> bool {
        let period_ms = millis(limit.period);
        let is_over = |began_ms: u64| now_ms.saturating_sub(began_ms) >= period_ms;
        // Twice as many as were left, so that each is looked at a few times only.
        if self.seen.len() >= CONSUMERS_REMEMBERED.max(2 * self.kept) {
            self.seen.retain(|_, (began_ms, _)| {
                step();
                !is_over(*began_ms)
            });
            self.kept = self.seen.len();
        }
        let who = (
            host(&request.info.address).to_owned(),
            request.consumer_name.clone(),
            request.consumer_id,
        );
        let (began_ms, count) = self.seen.entry(who).or_insert((now_ms, 0));
        if is_over(*began_ms) {
            (*began_ms, *count) = (now_ms, 0);
        }
        *count = count.saturating_add(1);
        *count <= limit.count
    }
}

/// Checks that another producer is allowed beside `others`.
pub(super) fn check_limits(
    cx: &TopicContext,
    limits: &EffectivePolicies,
    request: &ProducerRequest,
    others: Others,
) -> Result<(), ProducerError> {
    // Those of other clusters have no limit.
    if request.name.as_deref().is_some_and(is_replicator) {
        return Ok(());
    }
    if is_taken(limits.max_producers, others.limited) {
        let text = format!("Topic '{}' reached max producers limit", cx.name);
        return Err(ProducerError::Busy(text));
    }
    if is_taken(limits.max_same_address_producers, others.of_host) {
        let text = format!("Topic '{}' reached max same address producers limit", cx.name);
        return Err(ProducerError::Busy(text));
    }
    Ok(())
}

/// The room that a topic has for consumers and subscriptions.
pub(super) struct Vacancy<'a>(pub(super) &'a Attached);

impl Vacancy<'_> {
    /// Checks the limits for another consumer, and for its subscription if that does not exist yet.
    pub(super) fn check_consumer(
        &self,
        cx: &TopicContext,
        stored: &Stored,
        request: &SubscribeRequest,
    ) -> Result<(), SubscribeError> {
        let busy = |text: &str| Err(SubscribeError::Busy(text.to_owned()));
        if !stored.policies.subscription_types.allow(request.kind.as_str()) {
            return Err(SubscribeError::NotAllowed(format!(
                "Topic[{}] doesn't support {} sub type!",
                cx.name,
                request.kind.as_str()
            )));
        }
        let limits = &stored.policies;
        // A broadcast consumer that comes back takes the place that its name has.
        let name = request.consumer_name.as_deref();
        let own = name.and_then(
            |name| match &self.0.subscriptions.get(&request.subscription)?.body {
                Body::Broadcast(body) => body.holder(name),
                Body::Stream(_) | Body::Dispatched(_) => None,
            },
        );
        let own = usize::from(own.is_some());
        if is_taken(limits.max_consumers, self.0.consumers.len().saturating_sub(own)) {
            return busy("Topic reached max consumers limit");
        }
        let of_host = self.0.consumer_hosts.of(&request.info.address);
        if is_taken(limits.max_same_address_consumers, of_host) {
            return busy("Topic reached max same address consumers limit");
        }
        let Some(subscription) = self.0.subscriptions.get(&request.subscription) else {
            return if request.durable {
                self.check_subscription(cx, stored)
                    .map_err(SubscribeError::NotAllowed)
            } else {
                Ok(())
            };
        };
        // The second consumer of an exclusive subscription is refused for that, after the first was asked.
        let is_alone = request.kind == SubscriptionType::Exclusive;
        if !is_alone
            && is_taken(
                limits.max_consumers_per_subscription,
                subscription.consumers.len().saturating_sub(own),
            )
        {
            return busy("Subscription reached max consumers limit");
        }
        Ok(())
    }

    /// Checks the limits for another durable subscription; the error is the reason.
    pub(super) fn check_subscription(&self, cx: &TopicContext, stored: &Stored) -> Result<(), String> {
        if let Some(tenant) = &self.0.tenant {
            tenant.check_subscription()?;
        }
        if is_taken(stored.policies.max_subscriptions, self.0.subscriptions.durable()) {
            return Err(format!(
                "Exceed the maximum number of subscriptions of the topic: {}",
                cx.name
            ));
        }
        Ok(())
    }
}

/// True if `count` reaches the limit; 0 is no limit.
fn is_taken(limit: u32, count: usize) -> bool {
    limit > 0 && count >= limit as usize
}
