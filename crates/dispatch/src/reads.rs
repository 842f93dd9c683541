//! Choice of the next entries to read, and of the consumers that get them.

use pharos_types::Ordinal;

use super::acknowledge::count_ones;
use super::consumers::Slot;
use super::core::{Dispatcher, Mode, Reading};
use super::pending::PendingEntry;
use super::replay::{Group, ReplayPlace};
use super::types::{ConsumerKey, Dealt, Delivery, EntryRef, Next};

/// Most delayed messages moved to replay by one [`Dispatcher::next`], so that a great number due at once does not hold up
/// the shard.
const DUE_MAX: usize = 10_000;

/// Decision about an entry.
enum Choice {
    /// Hand it to this consumer.
    Give(Slot),
    /// Its consumer cannot have it now; others can have others.
    Hold,
    /// No consumer can have anything.
    Stop,
}

impl Dispatcher {
    /// Returns the next read. Call it after every event, and after [`on_entries`](Self::on_entries).
    ///
    /// `tail_end`: the ordinal after the last readable entry. A `Read` or `Replay` must be answered exactly once, by
    /// `on_entries` or [`read_failed`](Self::read_failed); until then the answer is `Idle`.
    pub fn next(&mut self, now_ms: i64, tail_end: Ordinal) -> Next {
        if self.reading.is_some() || !self.consumers.any_available() {
            return Next::Idle;
        }
        self.release_due(now_ms);
        let bytes_max = self
            .consumers
            .bytes_offered()
            .min(self.options.read_bytes_max)
            .max(1);
        let ordinals = self.pick_replay();
        if !ordinals.is_empty() {
            self.reading = Some(Reading::Replay);
            return Next::Replay { ordinals, bytes_max };
        }
        if let Some(from) = self.delayed.take_overflow() {
            self.read_position = self.read_position.min(from);
        }
        let from = self.acks.next_unacked(Ordinal(self.read_position));
        let entries_max = self.entries_max();
        if from < tail_end && entries_max > 0 {
            self.reading = Some(Reading::New);
            return Next::Read {
                from,
                entries_max,
                bytes_max,
            };
        }
        self.delayed.next_due().map_or(Next::Idle, Next::WaitUntil)
    }

    /// The read asked for could not be done; nothing has changed. The caller decides when to ask again.
    pub fn read_failed(&mut self) {
        self.reading = None;
    }

    /// Deals what was read, and adds to `out` who gets what, in the order to be sent.
    ///
    /// `entries`: rising; what [`next`](Self::next) asked for or the first part of it. After a `Read`, entries missing between
    /// `from` and the last one given are taken to be gone, and are passed over.
    pub fn on_entries(&mut self, now_ms: i64, entries: &[EntryRef], out: &mut Vec<Delivery>) -> Dealt {
        debug_assert!(entries.is_sorted_by_key(|entry| entry.ordinal));
        match self.reading.take() {
            Some(Reading::New) => self.deal_new(now_ms, entries, out),
            Some(Reading::Replay) => {
                self.deal_replay(entries, out);
                Dealt::default()
            }
            Some(Reading::Stale) | None => Dealt::default(),
        }
    }

    /// Chooses a consumer for an entry nothing is remembered of: a topic without storage. Permits and window are charged; no
    /// ack is expected. `None`: no consumer can take it, so it is dropped.
    pub fn deal_transient(&mut self, entry: &EntryRef) -> Option<ConsumerKey> {
        let group = self.group(entry);
        let Choice::Give(slot) = self.choose(group, None) else {
            return None;
        };
        self.charge(slot, entry, entry.message_count.max(1), 0, group);
        self.consumers.get(slot).map(|consumer| consumer.key)
    }

    /// Moves delayed messages whose time has come to replay.
    fn release_due(&mut self, now_ms: i64) {
        for _ in 0..DUE_MAX {
            let Some((ordinal, group)) = self.delayed.pop_due(now_ms) else {
                return;
            };
            self.put_in_replay(ordinal, group);
        }
    }

