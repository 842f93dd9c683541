//! A Shared or Key_Shared subscription as a kind: its cursor stays with the dispatcher. What is dealt stands in `dispatched`.

use std::sync::Arc;

use pharos_dispatch::{self as dispatch, Dispatcher};
use pharos_feed::ids::{ConsumerKey, SlotId};
use pharos_managed_ledger::cursor::AckState;
use pharos_requests::error::SubscribeError;
use pharos_types::Ordinal;

use super::durable_cursors::DurableCursors;
use super::figures::{ConsumerFigures, CursorFigures, FiguresView, SubscriptionFigures};
use super::kind::{Acked, Acks, Attaches, Joined, Joining, Kind};
use super::stats::ConsumerNumbers;
use super::subscription::{Body, DispatchedBody, HandedOver, Subscription};
use super::{Stored, SubscriptionType, TopicContext};

impl Kind for DispatchedBody {
    fn ack(&mut self, _cx: &TopicContext, acks: &Acks<'_>) -> Acked {
        let mut messages = 0;
        for (ordinal, ack) in acks.exact().filter(|_| !acks.cumulative) {
            let acked = match &*ack.remaining {
                [] => self.dispatcher.ack(ordinal),
                words => self.dispatcher.ack_batch(ordinal, words),
            };
            self.dirty |= acked.outcome.changed();
            // One that was to be sent again belongs to no consumer; its number of messages is not at hand.
            messages += match acked.messages {
                0 => u64::from(acked.outcome.changed()),
                count => u64::from(count),
            };
        }
        Acked {
            messages,
            moved: None,
        }
    }

    fn seek(&mut self, _only: Option<&Arc<str>>, acks: &AckState) -> Vec<SlotId> {
        let to = acks.acked_to();
        self.dispatcher.reset(to);
        if let Some(remaining) = acks.remaining_batch(to) {
            self.dispatcher.ack_batch(to, remaining);
        }
        self.slots()
    }

    fn skip_to(
        &mut self,
        _cx: &TopicContext,
        _known: &DurableCursors,
        to: Ordinal,
    ) -> Vec<(SlotId, AckState)> {
        let is_moved = self.dispatcher.ack_before(to);
        let slot = self.slot.filter(|_| is_moved);
        let moved = slot.map(|slot| (slot, self.dispatcher.acks().clone()));
        moved.into_iter().collect()
    }

    fn unacked_before(&self, _known: &DurableCursors, to: Ordinal) -> (u64, Option<(HandedOver, u64)>) {
        (self.dispatcher.acks().backlog(to), None)
    }

    fn acked_to(&self, _known: &DurableCursors, _name: &Arc<str>) -> Option<Ordinal> {
        Some(self.dispatcher.acked_to())
    }

    fn lowest(&self, _known: &DurableCursors, _end: Ordinal) -> (AckState, Option<HandedOver>) {
        (self.dispatcher.acks().clone(), None)
    }

    fn has_backlog(&self, end: Ordinal) -> bool {
        self.dispatcher.acks().backlog(end) > 0
    }

    fn slots(&self) -> Vec<SlotId> {
        self.slot.into_iter().collect()
    }

    fn stands_at(&self, _known: &DurableCursors, place: Ordinal) -> bool {
        self.slot.is_some() && self.dispatcher.acked_to() == place
    }

    fn passing_floor(&self, _first: Ordinal, _end: Ordinal) -> Ordinal {
        self.dispatcher.acked_to()
    }

    fn forget_before(&mut self, first: Ordinal) {
        self.dirty |= self.dispatcher.ack_before(first);
    }

    fn set_options(&mut self, options: dispatch::Options, limits: dispatch::Limits) {
        self.dispatcher.set_limits(limits);
        self.dispatcher.set_delay(options.delay);
    }

    fn numbers(&self, key: ConsumerKey, end: Ordinal) -> Option<ConsumerNumbers> {
        let stats = self.dispatcher.consumer_stats(dispatch::ConsumerKey(key.0));
        let stats = stats.unwrap_or_default();
        Some(ConsumerNumbers {
            unacked_messages: stats.unacked,
            is_blocked: stats.is_blocked,
            backlog: self.dispatcher.acks().backlog(end),
        })
    }

    fn describe(&self, view: &FiguresView<'_>, figures: &mut SubscriptionFigures) {
        figures.dispatch = Some(self.dispatcher.stats(view.end));
        figures.key_shared_mode = self.dispatcher.key_shared_mode();
        figures.cursors.push(CursorFigures {
            handed_over_to: None,
            acks: view.acks(self.dispatcher.acks()),
            advanced: view.advanced(self.slot),
            member: None,
        });
    }

    fn describe_consumer(&self, figures: &mut ConsumerFigures) {
        let key = dispatch::ConsumerKey(figures.key.0);
        figures.dispatch = self.dispatcher.consumer_stats(key);
        figures.hash_ranges = self.dispatcher.hash_ranges(key);
    }
}

impl Attaches for DispatchedBody {
    fn attach(&mut self, joining: &mut Joining<'_>) -> Result<Joined, SubscribeError> {
        let key = dispatch::ConsumerKey(joining.key.0);
        self.dispatcher.add_consumer(key, joining.spec())?;
        Ok(Joined::Dispatched)
    }

    fn detach(&mut self, key: ConsumerKey) {
        self.dispatcher.remove_consumer(dispatch::ConsumerKey(key.0));
    }
}

impl Subscription {
    /// Lets a dispatcher take over the cursor of a subscription that rests, for consumers of this kind.
    pub(super) fn dispatch(&mut self, stored: &Stored, kind: SubscriptionType) -> Result<(), SubscribeError> {
        let cursor = match &self.body {
            Body::Dispatched(_) => return Ok(()),
            Body::Stream(cursor) => cursor,
            Body::Broadcast(_) => {
                let text = "subscription is of a different type";
                return Err(SubscribeError::Busy(text.to_owned()));
            }
        };
        let Some(acks) = cursor.home().cloned() else {
            return Err(SubscribeError::Busy(
                "subscription is being handed over".to_owned(),
            ));
        };
        let (options, limits) = stored.dispatch_options();
        let mut dispatcher = match kind {
            SubscriptionType::KeyShared => Dispatcher::key_shared(acks, options, limits),
            _ => Dispatcher::shared(acks, options, limits),
        };
        if let Some(pending) = &self.pending_acks {
            dispatcher.withhold(&pending.withheld().1);
        }
        self.generation += 1;
        self.body = Body::Dispatched(Box::new(DispatchedBody::new(cursor.slot, dispatcher)));
        Ok(())
    }
}
