//! Consumers of a broadcast subscription: each name has a cursor of its own, where it was left or a new one.

use std::sync::Arc;

use pharos_managed_ledger::cursor::AckState;
use pharos_types::SubscriptionName;
use tokio::sync::oneshot;

use super::absence::Presence;
use super::request::{Attach, SubscribeRequest, SubscriptionType};
use super::subscribe::{Step, lend};
use super::subscription::{Body, BroadcastBody, BroadcastMember, Cursor, CursorPlace};
use super::{Attached, Stored, TopicContext};
use crate::error::SubscribeError;
use crate::ids::ConsumerKey;

impl Attached {
    /// Attaches a consumer of a broadcast subscription, with the cursor of its name.
    pub(super) fn attach_broadcast(
        &mut self,
        cx: &TopicContext,
        stored: &mut Stored,
        request: &SubscribeRequest,
        turn: ConsumerKey,
    ) -> Result<Step, SubscribeError> {
        let key = cx.consumer_key();
        let missing = || SubscribeError::Busy("consumer is being handed over".to_owned());
        let name: Arc<str> = request
            .consumer_name
            .clone()
            .unwrap_or_else(|| format!("pharos-{}", key.0))
            .into();
        let subscription = self.subscriptions.get_mut(&request.subscription);
        let subscription = subscription.ok_or_else(missing)?;
        let number = subscription.number;
        let Body::Broadcast(body) = &mut subscription.body else {
            return Err(missing());
        };
        if let Some(number) = number {
            body.ensure_member(cx, stored, request, &name, number);
        }
        let old = body.holder(&name);
        let holder = old.and_then(|old| self.consumers.get(&old));
        if let Some(holder) = holder
            && let Some(step) = body.keep_from_rival(cx, request, &name, holder)
        {
            return step;
        }
        body.note_turn(&name, turn)?;
        if let Some(moved) = body.place_moved(&name) {
            return Ok(Step::Wait(vec![moved]));
        }
        if let Some(holder) = holder {
            body.note_takeover(cx, request, &name, holder);
        }
        if let Some(old) = old {
            // The same name again: the older connection's consumer is closed, and its place comes over.
            let leaving = self.close_and_wait(cx, old);
            return Ok(Step::Wait(leaving.into_iter().collect()));
        }
        let member = body.members.get_mut(&name).ok_or_else(missing)?;
        let (connection, consumer_id) = (request.connection, request.consumer_id);
        let lease = lend(&mut member.cursor, key, connection, consumer_id, request.durable);
        let lease = lease.ok_or_else(missing)?;
        body.note_presence(cx, stored, &name);
        self.links.hand_over(cx, &stored.log, request.connection.shard);
        self.enlist(request, key, name, SubscriptionType::Broadcast);
        Ok(Step::done(cx, &stored.log, key, Attach::Listen(lease), None))
    }

    /// Gives up the place of a broadcast name, if no consumer has it.
    pub(super) fn forget_place(
        &mut self,
        cx: &TopicContext,
        stored: &mut Stored,
        subscription: &SubscriptionName,
        name: &str,
    ) {
        let Some(body) = self.broadcast(subscription) else {
            return;
        };
        let is_lent = |member: &BroadcastMember| member.cursor.handed_over().is_some();
        if body.members.get(name).is_some_and(is_lent) {
            return;
        }
        let gone = body.members.remove(name);
        if let Some(slot) = gone.and_then(|member| member.cursor.slot) {
            stored.change_cursors(cx, |cursors| cursors.remove(slot));
        }
    }
}

impl BroadcastBody {
    /// Notes that a request is the newest for the place of a name, if there is one; refuses it when it is not.
    fn note_turn(&mut self, name: &Arc<str>, turn: ConsumerKey) -> Result<(), SubscribeError> {
        let Some(member) = self.members.get_mut(name) else {
            return Ok(());
        };
        if member.newest > turn.0 {
            let text = format!("a newer consumer took the name {name} meanwhile");
            return Err(SubscribeError::Busy(text));
        }
        member.newest = turn.0;
        Ok(())
    }

    /// Who holds the place of a name.
    pub(super) fn holder(&self, name: &str) -> Option<ConsumerKey> {
        Some(self.members.get(name)?.cursor.handed_over()?.key)
    }

    /// A place for the name of a request, where it was left, or a new one. `number`: of the subscription in the cursor log.
    fn ensure_member(
        &mut self,
        cx: &TopicContext,
        stored: &mut Stored,
        request: &SubscribeRequest,
        name: &Arc<str>,
        number: u32,
    ) {
        if let Some(known) = self.members.get(name) {
            if known.presence.is_given_up() {
                self.take_back(cx, stored, request, name);
            }
            return;
        }
        let named = request.consumer_name.is_some();
        let acks = AckState::new(stored.log.start_of(request.start));
        let slot = match named {
            true => stored.new_slot(cx, Some(name), number, acks.clone()),
            false => stored.cursors.add_passing(acks.clone()),
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
        self.members.insert(name.clone(), member);
    }

    /// When the place of a name is being moved: what resolves, by being dropped, when that is done.
    fn place_moved(&mut self, name: &Arc<str>) -> Option<oneshot::Receiver<()>> {
        let waiting = self.moving.get_mut(name)?;
        let (sender, receiver) = oneshot::channel();
        waiting.push(sender);
        Some(receiver)
    }
}
