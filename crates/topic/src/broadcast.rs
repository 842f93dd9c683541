//! Consumers of a broadcast subscription: each name has a cursor of its own, where it was left or a new one.

use std::sync::Arc;

use pharos_feed::ids::{ConsumerKey, SlotId};
use pharos_managed_ledger::cursor::AckState;
use pharos_requests::error::SubscribeError;
use pharos_types::{Ordinal, SubscriptionName};
use tokio::sync::oneshot;

use super::absence::Presence;
use super::durable_cursors::DurableCursors;
use super::figures::{FiguresView, MemberFigures, SubscriptionFigures};
use super::kind::{Acked, Acks, Attaches, Joined, Joining, Kind};
use super::subscribe::Step;
use super::subscription::{BroadcastBody, BroadcastMember, Cursor, CursorPlace, HandedOver};
use super::{Attached, Stored, SubscribeRequest, TopicContext};

impl Attached {
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

    /// Returns the consumer that holds the cursor of a name.
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

    /// Returns, if the cursor of a name is being moved, a receiver that resolves, by being dropped, when that is
    /// done.
    fn place_moved(&mut self, name: &Arc<str>) -> Option<oneshot::Receiver<()>> {
        let waiting = self.moving.get_mut(name)?;
        let (sender, receiver) = oneshot::channel();
        waiting.push(sender);
        Some(receiver)
    }
}

impl Kind for BroadcastBody {
    fn ack(&mut self, _cx: &TopicContext, _acks: &Acks<'_>) -> Acked {
        Acked::default() // Each consumer holds its own cursor: what comes home came too late.
    }

    fn seek(&mut self, only: Option<&Arc<str>>, acks: &AckState) -> Vec<SlotId> {
        let mut moved = Vec::new();
        for (name, member) in &mut self.members {
            if only.is_some_and(|only| only != name) || member.cursor.home().is_none() {
                continue;
            }
            moved.extend(member.cursor.seek(None, acks));
            // A place that was given up stays so; there its consumer goes on should it come back.
            if let Presence::GivenUp { acked_to, .. } = &mut member.presence {
                *acked_to = acks.acked_to();
            }
        }
        moved
    }

    fn skip_to(&mut self, cx: &TopicContext, known: &DurableCursors, to: Ordinal) -> Vec<(SlotId, AckState)> {
        let members = self.members.values_mut();
        members
            .flat_map(|member| member.cursor.skip_to(cx, known, to))
            .collect()
    }

    fn unacked_before(&self, known: &DurableCursors, to: Ordinal) -> (u64, Option<(HandedOver, u64)>) {
        let kept = self
            .members
            .values()
            .filter(|member| !member.presence.is_given_up());
        let counts = kept.map(|member| member.cursor.unskipped_before(known, to));
        (counts.sum(), None)
    }

    fn acked_to(&self, known: &DurableCursors, name: &Arc<str>) -> Option<Ordinal> {
        self.members.get(name)?.cursor.acked_to(known, name)
    }

    fn lowest(&self, known: &DurableCursors, end: Ordinal) -> (AckState, Option<HandedOver>) {
        let members = self.members.values();
        let cursors = members.map(|member| member.cursor.lowest(known, end));
        let lowest = cursors.min_by_key(|(acks, _)| acks.acked_to());
        lowest.unwrap_or_else(|| (AckState::new(end), None))
    }

    fn has_backlog(&self, end: Ordinal) -> bool {
        let mut members = self.members.values();
        members.any(|member| member.cursor.has_backlog(end))
    }

    fn slots(&self) -> Vec<SlotId> {
        let members = self.members.values();
        members.filter_map(|member| member.cursor.slot).collect()
    }

    fn passing_floor(&self, _first: Ordinal, end: Ordinal) -> Ordinal {
        end
    }

    fn describe(&self, view: &FiguresView<'_>, figures: &mut SubscriptionFigures) {
        let each = self.members.iter();
        figures.cursors = each
            .map(|(name, member)| view.cursor(&member.cursor, Some(MemberFigures::of(name, member))))
            .collect();
        figures.broadcast = self.counts;
    }
}

impl Attaches for BroadcastBody {
    fn attach(&mut self, joining: &mut Joining<'_>) -> Result<Joined, SubscribeError> {
        let missing = || SubscribeError::Busy("consumer is being handed over".to_owned());
        let (cx, request, name) = (joining.cx, joining.request, joining.name);
        if let Some(number) = joining.number {
            self.ensure_member(cx, joining.stored, request, name, number);
        }
        let old = self.holder(name);
        let holder = old.and_then(|old| joining.consumers.get(&old));
        if let Some(holder) = holder
            && let Some(step) = self.keep_from_rival(cx, request, name, holder)
        {
            return step.map(Joined::Not);
        }
        self.note_turn(name, joining.turn)?;
        if let Some(moved) = self.place_moved(name) {
            return Ok(Joined::Not(Step::Wait(vec![moved])));
        }
        if let Some(holder) = holder {
            self.note_takeover(cx, request, name, holder);
        }
        if let Some(old) = old {
            // The same name again: the older connection's consumer is closed, and its place comes over.
            return Ok(Joined::TakesOver(old));
        }
        let member = self.members.get_mut(name).ok_or_else(missing)?;
        let (connection, consumer_id) = (request.connection, request.consumer_id);
        let handoff = member.cursor.hand_over(
            joining.key,
            connection,
            consumer_id,
            cx.id,
            request.durable,
            joining.rate,
        );
        let handoff = handoff.ok_or_else(missing)?;
        self.note_presence(cx, joining.stored, name);
        Ok(Joined::Listens(handoff))
    }
}
