//! Moving cursors on request: seek, reset, skip, expire; and deleting subscriptions.

use std::sync::Arc;

use pharos_catalog::properties::{asks_for_broadcast, is_reserved_of_subscription};
use pharos_feed::ids::ConsumerKey;
use pharos_managed_ledger::cursor::AckState;
use pharos_requests::error::{CursorError, SubscribeError, chain};
use pharos_types::{Ordinal, SubscriptionName};

use super::carried::Dealing;
use super::compacted::CompactedReads;
use super::create::NewSubscription;
use super::cursor_store;
use super::limits::Vacancy;
use super::reads::LogReads;
use super::subscription::Body;
use super::{Attached, StartAt, Stored, Topic, TopicContext};

/// Target position of a seek.
#[derive(Clone, Debug)]
pub enum SeekTo {
    /// To a place; that entry is the next to be delivered. `remaining`: of a batch, the indexes still to deliver.
    Place {
        /// The place.
        at: StartAt,
        /// Empty for the whole entry.
        remaining: Vec<i64>,
    },
    /// To the first entry published at or after this time, in milliseconds since 1970.
    Time(u64),
}

impl Attached {
    /// Puts resting cursors where they are told.
    fn move_resting(
        &mut self,
        cx: &TopicContext,
        stored: &mut Stored,
        name: &SubscriptionName,
        only: Option<Arc<str>>,
        acks: &AckState,
    ) {
        let Some(subscription) = self.subscriptions.get_mut(name) else {
            return;
        };
        let moved = subscription.body.kind_mut().seek(only.as_ref(), acks);
        for slot in moved {
            stored.change_cursors(cx, |cursors| cursors.moved(slot, acks));
        }
    }

    /// Marks everything before `to` as acknowledged, without disturbing the consumers. What moved is queued, not committed.
    fn skip_to(
        &mut self,
        cx: &TopicContext,
        stored: &mut Stored,
        name: &SubscriptionName,
        to: Ordinal,
    ) -> Result<(), CursorError> {
        let subscription = self.subscriptions.get_mut(name).ok_or_else(|| missing(name))?;
        let moved = subscription.body.kind_mut().skip_to(cx, &stored.cursors, to);
        for (slot, acks) in moved {
            stored.change_cursors(cx, |cursors| cursors.moved(slot, &acks));
        }
        self.run_dispatcher(cx, stored, name);
        stored.trim_soon(cx);
        Ok(())
    }

    /// Takes a subscription without consumers out, with its places. One record says so, so a crash leaves all of it or
    /// nothing; what it held back stays until that is durable.
    pub(super) fn forget_subscription(
        &mut self,
        cx: &TopicContext,
        stored: &mut Stored,
        name: &SubscriptionName,
    ) {
        let Some(subscription) = self.subscriptions.remove(name) else {
            return;
        };
        let slots = subscription.body.kind().slots();
        let Some(number) = subscription.number else {
            for slot in slots {
                stored.change_cursors(cx, |cursors| cursors.remove(slot));
            }
            return stored.trim_soon(cx);
        };
        stored.change_cursors(cx, |cursors| cursors.remove_all(slots, number));
    }

    /// Takes a subscription back that could not be made durable, unless another client came to it: it is that client's then.
    pub(super) fn forget_unfinished(
        &mut self,
        cx: &TopicContext,
        stored: &mut Stored,
        name: &SubscriptionName,
    ) {
        let is_unfinished = |subscription: &super::subscription::Subscription| {
            subscription.creating && subscription.consumers.is_empty()
        };
        if self
            .subscriptions
            .get(name)
            .is_some_and(|subscription| is_unfinished(subscription))
        {
            self.forget_subscription(cx, stored, name);
        }
    }
}

impl LogReads<'_> {
    /// The entry that is delivered next after a move.
    pub(crate) async fn place_of(&self, to: &SeekTo) -> Result<Ordinal, CursorError> {
        match to {
            SeekTo::Place { at, .. } => Ok(self.state.borrow().stored.log.start_of(*at)),
            SeekTo::Time(time_ms) => self.find_by_time(*time_ms).await,
        }
    }

    /// The first entry published at or after a time.
    pub(crate) async fn find_by_time(&self, time_ms: u64) -> Result<Ordinal, CursorError> {
        let codec = self.cx.codec;
        let is_due = move |payload: &bytes::Bytes| codec.facts(payload).publish_time_ms >= time_ms;
        let find = self.state.borrow().stored.log.ledger.find_first(is_due);
        find.await.map_err(|error| CursorError::Storage(chain(&error)))
    }
}

