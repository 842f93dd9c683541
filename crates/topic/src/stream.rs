//! Cursor that is handed over whole: of Exclusive, of the active consumer of Failover, of a reader.

use std::sync::Arc;

use pharos_feed::ids::{ConnectionId, ConsumerKey, SlotId, TopicId};
use pharos_feed::{Activity, CursorHandoff, DispatchRateLimiter};
use pharos_managed_ledger::cursor::AckState;
use pharos_mesh::FeedMessage;
use pharos_requests::error::SubscribeError;
use pharos_types::Ordinal;

use super::durable_cursors::DurableCursors;
use super::figures::{FiguresView, SubscriptionFigures};
use super::kind::{Acked, Acks, Attaches, Joined, Joining, Kind};
use super::subscription::{Cursor, CursorPlace, HandedOver};
use super::{SubscriptionType, TopicContext};

impl Cursor {
    /// Hands it over, when it is at home.
    pub(super) fn hand_over(
        &mut self,
        key: ConsumerKey,
        connection: ConnectionId,
        consumer_id: u64,
        feed: TopicId,
        durable: bool,
        rate: &Arc<DispatchRateLimiter>,
    ) -> Option<CursorHandoff> {
        let acks = self.home()?.clone();
        self.place = CursorPlace::HandedOver(HandedOver {
            key,
            connection,
            consumer_id,
            feed,
            recalled: false,
            skipped_to: Ordinal(0),
        });
        Some(CursorHandoff {
            slot: self.slot,
            read_from: acks.acked_to(),
            acks,
            durable,
            rate: Arc::clone(rate),
            withheld: None,
            activity: Activity::default(),
        })
    }

    /// Acknowledgements known at home; `None` for a cursor that is not durable and with its stream consumer.
    pub(super) fn known<'a>(&'a self, known: &'a DurableCursors) -> Option<&'a AckState> {
        match &self.place {
            CursorPlace::Home(acks) => Some(acks),
            CursorPlace::HandedOver(_) => Some(&known.get(self.slot?)?.acks),
        }
    }

    /// Number of entries before `to` that are not acknowledged, as far as is known at home, and that its stream consumer was not told
    /// to skip.
    pub(super) fn unskipped_before(&self, known: &DurableCursors, to: Ordinal) -> u64 {
        let skipped_to = self.handed_over().map_or(Ordinal(0), |to| to.skipped_to).min(to);
        let left = |acks: &AckState| acks.backlog(to) - acks.backlog(skipped_to);
        self.known(known).map_or(0, left)
    }
}

impl Kind for Cursor {
    fn ack(&mut self, cx: &TopicContext, acks: &Acks<'_>) -> Acked {
        match &mut self.place {
            CursorPlace::Home(home) => {
                for (ordinal, ack) in acks.exact() {
                    apply(home, ordinal, &ack.remaining, acks.cumulative);
                }
                Acked {
                    messages: 0,
                    moved: self.slot.map(|slot| (slot, home.clone())),
                }
            }
            CursorPlace::HandedOver(handed_over) => {
                // It was handed to another consumer meanwhile: the acknowledgement still counts.
                let (connection, key) = (handed_over.connection, handed_over.key);
                let message = FeedMessage::Ack {
                    connection,
                    key,
                    acks: acks.acks.to_vec(),
                    cumulative: acks.cumulative,
                };
                cx.send_feed(handed_over.feed, connection.shard, message);
                Acked::default()
            }
        }
    }

    fn seek(&mut self, _only: Option<&Arc<str>>, acks: &AckState) -> Vec<SlotId> {
        let slot = self.slot;
        let Some(home) = self.home_mut() else {
            return Vec::new();
        };
        home.clone_from(acks);
        slot.into_iter().collect()
    }

