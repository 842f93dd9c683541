//! Attaching a consumer: the checks, in Pulsar's order, and how it will get its messages.

use std::sync::Arc;

use pharos_feed::Activity;
use pharos_feed::ids::{ConnectionId, ConsumerKey, TopicId};
use pharos_requests::error::{SubscribeError, TopicError, chain};
use pharos_types::{Ordinal, SubscriptionName};
use tokio::sync::oneshot;

use super::compacted::CompactedReads;
use super::consumers::Consumer;
use super::kind::{Attaches as _, Joined, Joining};
use super::limits::Vacancy;
use super::subscription::{Body, Subscription};
use super::{
    Attach, Attached, StartAt, Stored, SubscribeRequest, Subscribed, SubscriptionType, Topic, TopicContext,
    TopicLog,
};

/// Bytes that may be on their way to one consumer of a dispatched subscription and not yet in its socket.
pub(super) const WINDOW_BYTES: u64 = 4 << 20;

/// Result of an attempt.
pub(super) enum Step {
    Done(Box<Subscribed>),
    /// A consumer must leave first.
    Wait(Vec<oneshot::Receiver<()>>),
    /// A consumer holds it: ask whether it still answers.
    AskHolder(ConnectionId, SubscribeError),
    /// A position must be looked up in the log first.
    Rewind(u64),
}

impl Step {
    /// The consumer is attached.
    pub(super) fn done(
        cx: &TopicContext,
        log: &TopicLog,
        (key, feed): (ConsumerKey, TopicId),
        attach: Attach,
        active: Option<bool>,
    ) -> Self {
        Self::Done(Box::new(Subscribed {
            key,
            attach,
            active,
            seed: log.seed(cx, feed),
        }))
    }
}

impl Topic {
    /// Attaches a consumer; resolves when a new durable subscription is on disk.
    pub async fn subscribe(&self, mut request: SubscribeRequest) -> Result<Subscribed, SubscribeError> {
        self.catch_up_policies();
        self.with_attached(|attached, _, stored| attached.subscribes.check(&stored.policies, &request))?;
        if request.read_compacted {
            let start = CompactedReads(self).start(request.start).await;
            request.start = start.map_err(|error| SubscribeError::Storage(chain(&error)))?;
        }
        let mut asked = 0;
        let turn = self.cx.consumer_key();
        loop {
            self.catch_up_policies();
            let (step, had_place) = self.with_attached(|attached, cx, stored| {
                let had_place = attached.has_place(&request);
                let mut subscribing = Subscribing {
                    attached,
                    cx,
                    stored,
                    request: &request,
                };
                (subscribing.attempt(turn), had_place)
            });
            match step? {
                Step::Done(done) => {
                    let is_marked = request.is_replicated
                        && self.with_attached(|attached, cx, stored| {
                            attached.set_replicated(cx, stored, &request.subscription, true)
                        });
                    if is_marked || self.state.borrow().attached.is_creating(&request.subscription) {
                        if let Err(reason) = self.commit_cursors().await {
                            self.give_back(&request, *done, had_place);
                            return Err(SubscribeError::Storage(reason));
                        }
                        self.state.borrow_mut().attached.created(&request.subscription);
                    }
                    if request.is_replicated {
                        self.replicate_subscriptions();
                    }
                    self.with_attached(|attached, cx, _| attached.came_in(cx, done.key));
                    return Ok(*done);
                }
                Step::Wait(leaving) => {
                    for leaving in leaving {
                        // Resolved by being dropped: the consumer is gone.
                        let _ = leaving.await;
                    }
                }
                Step::AskHolder(holder, refusal) => {
                    asked += 1;
                    if asked > 3 || holder == request.connection || self.cx.holder_answers(holder).await {
                        return Err(refusal);
                    }
                    tokio::task::yield_now().await;
                }
                Step::Rewind(time_ms) => {
                    let to = self
                        .reads()
                        .find_by_time(time_ms)
                        .await
                        .map_err(|e| SubscribeError::Storage(e.to_string()))?;
                    request.rewind_to_ms = None;
                    let position = self.state.borrow().stored.log.ledger.position_of(to);
                    match position {
                        Some(position) => request.start = StartAt::At(position),
                        None => request.start = StartAt::Latest,
                    }
                    self.with_attached(|attached, cx, stored| {
                        attached.rewind_resting(cx, stored, &request.subscription, to);
                    });
                }
            }
        }
    }

