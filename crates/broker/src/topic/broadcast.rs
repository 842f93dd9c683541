//! Consumers of a broadcast subscription: each name has a cursor of its own, where it was left or a new one.

use std::sync::Arc;

use pharos_managed_ledger::cursor::AckState;
use pharos_types::SubscriptionName;
use tokio::sync::oneshot;

use super::absence::Presence;
use super::request::{Attach, SubscribeRequest, SubscriptionType};
use super::subscribe::{Step, lend};
use super::subscription::{Body, BroadcastMember, Cursor, CursorPlace};
use super::{State, Topic};
use crate::error::SubscribeError;
use crate::ids::ConsumerKey;

impl Topic {
    /// Attaches a consumer of a broadcast subscription, with the cursor of its name.
    pub(super) fn attach_broadcast(
        &self,
        state: &mut State,
        request: &SubscribeRequest,
        turn: ConsumerKey,
    ) -> Result<Step, SubscribeError> {
        let key = self.cx.consumer_key();
        let named = request.consumer_name.is_some();
        let name: Arc<str> = request
            .consumer_name
            .clone()
            .unwrap_or_else(|| format!("pharos-{}", key.0))
            .into();
        self.ensure_member(state, request, &name, named);
        let holder = self.member_holder(state, &request.subscription, &name);
        if let Some(step) = holder.and_then(|old| self.keep_from_rival(state, request, &name, old)) {
            return step;
        }
        self.note_turn(state, request, &name, turn)?;
        if let Some(moved) = place_moved(state, &request.subscription, &name) {
            return Ok(Step::Wait(vec![moved]));
        }
        if let Some(old) = holder {
            self.note_takeover(state, request, &name, old);
            // The same name again: the older connection's consumer is closed, and its place comes over.
            let leaving = self.close_and_wait(state, old);
            return Ok(Step::Wait(leaving.into_iter().collect()));
        }
        let durable = request.durable;
        let lease = state
            .attached
            .subscriptions
            .get_mut(&request.subscription)
            .and_then(|subscription| {
                let Body::Broadcast(body) = &mut subscription.body else {
                    return None;
                };
                let member = body.members.get_mut(&name)?;
                lend(
                    &mut member.cursor,
                    key,
                    request.connection,
                    request.consumer_id,
                    durable,
                )
            });
        let Some(lease) = lease else {
            return Err(SubscribeError::Busy("consumer is being handed over".to_owned()));
        };
        state
            .attached
            .links
            .hand_over(&self.cx, &state.stored.log, request.connection.shard);
        self.note_presence(state, &request.subscription, &name);
        self.enlist(state, request, key, name, SubscriptionType::Broadcast);
        Ok(self.done(state, key, Attach::Listen(lease), None))
    }

    /// Gives up the place of a broadcast name, if no consumer has it.
    pub(super) fn forget_place(&self, subscription: &SubscriptionName, name: &str) {
        let mut state = self.state.borrow_mut();
        let subscription = state.attached.subscriptions.get_mut(subscription);
        let Some(Body::Broadcast(body)) = subscription.map(|subscription| &mut subscription.body) else {
            return;
        };
        let is_lent = |member: &BroadcastMember| member.cursor.handed_over().is_some();
        if body.members.get(name).is_some_and(is_lent) {
            return;
        }
        let gone = body.members.remove(name);
        if let Some(slot) = gone.and_then(|member| member.cursor.slot) {
            state
                .stored
                .change_cursors(&self.cx, |cursors| cursors.remove(slot));
        }
    }

    /// Notes that this request is the newest for the place of a name, if there is one; refuses it when it is not.
    fn note_turn(
        &self,
        state: &mut State,
        request: &SubscribeRequest,
        name: &Arc<str>,
        turn: ConsumerKey,
    ) -> Result<(), SubscribeError> {
        let subscription = state.attached.subscriptions.get_mut(&request.subscription);
        let Some(Body::Broadcast(body)) = subscription.map(|subscription| &mut subscription.body) else {
            return Ok(());
        };
        let Some(member) = body.members.get_mut(name) else {
            return Ok(());
        };
        if member.newest > turn.0 {
            let text = format!("a newer consumer took the name {name} meanwhile");
            return Err(SubscribeError::Busy(text));
        }
        member.newest = turn.0;
        Ok(())
    }

    /// Who holds the place of a broadcast name.
    pub(super) fn member_holder(
        &self,
        state: &State,
        subscription: &SubscriptionName,
        name: &Arc<str>,
    ) -> Option<ConsumerKey> {
        let Body::Broadcast(body) = &state.attached.subscriptions.get(subscription)?.body else {
            return None;
        };
        Some(body.members.get(name)?.cursor.handed_over()?.key)
    }

    /// A place for the name, where it was left, or a new one.
    fn ensure_member(&self, state: &mut State, request: &SubscribeRequest, name: &Arc<str>, named: bool) {
        let Some(subscription) = state.attached.subscriptions.get(&request.subscription) else {
            return;
        };
        let Some(number) = subscription.number else { return };
        let Body::Broadcast(body) = &subscription.body else {
            return;
        };
        if let Some(known) = body.members.get(name) {
            if known.presence.is_given_up() {
                self.take_back(state, request, name);
            }
            return;
        }
        let acks = AckState::new(state.stored.log.start_of(request.start));
        let slot = match named {
            true => state.stored.new_slot(&self.cx, Some(name), number, acks.clone()),
            false => state.stored.cursors.add_passing(acks.clone()),
        };
        let member = BroadcastMember {
            cursor: Cursor {
                slot: Some(slot),
                place: CursorPlace::Home(acks),
            },
            named,
            presence: Presence::Here,
            counts: None,
            rivalry: None,
            newest: 0,
        };
        if let Some(Body::Broadcast(body)) = state
            .attached
            .subscriptions
            .get_mut(&request.subscription)
            .map(|s| &mut s.body)
        {
            body.members.insert(name.clone(), member);
        }
    }
}

/// When the place of a name is being moved: what resolves, by being dropped, when that is done.
fn place_moved(
    state: &mut State,
    subscription: &SubscriptionName,
    name: &Arc<str>,
) -> Option<oneshot::Receiver<()>> {
    let subscription = state.attached.subscriptions.get_mut(subscription)?;
    let Body::Broadcast(body) = &mut subscription.body else {
        return None;
    };
    let (sender, receiver) = oneshot::channel();
    body.moving.get_mut(name)?.push(sender);
    Some(receiver)
}
