//! Operations of a subscription of any kind: attach consumers, acknowledge, seek, skip and expire, report statistics.
//!
//! ```text
//!   Cursor          Exclusive, the active consumer of Failover, readers: one cursor, at home or handed over
//!   BroadcastBody   one cursor for each consumer name
//!   DispatchedBody  Shared, Key_Shared: the cursor stays with the dispatcher
//! ```
//! [`Body::kind`] selects the implementation for all rare operations; acknowledgements are frequent and use a
//! `match`. On a non-persistent topic the body is idle and [`Sharing`](super::non_persistent::Sharing) attaches
//! consumers instead: there is nothing to acknowledge, and cursor requests go to the body.

use std::collections::HashMap;
use std::sync::Arc;

use pharos_dispatch as dispatch;
use pharos_feed::ids::{ConnectionId, ConsumerKey, SlotId};
use pharos_feed::{CursorHandoff, DispatchRateLimiter, OwnedAck};
use pharos_managed_ledger::cursor::AckState;
use pharos_managed_ledger::{LedgerTable, Lookup};
use pharos_requests::error::SubscribeError;
use pharos_types::Ordinal;

use super::consumers::Consumer;
use super::durable_cursors::DurableCursors;
use super::figures::{ConsumerFigures, FiguresView, SubscriptionFigures};
use super::stats::ConsumerNumbers;
use super::subscribe::{Step, WINDOW_BYTES};
use super::subscription::{Body, HandedOver};
use super::{Stored, SubscribeRequest, SubscriptionType, TopicContext};

/// Acknowledgements of one consumer that came home.
pub(super) struct Acks<'a> {
    pub(super) acks: &'a [OwnedAck],
    pub(super) cumulative: bool,
    pub(super) table: LedgerTable,
    /// Nothing from here on can have been delivered.
    pub(super) end: Ordinal,
}

impl Acks<'_> {
    /// Acknowledgements whose entry exists, with its ordinal.
    pub(super) fn exact(&self) -> impl Iterator<Item = (Ordinal, &OwnedAck)> {
        self.acks
            .iter()
            .filter_map(|ack| match self.table.ordinal_of(ack.position, self.end) {
                Lookup::Exact(ordinal) => Some((ordinal, ack)),
                _ => None,
            })
    }
}

/// Result of acknowledgements.
#[derive(Default)]
pub(super) struct Acked {
    /// Messages that a dispatcher counts as acknowledged by them.
    pub(super) messages: u64,
    /// A cursor that is to be queued for the log.
    pub(super) moved: Option<(SlotId, AckState)>,
}

/// A consumer that the checks have let in.
pub(super) struct Joining<'a> {
    pub(super) cx: &'a TopicContext,
    pub(super) stored: &'a mut Stored,
    pub(super) request: &'a SubscribeRequest,
    pub(super) kind: SubscriptionType,
    pub(super) key: ConsumerKey,
    /// Empty when the client gave none; of broadcast a name for this connection then.
    pub(super) name: &'a Arc<str>,
    /// Rises with every request, not with its further tries.
    pub(super) turn: ConsumerKey,
    /// The number of the subscription in the cursor log.
    pub(super) number: Option<u32>,
    /// Dispatch rate limiter of the subscription.
    pub(super) rate: &'a Arc<DispatchRateLimiter>,
    /// The connection of the consumer that came first, if there is one.
    pub(super) first: Option<ConnectionId>,
    /// True if a Failover consumer is to be the active one.
    pub(super) is_chosen: bool,
    pub(super) consumers: &'a HashMap<ConsumerKey, Consumer>,
}

impl Joining<'_> {
    /// As a dispatcher must know it.
    pub(super) fn spec(&self) -> dispatch::ConsumerSpec {
        dispatch::ConsumerSpec {
            name: self.name.clone(),
            priority_level: self.request.priority_level,
            key_shared: self.request.key_shared.clone(),
            window_bytes: WINDOW_BYTES,
        }
    }

    /// Refused, or asked about, because an Exclusive subscription has its consumer.
    pub(super) fn held(&self) -> Option<Joined> {
        let holder = self.first.filter(|_| self.kind == SubscriptionType::Exclusive)?;
        let refusal = SubscribeError::Busy("Exclusive consumer is already connected".to_owned());
        Some(Joined::Not(Step::AskHolder(holder, refusal)))
    }
}