    /// Checks that a consumer would be admitted now, as far as possible without asking others. Returns true if the
    /// topic is idle. Changes nothing: called before anything is created for the consumer.
    pub fn check_consumer(&self, request: &SubscribeRequest) -> Result<bool, SubscribeError> {
        self.catch_up_policies();
        let state = self.state.borrow();
        if state.stored.closing {
            return Err(TopicError::Closing(self.cx.name.to_string()).into());
        }
        Vacancy(&state.attached).check_consumer(&self.cx, &state.stored, request)?;
        match state.attached.subscriptions.get(&request.subscription) {
            Some(subscription) => _ = admit(subscription, request, true)?,
            None if request.durable && !request.may_create => {
                return Err(SubscribeError::NotFound(request.subscription.to_string()));
            }
            None => {}
        }
        Ok(state.is_idle())
    }

    /// Checks that a subscription named by a producer exists, or could be created now. Changes nothing.
    pub fn check_subscription(
        &self,
        name: &SubscriptionName,
        may_create: bool,
    ) -> Result<(), SubscribeError> {
        let state = self.state.borrow();
        if state.attached.subscriptions.contains_key(name) {
            return Ok(());
        }
        if !may_create {
            let text = format!("subscription {name} may not be created automatically");
            return Err(SubscribeError::NotAllowed(text));
        }
        Vacancy(&state.attached)
            .check_subscription(&self.cx, &state.stored)
            .map_err(SubscribeError::NotAllowed)
    }

    /// The subscription of an attached consumer.
    pub fn subscription_of(&self, key: ConsumerKey) -> Option<SubscriptionName> {
        let state = self.state.borrow();
        state
            .attached
            .consumers
            .get(&key)
            .map(|consumer| consumer.subscription.clone())
    }

    /// Takes back what a request was given that could not be made durable: the consumer, the place of its name if that was
    /// new, and the subscription if that was.
    fn give_back(&self, request: &SubscribeRequest, done: Subscribed, had_place: bool) {
        let handoff = match done.attach {
            Attach::Listen(handoff) => Some(handoff),
            Attach::Dormant | Attach::Dispatched => None,
        };
        self.on_detach(done.key, handoff);
        self.with_attached(|attached, cx, stored| {
            attached.forget_unfinished(cx, stored, &request.subscription);
        });
        if let Some(name) = request.consumer_name.as_deref().filter(|_| !had_place) {
            self.with_attached(|attached, cx, stored| {
                attached.forget_place(cx, stored, &request.subscription, name);
            });
        }
    }
}

impl Attached {
    /// True if a subscription, or the cursor of its consumer, is not known to be durable.
    fn is_creating(&self, name: &SubscriptionName) -> bool {
        self.subscriptions
            .get(name)
            .is_some_and(|s| s.creating || s.is_broadcast())
    }

    /// A subscription is durable.
    pub(super) fn created(&mut self, name: &SubscriptionName) {
        if let Some(subscription) = self.subscriptions.get_mut(name) {
            subscription.creating = false;
        }
    }

    /// Moves the resting cursor of a subscription that is about to be attached.
    fn rewind_resting(
        &mut self,
        cx: &TopicContext,
        stored: &mut Stored,
        name: &SubscriptionName,
        to: Ordinal,
    ) {
        let moved = self.subscriptions.get_mut(name).and_then(|subscription| {
            let Body::Stream(cursor) = &mut subscription.body else {
                return None;
            };
            let slot = cursor.slot;
            let acks = cursor.home_mut()?;
            acks.reset(to);
            Some((slot?, acks.clone()))
        });
        if let Some((slot, acks)) = moved {
            stored.change_cursors(cx, |cursors| cursors.moved(slot, &acks));
        }
    }