/// A topic whose cursors are moved on request.
pub struct Moving<'a>(pub &'a Topic);

impl Moving<'_> {
    /// Marks everything before `to` as acknowledged, without disturbing the consumers.
    pub(crate) fn skip_to(&self, name: &SubscriptionName, to: Ordinal) -> Result<(), CursorError> {
        self.0
            .with_attached(|attached, cx, stored| attached.skip_to(cx, stored, name, to))?;
        self.0.start_commit();
        Ok(())
    }

    /// Moves the cursor that a consumer reads by: of broadcast its own, whatever the others do; else the subscription's.
    pub async fn seek_consumer(&self, key: ConsumerKey, to: SeekTo) -> Result<(), CursorError> {
        let (name, member, is_broadcast, is_compacted) = {
            let state = self.0.state.borrow();
            let consumer = state
                .attached
                .consumers
                .get(&key)
                .ok_or(CursorError::NoConsumer)?;
            let subscription = state.attached.subscriptions.get(&consumer.subscription);
            let is_broadcast = subscription.is_some_and(|subscription| subscription.is_broadcast());
            let is_compacted = consumer.feed.is_compacted();
            (
                consumer.subscription.clone(),
                consumer.name.clone(),
                is_broadcast,
                is_compacted,
            )
        };
        let to = match to {
            SeekTo::Place { at, remaining } if is_compacted => {
                let at = CompactedReads(self.0).start(at).await;
                let at = at.map_err(|error| CursorError::Storage(chain(&error)))?;
                SeekTo::Place { at, remaining }
            }
            other => other,
        };
        match is_broadcast {
            true => self.move_member(&name, key, member, to).await,
            false => self.reset(&name, to).await,
        }
    }

    /// Moves the place of one broadcast consumer, which is closed first and comes back by itself. Who comes for the place
    /// meanwhile waits.
    async fn move_member(
        &self,
        name: &SubscriptionName,
        key: ConsumerKey,
        member: Arc<str>,
        to: SeekTo,
    ) -> Result<(), CursorError> {
        {
            let mut state = self.0.state.borrow_mut();
            let subscription = state
                .attached
                .subscriptions
                .get_mut(name)
                .ok_or_else(|| missing(name))?;
            let Body::Broadcast(body) = &mut subscription.body else {
                return Err(missing(name));
            };
            if subscription.fenced || body.moving.contains_key(&member) {
                return Err(CursorError::Busy(
                    "another reset of the consumer is running".to_owned(),
                ));
            }
            body.moving.insert(member.clone(), Vec::new());
        }
        let outcome = self.reset_fenced(name, to, Some((key, member.clone()))).await;
        let mut state = self.0.state.borrow_mut();
        if let Some(subscription) = state.attached.subscriptions.get_mut(name)
            && let Body::Broadcast(body) = &mut subscription.body
        {
            body.moving.remove(&member);
        }
        outcome
    }

    /// Moves all cursors of a subscription. Its consumers are closed first and come back by themselves.
    pub(crate) async fn reset(&self, name: &SubscriptionName, to: SeekTo) -> Result<(), CursorError> {
        {
            let mut state = self.0.state.borrow_mut();
            let subscription = state
                .attached
                .subscriptions
                .get_mut(name)
                .ok_or_else(|| missing(name))?;
            if std::mem::replace(&mut subscription.fenced, true) {
                return Err(CursorError::Busy(
                    "another reset of the subscription is running".to_owned(),
                ));
            }
        }
        let outcome = self.reset_fenced(name, to, None).await;
        if let Some(subscription) = self.0.state.borrow_mut().attached.subscriptions.get_mut(name) {
            subscription.fenced = false;
        }
        outcome
    }

    async fn reset_fenced(
        &self,
        name: &SubscriptionName,
        to: SeekTo,
        only: Option<(ConsumerKey, Arc<str>)>,
    ) -> Result<(), CursorError> {
        let place = self.0.reads().place_of(&to).await?;
        let remaining = match to {
            SeekTo::Place { remaining, .. } => remaining,
            SeekTo::Time(_) => Vec::new(),
        };
        let leaving = {
            let mut state = self.0.state.borrow_mut();
            match &only {
                Some((key, _)) => state
                    .attached
                    .close_and_wait(&self.0.cx, *key)
                    .into_iter()
                    .collect(),
                None => state.attached.close_consumers(&self.0.cx, name),
            }
        };
        for leaving in leaving {
            // Resolved by being dropped: the consumer is gone.
            let _ = leaving.await;
        }
        let mut acks = AckState::new(place);
        if !remaining.is_empty() {
            acks.ack_batch(place, &remaining);
        }
        self.0.with_attached(|attached, cx, stored| {
            attached.move_resting(cx, stored, name, only.map(|(_, member)| member), &acks);
        });
        self.0.commit_cursors().await.map_err(CursorError::Storage)
    }
}

