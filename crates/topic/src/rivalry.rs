//! Two live consumers of one name on a broadcast subscription: what is done about them. Which of them may have the place,
//! [`rivalry`](pharos_feed::rivalry) decides.

use std::sync::Arc;
use std::time::Duration;

use pharos_accounts::tally::BroadcastCounts;
use pharos_feed::rivalry::{ASKED_AFTER, Rivalry, Verdict, since};
use pharos_requests::error::SubscribeError;
use pharos_runtime::clock;
use pharos_types::SubscriptionName;

use super::consumers::Consumer;
use super::subscribe::Step;
use super::subscription::BroadcastBody;
use super::{SubscribeRequest, TopicContext};

/// A subscription warns of rivals no more often.
const WARN_INTERVAL: Duration = Duration::from_secs(10);

impl BroadcastBody {
    /// Next step for a client that requests a position held by another client; `None` if it may take it over now.
    pub(super) fn keep_from_rival(
        &mut self,
        cx: &TopicContext,
        request: &SubscribeRequest,
        name: &Arc<str>,
        holder: &Consumer,
    ) -> Option<Result<Step, SubscribeError>> {
        let member = self.members.get(name)?;
        let verdict = member.rivalry.as_ref()?.judge(request.connection, clock::now());
        if !holder.leaving.is_empty() {
            return None; // It is on its way out already.
        }
        let address = &holder.info.address;
        let (Verdict::AskHolder(left) | Verdict::Waits(left)) = verdict else {
            return None;
        };
        let refusal = SubscribeError::Busy(format!(
            "a live consumer at {address} has the name {name}, which this one had before; \
             two of one name take it from each other, so it is kept for {:.1} s more",
            left.as_secs_f64()
        ));
        if matches!(verdict, Verdict::AskHolder(_)) {
            return Some(Ok(Step::AskHolder(holder.connection, refusal)));
        }
        let once = BroadcastCounts {
            takeovers_refused: 1,
            ..BroadcastCounts::default()
        };
        self.count(cx, name, once);
        let addresses = (address, &request.info.address);
        self.warn_of_rivals(cx, &request.subscription, name, addresses, left);
        Some(Err(refusal))
    }

    /// A consumer is about to be closed because another one of its name came.
    pub(super) fn note_takeover(
        &mut self,
        cx: &TopicContext,
        request: &SubscribeRequest,
        name: &Arc<str>,
        holder: &Consumer,
    ) {
        if !holder.leaving.is_empty() {
            return; // Another call did that.
        }
        let (from, to, now) = (&holder.info.address, &request.info.address, clock::now());
        tracing::debug!(topic = %cx.name, subscription = %request.subscription, consumer = %name,
            %from, %to, "broadcast consumer's place is taken over");
        let Some(member) = self.members.get_mut(name) else {
            return;
        };
        let rivalry = member
            .rivalry
            .get_or_insert_with(|| Box::new(Rivalry::first(now)));
        rivalry.on_takeover(holder.connection, now);
        let (streak, hold) = (rivalry.streak, rivalry.hold());
        let once = BroadcastCounts {
            takeovers: 1,
            ..BroadcastCounts::default()
        };
        self.count(cx, name, once);
        if streak >= ASKED_AFTER {
            self.warn_of_rivals(cx, &request.subscription, name, (to, from), hold);
        }
    }

    /// Forgets take-overs that were not followed by another.
    pub(super) fn forget_rivalries(&mut self) {
        let now = clock::now();
        for member in self.members.values_mut() {
            member.rivalry.take_if(|rivalry| rivalry.is_over(now));
        }
    }

    fn warn_of_rivals(
        &mut self,
        cx: &TopicContext,
        subscription: &SubscriptionName,
        name: &Arc<str>,
        (holder, rival): (&Arc<str>, &Arc<str>),
        left: Duration,
    ) {
        let now = clock::now();
        if self.warned_at.is_some_and(|at| since(now, at) < WARN_INTERVAL) {
            return;
        }
        self.warned_at = Some(now);
        let counts = self.members.get(name).and_then(|member| member.counts.as_deref());
        tracing::warn!(topic = %cx.name, subscription = %subscription, consumer = %name,
            %holder, %rival, takeovers = counts.map(|counts| counts.takeovers),
            kept_seconds = left.as_secs_f64(),
            "two live consumers of one name take its place from each other; each needs a name of its own");
    }
}