    /// True if the name of a broadcast consumer has a cursor.
    fn has_place(&mut self, request: &SubscribeRequest) -> bool {
        let Some(name) = request.consumer_name.as_deref() else {
            return false;
        };
        let body = self.broadcast(&request.subscription);
        body.is_some_and(|body| body.members.contains_key(name))
    }
}

/// Attempt to attach a consumer.
struct Subscribing<'a> {
    attached: &'a mut Attached,
    cx: &'a TopicContext,
    stored: &'a mut Stored,
    request: &'a SubscribeRequest,
}

impl Subscribing<'_> {
    /// `turn`: rises with every request, not with its further tries.
    fn attempt(&mut self, turn: ConsumerKey) -> Result<Step, SubscribeError> {
        let (cx, request) = (self.cx, self.request);
        if self.stored.closing {
            return Err(TopicError::Closing(cx.name.to_string()).into());
        }
        if let Some(time_ms) = request.rewind_to_ms {
            return Ok(Step::Rewind(time_ms));
        }
        Vacancy(self.attached).check_consumer(cx, self.stored, request)?;
        let exists = self.attached.subscriptions.contains_key(&request.subscription);
        if !exists {
            self.attached.create_subscription(cx, self.stored, request)?;
        }
        let subscription = self
            .attached
            .subscriptions
            .get_mut(&request.subscription)
            .ok_or_else(|| SubscribeError::NotFound(request.subscription.to_string()))?;
        let kind = admit(subscription, request, exists)?;
        let step = self.attach(kind, turn);
        if cx.is_non_persistent() {
            return step;
        }
        if step.is_err() {
            self.undo(exists);
        }
        step
    }

    /// No consumer was attached after all: the subscription is as it was before, or not there if it was not.
    fn undo(&mut self, existed: bool) {
        let name = &self.request.subscription;
        let is_empty = |subscription: &Subscription| subscription.consumers.is_empty();
        if !self
            .attached
            .subscriptions
            .get(name)
            .is_some_and(|subscription| is_empty(subscription))
        {
            return;
        }
        if existed {
            self.attached.rest(self.cx, self.stored, name);
        } else {
            self.attached.forget_subscription(self.cx, self.stored, name);
        }
    }

    /// Attaches a consumer that the checks have let in, as a consumer of this kind.
    fn attach(&mut self, kind: SubscriptionType, turn: ConsumerKey) -> Result<Step, SubscribeError> {
        let (attached, stored) = (&mut *self.attached, &mut *self.stored);
        let (cx, request) = (self.cx, self.request);
        let key = cx.consumer_key();
        let is_stored = !cx.is_non_persistent();
        let name = name_of(request, is_stored && kind == SubscriptionType::Broadcast, key);
        let subscription = attached.subscriptions.get_mut(&request.subscription);
        let subscription =
            subscription.ok_or_else(|| SubscribeError::NotFound(request.subscription.to_string()))?;
        let first = subscription.consumers.first();
        let rate = Arc::clone(&subscription.rate);
        let mut joining = Joining {
            cx,
            request,
            kind,
            key,
            name: &name,
            turn,
            number: subscription.number,
            rate: &rate,
            first: first
                .and_then(|key| attached.consumers.get(key))
                .map(|consumer| consumer.connection),
            is_chosen: kind == SubscriptionType::Failover
                && subscription.is_chosen(&name, request.priority_level),
            consumers: &attached.consumers,
            stored,
        };
        let joined = match (joining.held(), is_stored, kind) {
            (Some(held), ..) => held,
            (None, false, _) => subscription.share(joining.stored, kind).attach(&mut joining)?,
            (None, true, SubscriptionType::Shared | SubscriptionType::KeyShared) => {
                subscription.dispatch(joining.stored, kind)?;
                subscription.body.kind_mut().attach(&mut joining)?
            }
            (None, true, _) => subscription.body.kind_mut().attach(&mut joining)?,
        };
        let is_chosen = joining.is_chosen;
        let feed = cx.feed_of(request.read_compacted);
        let (attach, active) = match joined {
            Joined::Not(step) => return Ok(step),
            Joined::TakesOver(old) => {
                let leaving = attached.close_and_wait(cx, old);
                return Ok(Step::Wait(leaving.into_iter().collect()));
            }
            Joined::Listens(mut handoff) => {
                handoff.withheld = subscription.withheld();
                attached
                    .links
                    .hand_over(cx, &stored.log, request.connection.shard, feed);
                (Attach::Listen(handoff), is_chosen.then_some(true))
            }
            Joined::Waits => (Attach::Dormant, (!is_chosen).then_some(false)),
            Joined::Dispatched if kind == SubscriptionType::Failover => (Attach::Dispatched, Some(is_chosen)),
            Joined::Dispatched => (Attach::Dispatched, None),
        };
        self.enlist((key, feed), name, kind, active);
        if !is_stored {
            self.attached.choose_active(cx, &request.subscription);
        }
        Ok(Step::done(cx, &self.stored.log, (key, feed), attach, active))
    }

    fn enlist(
        &mut self,
        (key, feed): (ConsumerKey, TopicId),
        name: Arc<str>,
        kind: SubscriptionType,
        active: Option<bool>,
    ) {
        let request = self.request;
        let attached = &mut *self.attached;
        if let Some(subscription) = attached.subscriptions.get_mut(&request.subscription) {
            subscription.consumers.insert(key);
            subscription.kind = Some(kind);
            subscription.idle_since_ms = 0;
            if kind == SubscriptionType::Failover {
                let candidate = (name.clone(), request.priority_level);
                subscription.enter_failover(self.cx, &attached.consumers, key, candidate, active);
            }
        }
        attached.subscriptions.note_body(&request.subscription);
        attached.consumer_hosts.add(&request.info.address);
        attached.consumers.insert(
            key,
            Consumer {
                subscription: request.subscription.clone(),
                name,
                connection: request.connection,
                consumer_id: request.consumer_id,
                feed,
                info: request.info.clone(),
                flow_at_ms: 0,
                is_joining: true,
                is_leaving: false,
                leaving: Vec::new(),
                activity: Activity::default(),
            },
        );
    }
}