    fn skip_to(&mut self, cx: &TopicContext, known: &DurableCursors, to: Ordinal) -> Vec<(SlotId, AckState)> {
        match &mut self.place {
            CursorPlace::Home(acks) => {
                let is_moved = acks.raise_to(to);
                let slot = self.slot.filter(|_| is_moved);
                slot.map(|slot| (slot, acks.clone())).into_iter().collect()
            }
            CursorPlace::HandedOver(handed_over) => {
                // The stream consumer may be further than what is known of it, never behind.
                let known = self.slot.and_then(|slot| known.get(slot));
                if known.is_none_or(|slot| slot.acked_to() < to) {
                    let (connection, key) = (handed_over.connection, handed_over.key);
                    let message = FeedMessage::SkipTo { connection, key, to };
                    cx.send_feed(handed_over.feed, connection.shard, message);
                    handed_over.skipped_to = handed_over.skipped_to.max(to);
                }
                Vec::new()
            }
        }
    }

    fn unacked_before(&self, known: &DurableCursors, to: Ordinal) -> (u64, Option<(HandedOver, u64)>) {
        let count = self.known(known).map_or(0, |acks| acks.backlog(to));
        match self.handed_over() {
            Some(handed_over) if count > 0 || self.slot.is_none() => (0, Some((handed_over, count))),
            _ => (count, None),
        }
    }

    fn acked_to(&self, known: &DurableCursors, _name: &Arc<str>) -> Option<Ordinal> {
        self.known(known).map(AckState::acked_to)
    }

    fn lowest(&self, known: &DurableCursors, end: Ordinal) -> (AckState, Option<HandedOver>) {
        match (&self.place, self.slot) {
            (CursorPlace::Home(acks), _) => (acks.clone(), None),
            (CursorPlace::HandedOver(_), None) => (AckState::new(end), None),
            (CursorPlace::HandedOver(handed_over), Some(_)) => {
                let acks = self.known(known).cloned();
                (acks.unwrap_or_else(|| AckState::new(end)), Some(*handed_over))
            }
        }
    }

    fn has_backlog(&self, end: Ordinal) -> bool {
        self.home().is_none_or(|acks| acks.backlog(end) > 0)
    }

    fn slots(&self) -> Vec<SlotId> {
        self.slot.into_iter().collect()
    }

    fn passing_floor(&self, first: Ordinal, _end: Ordinal) -> Ordinal {
        self.home().map_or(first, AckState::acked_to)
    }

    fn describe(&self, view: &FiguresView<'_>, figures: &mut SubscriptionFigures) {
        figures.active = self.handed_over().and_then(|handed_over| {
            let consumer = view.consumers.get(&handed_over.key)?;
            Some((handed_over.key, consumer.name.clone()))
        });
        figures.cursors.push(view.cursor(self, None));
    }
}

impl Attaches for Cursor {
    fn attach(&mut self, joining: &mut Joining<'_>) -> Result<Joined, SubscribeError> {
        let is_failover = joining.kind == SubscriptionType::Failover;
        let at_once = joining.cx.options().failover_delay.is_zero();
        // Not the one, or one to come: more may join, or the one before it must stand down first.
        if is_failover && !(at_once && joining.is_chosen) {
            return Ok(Joined::Waits);
        }
        let (request, durable) = (joining.request, joining.number.is_some());
        let handoff = self.hand_over(
            joining.key,
            request.connection,
            request.consumer_id,
            joining.cx.feed_of(request.read_compacted),
            durable,
            joining.rate,
        );
        match handoff {
            Some(handoff) => Ok(Joined::Listens(handoff)),
            None if is_failover => Ok(Joined::Waits),
            None => Err(SubscribeError::Busy(
                "subscription is being handed over".to_owned(),
            )),
        }
    }
}

/// Applies one acknowledgement to a cursor's state.
fn apply(acks: &mut AckState, ordinal: Ordinal, remaining: &[i64], cumulative: bool) {
    match (cumulative, remaining) {
        (false, []) => acks.ack(ordinal),
        (false, words) => acks.ack_batch(ordinal, words),
        (true, []) => acks.ack_cumulative(ordinal),
        (true, words) => acks.ack_cumulative_batch(ordinal, words),
    };
}
