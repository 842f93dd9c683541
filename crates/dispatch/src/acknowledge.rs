//! Acknowledgement, redelivery, skip and reset of delivered entries, by consumers and administrators.

use pharos_managed_ledger::cursor::AckOutcome;
use pharos_types::Ordinal;

use super::core::Dispatcher;
use super::types::{Acked, ConsumerKey, Dealt};

impl Dispatcher {
    /// A whole entry is acknowledged, whichever consumer has it. It need not be pending: an ack may come late or twice.
    ///
    /// The caller makes sure that the entry exists.
    pub fn ack(&mut self, ordinal: Ordinal) -> Acked {
        let outcome = self.acks.ack(ordinal);
        self.after_ack(ordinal, outcome)
    }

    /// Some indexes of a batch are acknowledged. `remaining`: the wire's `ack_set`, bit set = not yet; it is combined (AND) with
    /// what is known, and when nothing remains the entry is acknowledged. A set that is longer than any batch dealt so far changes
    /// nothing.
    pub fn ack_batch(&mut self, ordinal: Ordinal, remaining: &[i64]) -> Acked {
        if !self.largest_batch.allows(remaining.len()) {
            return self.after_ack(ordinal, AckOutcome::Unchanged);
        }
        let outcome = self.acks.ack_batch(ordinal, remaining);
        self.after_ack(ordinal, outcome)
    }

    /// These entries do not exist any more, or can never be read. They count as acknowledged.
    pub fn gone(&mut self, ordinals: &[Ordinal]) -> Dealt {
        let mut dealt = Dealt::default();
        for &ordinal in ordinals {
            dealt.note(self.ack(ordinal).outcome);
        }
        dealt
    }

    /// These entries in replay cannot be read. They stay unacknowledged, and are not asked for again until they are reached anew:
    /// after a reset, or when all consumers have left. What is not in replay stays where it is.
    pub fn set_aside(&mut self, ordinals: &[Ordinal]) {
        for ordinal in ordinals {
            self.replay.remove(ordinal.0);
        }
    }

    /// Everything before `end` is acknowledged: skipped, expired, or trimmed. Whether that moved anything.
    ///
    /// Walks all that is pending, in replay, delayed or counted, so it is for rare events.
    pub fn ack_before(&mut self, end: Ordinal) -> bool {
        if !self.acks.raise_to(end) {
            return false;
        }
        let end = self.acks.acked_to().0;
        for ordinal in self.pending.before(end) {
            self.release(ordinal);
        }
        for ordinal in self.replay.before(end) {
            self.replay.remove(ordinal);
        }
        self.delayed.drop_before(end);
        self.withheld.drop_before(end);
        self.redeliveries.retain(|&ordinal, _| ordinal >= end);
        true
    }

    /// A seek: everything before `to` counts as acknowledged and nothing from there on. Delivery begins again at `to`; what is
    /// out stays out, but acks of it find nothing pending. Permits stay. To begin inside a batch, say so with [`ack_batch`](Self::ack_batch) after this.
    pub fn reset(&mut self, to: Ordinal) {
        self.acks.reset(to);
        self.redeliveries.clear();
        self.rewind();
    }

    /// The consumer asks for messages again: `ordinals`, or all it has. Of those it does not have, nothing happens. They are
    /// delivered before anything new, with a count one higher. A consumer blocked by unacknowledged messages goes on.
    ///
    /// Returns how many messages will be delivered again.
    pub fn redeliver(&mut self, key: ConsumerKey, ordinals: Option<&[Ordinal]>) -> u64 {
        let Some(slot) = self.consumers.slot(key) else {
            return 0;
        };
        let wanted: Vec<u64> = match ordinals {
            Some(ordinals) => ordinals.iter().map(|ordinal| ordinal.0).collect(),
            None => self.pending.of(slot).collect(),
        };
        let mut messages = 0;
        for ordinal in wanted {
            if self.pending.get(ordinal).is_none_or(|entry| entry.owner != slot) {
                continue;
            }
            let Some(entry) = self.release(ordinal) else {
                continue;
            };
            messages += u64::from(entry.messages);
            let count = self.redeliveries.entry(ordinal).or_insert(0);
            *count = count.saturating_add(1);
            self.put_in_replay(ordinal, entry.group);
        }
        self.update_slot(slot, |consumer| {
            if consumer.blocked {
                consumer.unblock();
            }
        });
        messages
    }

    /// Settles what an acknowledgement did to the place of its entry.
    fn after_ack(&mut self, ordinal: Ordinal, outcome: AckOutcome) -> Acked {
        let (owner, messages) = match outcome {
            AckOutcome::Unchanged => (None, 0),
            AckOutcome::Partial => self.shrink_pending(ordinal),
            AckOutcome::Recorded | AckOutcome::Advanced => self.settle(ordinal.0),
        };
        Acked {
            outcome,
            owner,
            messages,
        }
    }

    /// An entry is acknowledged: it is nowhere else any more.
    pub(super) fn settle(&mut self, ordinal: u64) -> (Option<ConsumerKey>, u32) {
        if !self.redeliveries.is_empty() {
            self.redeliveries.remove(&ordinal);
        }
        if let Some(entry) = self.release(ordinal) {
            let owner = self.consumers.get(entry.owner).map(|consumer| consumer.key);
            return (owner, entry.messages);
        }
        if !self.replay.remove(ordinal) && !self.delayed.remove(ordinal) {
            self.withheld.remove(ordinal);
        }
        (None, 0)
    }

    /// Part of a batch is acknowledged: only the rest of it still counts against its owner.
    fn shrink_pending(&mut self, ordinal: Ordinal) -> (Option<ConsumerKey>, u32) {
        let remaining = self.acks.remaining_batch(ordinal).map(count_ones);
        let (Some(remaining), Some(entry)) = (remaining, self.pending.get_mut(ordinal.0)) else {
            return (None, 0);
        };
        let left = remaining.min(entry.messages);
        let messages = entry.messages - left;
        entry.messages = left;
        let slot = entry.owner;
        self.unacked -= u64::from(messages);
        self.release_from(slot, u64::from(messages));
        self.unblock_subscription();
        (self.consumers.get(slot).map(|consumer| consumer.key), messages)
    }
}

impl Dealt {
    /// Adds what one acknowledgement changed.
    pub(super) fn note(&mut self, outcome: AckOutcome) {
        self.changed |= outcome.changed();
        self.advanced |= outcome.advanced();
    }
}

/// Indexes that remain in a batch set.
pub(super) fn count_ones(words: &[i64]) -> u32 {
    words.iter().map(|word| word.count_ones()).sum()
}