impl Topic {
    /// Deletes the subscription of a consumer.
    pub async fn unsubscribe(&self, key: ConsumerKey, force: bool) -> Result<(), CursorError> {
        let name = {
            let state = self.state.borrow();
            let consumer = state
                .attached
                .consumers
                .get(&key)
                .ok_or(CursorError::NoConsumer)?;
            let others = state
                .attached
                .subscriptions
                .get(&consumer.subscription)
                .map_or(0, |s| s.consumers.len());
            if state.stored.holder.is_some() {
                return Err(CursorError::NotAllowed(format!(
                    "the consumers of {} are at several brokers; delete it with the admin API",
                    consumer.subscription
                )));
            }
            let elsewhere = state.stored.connected_elsewhere(&consumer.subscription);
            if (others > 1 || elsewhere != Some(0)) && !force {
                return Err(CursorError::Busy(
                    "Unconnected or shared consumer attempting to unsubscribe".to_owned(),
                ));
            }
            consumer.subscription.clone()
        };
        self.delete_subscription(&name, true).await
    }

    /// Deletes a subscription; with `force` its consumers are closed first.
    pub(crate) async fn delete_subscription(
        &self,
        name: &SubscriptionName,
        force: bool,
    ) -> Result<(), CursorError> {
        let is_carried = {
            let state = self.state.borrow();
            if state.stored.holder.is_some() {
                let text = format!("subscription {name} is another topic's; delete it there");
                return Err(CursorError::NotAllowed(text));
            }
            let is_carried = state.attached.carried(name).is_some();
            if is_carried && !force && state.stored.connected_elsewhere(name) != Some(0) {
                return Err(CursorError::Busy(
                    "Subscription has consumers that are connected to other brokers, or may have".to_owned(),
                ));
            }
            is_carried
        };
        Dealing(self).end_subscription(name, force).await?;
        if is_carried {
            Dealing(self).end_carried(name).await;
        }
        Ok(())
    }

    /// Creates a durable subscription at a place.
    pub(crate) async fn create_subscription_at(
        &self,
        name: SubscriptionName,
        start: StartAt,
        broadcast: bool,
        properties: &[(String, String)],
        is_replicated: bool,
    ) -> Result<(), CursorError> {
        self.catch_up_policies();
        {
            let mut guard = self.state.borrow_mut();
            let state = &mut *guard;
            if state.attached.subscriptions.contains_key(&name) {
                return Err(CursorError::Exists(name.to_string()));
            }
            Vacancy(&state.attached)
                .check_subscription(&self.cx, &state.stored)
                .map_err(CursorError::NotAllowed)?;
            let new = NewSubscription {
                name: &name,
                is_durable: true,
                is_broadcast: broadcast,
                start: state.stored.log.start_of(start),
                properties,
                is_replicated,
            };
            state
                .attached
                .insert_subscription(&self.cx, &mut state.stored, new);
        }
        if let Err(reason) = self.commit_cursors().await {
            self.with_attached(|attached, cx, stored| attached.forget_unfinished(cx, stored, &name));
            return Err(CursorError::Storage(reason));
        }
        self.state.borrow_mut().attached.created(&name);
        self.replicate_subscriptions();
        Ok(())
    }

