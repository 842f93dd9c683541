//! Messages to a topic's home about cursors: progress of cursors that were handed over, and acknowledgements that the
//! consumer's shard could not apply.

use pharos_feed::ids::{ConsumerKey, SlotId};
use pharos_feed::{Moment, OwnedAck, Progress};
use pharos_managed_ledger::cursor::AckState;
use pharos_managed_ledger::cursor_log::QueueError;
use pharos_requests::error::chain;
use pharos_runtime::clock;

use super::durable_cursors::DurableCursors;
use super::kind::Acks;
use super::{Attached, Stored, TopicContext};

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
            let reason = chain(&error);
            self.publishing
                .fail(cx, &format!("cursor log: {reason}"), error.kind());
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
        let Some(subscription) = self.subscriptions.get_mut(&name) else {
            return false;
        };
        let acks = Acks {
            acks,
            cumulative,
            table: stored.log.ledger.table(),
            end: stored.log.ledger.durable_end(),
        };
        let acked = subscription.body.ack(cx, &acks);
        if acked.messages > 0 {
            let now = Moment::at(clock::now());
            subscription.activity.note_acked(acked.messages, now);
            if let Some(consumer) = self.consumers.get_mut(&key) {
                consumer.activity.note_acked(acked.messages, now);
            }
        }
        if let Some((slot, acks)) = acked.moved {
            stored.change_cursors(cx, |cursors| cursors.moved(slot, &acks));
            return true;
        }
        self.run_dispatcher(cx, stored, &name);
        if let Some(body) = self.dispatched(&name) {
            body.flush_soon(cx, &name);
        }
        false
    }
}