/// Name of a consumer: the client's; a generated one if it needs one; otherwise empty.
fn name_of(request: &SubscribeRequest, needs_one: bool, key: ConsumerKey) -> Arc<str> {
    match &request.consumer_name {
        Some(name) => name.clone().into(),
        None if needs_one => format!("pharos-{}", key.0).into(),
        None => Arc::default(),
    }
}

/// Checks that a consumer of this type may attach to the subscription in its present state, and returns the type to
/// attach it as.
fn admit(
    subscription: &Subscription,
    request: &SubscribeRequest,
    existed: bool,
) -> Result<SubscriptionType, SubscribeError> {
    if subscription.fenced {
        return Err(SubscribeError::Busy(
            "subscription is fenced by a running reset".to_owned(),
        ));
    }
    if existed && subscription.is_durable() != request.durable {
        let (is, wants) = if subscription.is_durable() {
            ("durable", "non-durable")
        } else {
            ("non-durable", "durable")
        };
        return Err(SubscribeError::NotAllowed(format!(
            "subscription {} is {is}; a {wants} consumer cannot share its name",
            subscription.name
        )));
    }
    if subscription.is_broadcast() {
        return Ok(SubscriptionType::Broadcast);
    }
    if request.kind == SubscriptionType::Broadcast {
        let kind = subscription
            .kind
            .map_or("an ordinary one".to_owned(), |kind| format!("{kind:?}"));
        return Err(SubscribeError::Busy(format!(
            "subscription {} exists and is {kind}, not broadcast",
            subscription.name
        )));
    }
    match subscription.kind {
        Some(kind) if kind != request.kind => Err(SubscribeError::Busy(format!(
            "subscription {} has consumers of type {kind:?}, not {:?}",
            subscription.name, request.kind
        ))),
        _ => Ok(request.kind),
    }
}