    /// Makes sure that a durable subscription exists, created at the first entry.
    pub async fn ensure_subscription(
        &self,
        name: SubscriptionName,
        allowed: bool,
    ) -> Result<(), SubscribeError> {
        let known = self
            .state
            .borrow()
            .attached
            .subscriptions
            .get(&name)
            .map(|known| known.creating);
        if let Some(creating) = known {
            if creating {
                // Another call makes it: what is answered is durable all the same.
                self.commit_cursors().await.map_err(SubscribeError::Storage)?;
            }
            return Ok(());
        }
        self.check_subscription(&name, allowed)?;
        match self
            .create_subscription_at(name, StartAt::Earliest, false, &[], false)
            .await
        {
            Ok(()) | Err(CursorError::Exists(_)) => Ok(()),
            Err(CursorError::NotAllowed(reason)) => Err(SubscribeError::NotAllowed(reason)),
            Err(error) => Err(SubscribeError::Storage(error.to_string())),
        }
    }

    /// Replaces a subscription's properties, but for the broker's own.
    pub(crate) async fn set_subscription_properties(
        &self,
        name: &SubscriptionName,
        mut properties: Vec<(String, String)>,
    ) -> Result<(), CursorError> {
        let callers = |property: &str| !is_reserved_of_subscription(property);
        properties.retain(|(property, _)| callers(property));
        self.change_subscription_properties(name, properties, callers)
            .await
    }

    /// Sets a property of a subscription that is the broker's own.
    pub(super) async fn set_own_property(
        &self,
        name: &SubscriptionName,
        property: (String, String),
    ) -> Result<(), CursorError> {
        let key = property.0.clone();
        self.change_subscription_properties(name, vec![property], |property| property == key)
            .await
    }

    /// Replaces those properties of a subscription that `is_replaced` names.
    async fn change_subscription_properties(
        &self,
        name: &SubscriptionName,
        mut properties: Vec<(String, String)>,
        is_replaced: impl Fn(&str) -> bool,
    ) -> Result<(), CursorError> {
        {
            let mut guard = self.state.borrow_mut();
            let state = &mut *guard;
            let subscription = state
                .attached
                .subscriptions
                .get_mut(name)
                .ok_or_else(|| missing(name))?;
            let kept = subscription.properties.iter();
            properties.extend(kept.filter(|(property, _)| !is_replaced(property)).cloned());
            let asks = properties
                .iter()
                .any(|(property, value)| asks_for_broadcast(property, value));
            if asks && !subscription.is_broadcast() {
                return Err(CursorError::NotAllowed(format!(
                    "subscription {name} is not broadcast and does not become so by a property; delete it and make it anew"
                )));
            }
            let changed = subscription.number.map(|number| {
                let is_replicated = subscription.replicated.is_some();
                cursor_store::subscription_changed(
                    number,
                    subscription.is_broadcast(),
                    &properties,
                    is_replicated,
                )
            });
            subscription.properties = properties;
            if let Some(record) = changed {
                state
                    .stored
                    .change_cursors(&self.cx, |cursors| cursors.queue(record));
            }
        }
        self.commit_cursors().await.map_err(CursorError::Storage)
    }
}

impl Dealing<'_> {
    /// Deletes what is here of a subscription, whatever carriers have; with `force` its consumers are closed first.
    pub(super) async fn end_subscription(
        &self,
        name: &SubscriptionName,
        force: bool,
    ) -> Result<(), CursorError> {
        let leaving = {
            let mut state = self.0.state.borrow_mut();
            let subscription = state
                .attached
                .subscriptions
                .get_mut(name)
                .ok_or_else(|| missing(name))?;
            if !subscription.consumers.is_empty() && !force {
                return Err(CursorError::Busy(
                    "Subscription has active connected consumers".to_owned(),
                ));
            }
            subscription.fenced = true;
            state.attached.close_consumers(&self.0.cx, name)
        };
        for leaving in leaving {
            let _ = leaving.await;
        }
        self.0
            .with_attached(|attached, cx, stored| attached.forget_subscription(cx, stored, name));
        self.0.commit_cursors().await.map_err(CursorError::Storage)
    }
}

fn missing(name: &SubscriptionName) -> CursorError {
    CursorError::NoSubscription(name.to_string())
}