    /// Entries in replay that available consumers can have now, rising.
    fn pick_replay(&mut self) -> Vec<Ordinal> {
        let room = self.options.read_entries_max.max(1) as usize;
        let mut picked = Vec::new();
        let mut last = None;
        for slot in self.replay.occupied_from(self.replay_turn) {
            if picked.len() >= room {
                break;
            }
            let Some(consumer) = self.consumers.get(slot).filter(|c| c.is_available()) else {
                continue;
            };
            let wanted = self.entries_for(consumer.permits.unsigned_abs());
            picked.extend(self.replay.of(slot).take(wanted.min(room - picked.len())));
            last = Some(slot);
        }
        if let Some(last) = last {
            self.replay_turn = Slot(last.0 + 1);
        }
        let wanted = self.entries_for(self.consumers.permits_offered());
        picked.extend(self.replay.any().take(wanted.min(room - picked.len())));
        picked.sort_unstable();
        picked.into_iter().map(Ordinal).collect()
    }

    /// About how many entries `permits` allow; at least 1.
    fn entries_for(&self, permits: u64) -> usize {
        ((permits as f64 / self.messages_per_entry).ceil() as usize).max(1)
    }

    /// Returns the number of new entries to read; 0 if none may be read.
    fn entries_max(&self) -> u32 {
        if self.is_blocked {
            return 0;
        }
        // Entries in replay that could go have been picked before this; what is left waits for a consumer.
        let look_ahead_max = self.options.key_shared.look_ahead_max(match &self.mode {
            // Only pieces of chunked messages wait for one consumer, so the number of consumers means nothing.
            Mode::Shared { .. } => usize::MAX,
            Mode::KeyShared(_) => self.consumers.len(),
        });
        let room = look_ahead_max.saturating_sub(self.replay.len());
        let wanted = self.entries_for(self.consumers.permits_offered()).min(room);
        u32::try_from(wanted)
            .unwrap_or(u32::MAX)
            .min(self.options.read_entries_max.max(1))
    }

    fn deal_new(&mut self, now_ms: i64, entries: &[EntryRef], out: &mut Vec<Delivery>) -> Dealt {
        let mut dealt = Dealt::default();
        for (index, entry) in (0_u32..).zip(entries) {
            let ordinal = entry.ordinal.0;
            if self.acks.is_acked(entry.ordinal) || (ordinal < self.fresh_from && self.is_known(ordinal)) {
                self.pass(ordinal);
                continue;
            }
            if entry.is_marker {
                dealt.note(self.acks.ack(entry.ordinal));
                self.pass(ordinal);
                continue;
            }
            let group = self.group(entry);
            if self.withheld.note(ordinal, group) {
                self.pass(ordinal);
                continue;
            }
            if let Some(deliver_at) = entry.deliver_at
                && self.delayed.is_early(deliver_at, now_ms)
            {
                self.delayed.insert(ordinal, deliver_at, group);
                self.pass(ordinal);
                continue;
            }
            if self.is_blocked || !self.consumers.any_available() {
                break;
            }
            match self.choose(group, None) {
                Choice::Give(slot) => self.deliver(slot, entry, index, group, out),
                Choice::Hold => self.put_in_replay(ordinal, group),
                Choice::Stop => break,
            }
            self.pass(ordinal);
        }
        dealt
    }

    fn deal_replay(&mut self, entries: &[EntryRef], out: &mut Vec<Delivery>) {
        for (index, entry) in (0_u32..).zip(entries) {
            let ordinal = entry.ordinal.0;
            // It may have been acknowledged while it was read.
            if !self.replay.contains(ordinal) {
                continue;
            }
            let group = self.replay.group_of(ordinal);
            match self.choose(group, Some(ordinal)) {
                Choice::Give(slot) => {
                    self.replay.remove(ordinal);
                    self.deliver(slot, entry, index, group, out);
                }
                Choice::Hold => {}
                Choice::Stop => break,
            }
        }
    }

    /// New reads go on behind this entry.
    fn pass(&mut self, ordinal: u64) {
        self.read_position = ordinal + 1;
        self.fresh_from = self.fresh_from.max(ordinal + 1);
    }

