//! What arrives at a topic's home about cursors: progress of handed over ones, and what the lender's shard could not apply.

use pharos_managed_ledger::Lookup;
use pharos_managed_ledger::cursor::AckState;
use pharos_managed_ledger::cursor_log::QueueError;
use pharos_runtime::clock;
use pharos_types::Ordinal;

use super::durable_cursors::DurableCursors;
use super::subscription::{Body, CursorPlace};
use super::{Attached, Stored, TopicContext};
use crate::feed::{Moment, OwnedAck, Progress};
use crate::ids::{ConsumerKey, SlotId};
use crate::shard::FeedMessage;

impl Stored {
    /// Cursors that moved on a listening shard: they are queued for the log, and trimming may follow.
    pub(super) fn on_progress(&mut self, cx: &TopicContext, progress: Progress) {
        for (slot, acks) in progress.moved {
            self.change_cursors(cx, |cursors| cursors.moved(slot, &acks));
        }
        self.trim_soon(cx);
    }

    /// Changes the durable cursors. When their log refuses a record, what we know and what is stored have parted: the topic takes
    /// no more changes until it is loaded again.
    pub(super) fn change_cursors(
        &mut self,
        cx: &TopicContext,
        change: impl FnOnce(&mut DurableCursors) -> Result<(), QueueError>,
    ) {
        if let Err(error) = change(&mut self.cursors) {
            let reason = super::publish::chain(&error);
            self.publishing
                .fail(cx, &format!("cursor log: {reason}"), error.is_transient());
        }
    }

    /// Takes a durable place and queues its record.
    pub(super) fn new_slot(
        &mut self,
        cx: &TopicContext,
        member: Option<&str>,
        number: u32,
        acks: AckState,
    ) -> SlotId {
        let (id, queued) = self.cursors.add(member, number, acks);
        self.change_cursors(cx, |_| queued);
        id
    }
}

impl Attached {
    /// Acknowledgements of a consumer that does not hold the cursor itself. Returns whether cursors are to be committed.
    pub(super) fn on_ack(
        &mut self,
        cx: &TopicContext,
        stored: &mut Stored,
        key: ConsumerKey,
        acks: &[OwnedAck],
        cumulative: bool,
    ) -> bool {
        if cx.is_non_persistent() {
            return false; // There is nothing to acknowledge: a message was passed on or dropped.
        }
        let Some(consumer) = self.consumers.get(&key) else {
            return false;
        };
        let name = consumer.subscription.clone();
        let end = stored.log.ledger.durable_end();
        let table = stored.log.ledger.table();
        let Some(subscription) = self.subscriptions.get_mut(&name) else {
            return false;
        };
        match &mut subscription.body {
            Body::Dispatched(body) => {
                let mut messages = 0;
                for ack in acks {
                    let Lookup::Exact(ordinal) = table.ordinal_of(ack.position, end) else {
                        continue;
                    };
                    if cumulative {
                        continue;
                    }
                    let acked = match &*ack.remaining {
                        [] => body.dispatcher.ack(ordinal),
                        words => body.dispatcher.ack_batch(ordinal, words),
                    };
                    body.dirty |= acked.outcome.changed();
                    // One that was to be sent again belongs to no consumer; its number of messages is not at hand.
                    messages += match acked.messages {
                        0 => u64::from(acked.outcome.changed()),
                        count => u64::from(count),
                    };
                }
                if messages > 0 {
                    let now = Moment::at(clock::now());
                    subscription.activity.note_acked(messages, now);
                    if let Some(consumer) = self.consumers.get_mut(&key) {
                        consumer.activity.note_acked(messages, now);
                    }
                }
                self.run_dispatcher(cx, stored, &name);
                if let Some(body) = self.dispatched(&name) {
                    body.flush_soon(cx, &name);
                }
            }
            Body::Stream(cursor) => match &mut cursor.place {
                CursorPlace::Home(home) => {
                    for ack in acks {
                        let Lookup::Exact(ordinal) = table.ordinal_of(ack.position, end) else {
                            continue;
                        };
                        apply(home, ordinal, &ack.remaining, cumulative);
                    }
                    if let (Some(slot), acks) = (cursor.slot, home.clone()) {
                        stored.change_cursors(cx, |cursors| cursors.moved(slot, &acks));
                        return true;
                    }
                }
                CursorPlace::HandedOver(handed_over) => {
                    // It was handed to another consumer meanwhile: the acknowledgement still counts.
                    let (connection, key) = (handed_over.connection, handed_over.key);
                    let acks = acks.to_vec();
                    cx.send_feed(
                        connection.shard,
                        FeedMessage::Ack {
                            connection,
                            key,
                            acks,
                            cumulative,
                        },
                    );
                }
            },
            Body::Broadcast(_) => {}
        }
        false
    }
}

/// Applies one acknowledgement to a cursor's state.
pub(super) fn apply(acks: &mut AckState, ordinal: Ordinal, remaining: &[i64], cumulative: bool) {
    match (cumulative, remaining) {
        (false, []) => acks.ack(ordinal),
        (false, words) => acks.ack_batch(ordinal, words),
        (true, []) => acks.ack_cumulative(ordinal),
        (true, words) => acks.ack_cumulative_batch(ordinal, words),
    };
}