/// Result of attaching a consumer.
pub(super) enum Joined {
    /// Active, with this cursor.
    Listens(CursorHandoff),
    /// Waits until it becomes active.
    Waits,
    /// The topic's home chooses its messages.
    Dispatched,
    /// This consumer must leave first.
    TakesOver(ConsumerKey),
    /// Something else comes first.
    Not(Step),
}

/// Attaches consumers to the messages of a subscription.
pub(super) trait Attaches {
    /// Attaches a consumer, and changes nothing but what that means for cursors and dispatchers.
    fn attach(&mut self, joining: &mut Joining<'_>) -> Result<Joined, SubscribeError>;

    /// A consumer left.
    fn detach(&mut self, _key: ConsumerKey) {}
}

/// A kind of subscription, with its cursors.
pub(super) trait Kind: Attaches {
    /// Acknowledgements that came home.
    fn ack(&mut self, cx: &TopicContext, acks: &Acks<'_>) -> Acked;

    /// Puts the cursors that are at home where they are told; `only`: that of one broadcast name. Says whose places these are.
    fn seek(&mut self, only: Option<&Arc<str>>, acks: &AckState) -> Vec<SlotId>;

    /// Marks everything before `to` as acknowledged: at home now, which is returned for the log, elsewhere by a message.
    fn skip_to(&mut self, cx: &TopicContext, known: &DurableCursors, to: Ordinal) -> Vec<(SlotId, AckState)>;

    /// Number of unacknowledged entries before `to`, and the one stream consumer whose answer is missing, with what
    /// is known of it.
    fn unacked_before(&self, known: &DurableCursors, to: Ordinal) -> (u64, Option<(HandedOver, u64)>);

    /// End of the acknowledged entries, as far as known at home; for broadcast, of this name.
    fn acked_to(&self, known: &DurableCursors, name: &Arc<str>) -> Option<Ordinal>;

    /// Acknowledgements of the lowest cursor as far as known, and the stream consumer that has newer ones. `end`:
    /// assumed position of a cursor of which nothing is known.
    fn lowest(&self, known: &DurableCursors, end: Ordinal) -> (AckState, Option<HandedOver>);

    /// True if any entry before `end` is unacknowledged, as far as known.
    fn has_backlog(&self, end: Ordinal) -> bool;

    /// True if a durable cursor is at a position, as far as known.
    fn stands_at(&self, known: &DurableCursors, place: Ordinal) -> bool {
        let mut slots = self.slots().into_iter().filter_map(|slot| known.get(slot));
        slots.any(|slot| slot.acked_to() == place)
    }

    /// No cursor that is not durable stands before this.
    fn passing_floor(&self, first: Ordinal, end: Ordinal) -> Ordinal;

    /// The places of its cursors.
    fn slots(&self) -> Vec<SlotId>;

    /// Drops trimmed entries from the cursors. Only cursors that are not durable can still be before the first entry.
    fn forget_before(&mut self, _first: Ordinal) {}

    /// Sets the options and limits of dispatchers.
    fn set_options(&mut self, _options: dispatch::Options, _limits: dispatch::Limits) {}

    /// Numbers of one consumer, where its topic's home knows them all.
    fn numbers(&self, _key: ConsumerKey, _end: Ordinal) -> Option<ConsumerNumbers> {
        None
    }

    /// Adds what is particular to the kind to a subscription's figures.
    fn describe(&self, view: &FiguresView<'_>, figures: &mut SubscriptionFigures);

    /// Adds the statistics of one consumer, if the topic's home has all of them.
    fn describe_consumer(&self, _figures: &mut ConsumerFigures) {}
}

impl Body {
    /// Operations of this kind of subscription.
    pub(super) fn kind(&self) -> &dyn Kind {
        match self {
            Self::Stream(cursor) => cursor,
            Self::Broadcast(body) => &**body,
            Self::Dispatched(body) => &**body,
        }
    }

    /// Mutable operations of this kind of subscription.
    pub(super) fn kind_mut(&mut self) -> &mut dyn Kind {
        match self {
            Self::Stream(cursor) => cursor,
            Self::Broadcast(body) => &mut **body,
            Self::Dispatched(body) => &mut **body,
        }
    }

    /// Acknowledgements that came home.
    pub(super) fn ack(&mut self, cx: &TopicContext, acks: &Acks<'_>) -> Acked {
        match self {
            Self::Stream(cursor) => cursor.ack(cx, acks),
            Self::Broadcast(body) => body.ack(cx, acks),
            Self::Dispatched(body) => body.ack(cx, acks),
        }
    }
}