    /// True if an entry that was read before is already tracked.
    fn is_known(&self, ordinal: u64) -> bool {
        self.pending.contains(ordinal) || self.replay.contains(ordinal) || self.delayed.contains(ordinal)
    }

    /// Chooses the consumer of an entry of `group`. `replayed`: its ordinal if it is replayed.
    fn choose(&mut self, group: Option<Group>, replayed: Option<u64>) -> Choice {
        if !self.consumers.any_available() {
            return Choice::Stop;
        }
        let place = self.place(group);
        match (&mut self.mode, place) {
            (_, ReplayPlace::Held) => Choice::Hold,
            (mode, ReplayPlace::Consumer(slot)) => {
                let overtakes = match (mode, group) {
                    (Mode::KeyShared(keys), Some(group)) if !keys.allows_out_of_order() => {
                        // Nothing of a key goes before what waits in replay, except the first of that.
                        self.replay
                            .first_of(group)
                            .is_some_and(|first| replayed != Some(first))
                    }
                    _ => false,
                };
                match !overtakes && self.consumers.is_available(slot) {
                    true => Choice::Give(slot),
                    false => Choice::Hold,
                }
            }
            (Mode::Shared { turns, .. }, ReplayPlace::Any) => {
                turns.pick(&self.consumers).map_or(Choice::Stop, Choice::Give)
            }
            (Mode::KeyShared(_), ReplayPlace::Any) => Choice::Hold,
        }
    }

    fn deliver(
        &mut self,
        slot: Slot,
        entry: &EntryRef,
        index: u32,
        group: Option<Group>,
        out: &mut Vec<Delivery>,
    ) {
        let ordinal = entry.ordinal.0;
        let count = entry.message_count.max(1);
        let ack_set: Option<Box<[i64]>> = self.acks.remaining_batch(entry.ordinal).map(Box::from);
        let messages = ack_set
            .as_deref()
            .map_or(count, |words| count_ones(words).min(count));
        self.largest_batch.note(count);
        self.messages_per_entry += (f64::from(count) - self.messages_per_entry) / 16.0;
        self.pending.insert(
            ordinal,
            PendingEntry {
                owner: slot,
                messages,
                group,
            },
        );
        self.unacked += u64::from(messages);
        let limit = u64::from(self.limits.unacked_per_subscription_max);
        self.is_blocked |= limit > 0 && self.unacked >= limit;
        self.charge(slot, entry, messages, messages, group);
        if let Mode::KeyShared(keys) = &mut self.mode
            && let Some(group) = group
        {
            keys.on_delivered(group, slot);
        }
        if let Some(consumer) = self.consumers.get(slot) {
            let redelivery_count = match self.redeliveries.is_empty() {
                true => 0,
                false => self.redeliveries.get(&ordinal).copied().unwrap_or(0),
            };
            out.push(Delivery {
                consumer: consumer.key,
                ordinal: entry.ordinal,
                entry_index: index,
                redelivery_count,
                ack_set,
            });
        }
    }

    /// Takes an entry off a consumer's permits, window and turn. `unacked`: messages it will have to acknowledge.
    fn charge(&mut self, slot: Slot, entry: &EntryRef, messages: u32, unacked: u32, group: Option<Group>) {
        let limit = u64::from(self.limits.unacked_per_consumer_max);
        self.update_slot(slot, |consumer| {
            consumer.permits -= i64::from(messages);
            consumer.bytes_unwritten += u64::from(entry.bytes);
            consumer.unacked += u64::from(unacked);
            consumer.blocked |= limit > 0 && consumer.unacked >= limit;
        });
        let Mode::Shared { turns, chunks } = &mut self.mode else {
            return;
        };
        if let Some(consumer) = self.consumers.get(slot) {
            turns.charge(slot, consumer.priority_level, messages);
        }
        if let (Some(chunk), Some(message)) = (entry.chunk, group) {
            // While earlier pieces wait in replay, they still have to follow.
            if chunk.is_last() && self.replay.first_of(message).is_none() {
                chunks.unpin(message);
            } else {
                chunks.pin(message, slot);
                self.replay.move_group(message, ReplayPlace::Consumer(slot));
            }
        }
    }
}
