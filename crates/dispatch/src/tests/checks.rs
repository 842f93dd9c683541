//! Invariants of a world: for each delivery, after each event, and in the end.

use super::model::{Keys, Out, TICK_MS, WINDOW, World};
use super::*;
use crate::acknowledge::count_ones;

impl World {
    /// A delivery is one that the model allows.
    pub(super) fn on_delivery(&mut self, delivery: &Delivery) {
        let ordinal = delivery.ordinal.0;
        let entry = self.log[ordinal as usize];
        assert!(!entry.is_marker);
        assert!(!self.acked.contains(&ordinal), "{ordinal} is acknowledged");
        assert!(!self.out.contains_key(&ordinal), "{ordinal} is out already");
        assert!(entry.deliver_at.is_none_or(|at| at <= self.now + TICK_MS));
        let count = self.counts.get(&ordinal).copied().unwrap_or(0);
        assert_eq!(delivery.redelivery_count, count);
        let remaining = self.partial.get(&ordinal).map(|words| {
            let used = words
                .iter()
                .rposition(|word| *word != 0)
                .map_or(0, |last| last + 1);
            words[..used].to_vec()
        });
        assert_eq!(delivery.ack_set.as_deref(), remaining.as_deref());
        let messages = remaining.as_deref().map_or(entry.message_count, count_ones);
        match self.kind.key_shared {
            None => self.check_priority(delivery.consumer, &entry),
            Some(Keys::OutOfOrder) => {}
            Some(_) => self.check_key_order(delivery, &entry),
        }
        if let Some(chunk) = entry.chunk.filter(|_| self.kind.key_shared.is_none()) {
            self.check_pieces(chunk, delivery.consumer);
        }
        let consumer = self
            .consumers
            .get_mut(&delivery.consumer)
            .expect("a consumer that is here");
        assert!(consumer.permits > 0, "no permits left");
        assert!(consumer.unwritten < WINDOW, "no room left");
        consumer.permits -= i64::from(messages);
        consumer.unwritten += u64::from(entry.bytes);
        self.delivered_once.insert(ordinal);
        let consumer = delivery.consumer;
        self.out.insert(ordinal, Out { consumer, messages });
    }

    /// No consumer of a better level could have taken it. Who is not blocked after the read was not blocked during it.
    fn check_priority(&self, taker: ConsumerKey, entry: &EntryRef) {
        let level = self.consumers[&taker].priority_level;
        if entry.chunk.is_some() {
            return;
        }
        let better = self.consumers.iter().find(|(key, consumer)| {
            let is_blocked = self
                .dispatcher
                .consumer_stats(**key)
                .is_some_and(|stats| stats.is_blocked);
            consumer.priority_level < level
                && consumer.permits > 0
                && consumer.unwritten < WINDOW
                && !is_blocked
        });
        assert!(better.is_none(), "{better:?} comes before {taker:?}");
    }

    fn check_key_order(&self, delivery: &Delivery, entry: &EntryRef) {
        let same_key = |at: &u64| self.log[*at as usize].key_hash == entry.key_hash;
        for (at, out) in self.out.iter().filter(|(at, _)| same_key(at)) {
            assert_eq!(
                out.consumer, delivery.consumer,
                "{at} of the key is at another consumer"
            );
        }
        if self.kind.delays || self.delivered_once.contains(&delivery.ordinal.0) {
            return;
        }
        let overtaken = (0..delivery.ordinal.0).filter(same_key).find(|at| {
            let is_marker = self.log[*at as usize].is_marker;
            !is_marker && !self.acked.contains(at) && !self.delivered_once.contains(at)
        });
        assert_eq!(overtaken, None, "{} came first", delivery.ordinal);
    }

    /// Pieces go to who has the others, until the message is complete or its consumer leaves.
    fn check_pieces(&mut self, chunk: Chunk, taker: ConsumerKey) {
        let owner = *self.pieces.entry(chunk.uuid_hash).or_insert(taker);
        assert_eq!(owner, taker, "a piece went elsewhere");
        let is_waiting = |entry: &EntryRef| {
            let at = entry.ordinal.0;
            entry
                .chunk
                .is_some_and(|other| other.uuid_hash == chunk.uuid_hash)
                && !self.acked.contains(&at)
                && !self.out.contains_key(&at)
        };
        // The one that is being delivered is not out yet.
        if chunk.index == 2 && self.log.iter().filter(|entry| is_waiting(entry)).count() == 1 {
            self.pieces.remove(&chunk.uuid_hash);
        }
    }

    /// The dispatcher's numbers and insides agree with the model.
    pub(super) fn check(&self) {
        let d = &self.dispatcher;
        let tail_end = Ordinal(self.log.len() as u64);
        let stats = d.stats(tail_end);
        assert_eq!(stats.pending, self.out.len() as u64);
        let unacked: u64 = self.out.values().map(|out| u64::from(out.messages)).sum();
        assert_eq!(stats.unacked, unacked);
        assert_eq!(stats.backlog, tail_end.0 - self.acked.len() as u64);
        for (key, consumer) in &self.consumers {
            let inside = d.consumers.get(d.consumers.slot(*key).unwrap()).unwrap();
            assert_eq!(inside.permits + inside.permits_parked, consumer.permits);
            assert_eq!(inside.bytes_unwritten, consumer.unwritten);
            let own = self.out.values().filter(|out| out.consumer == *key);
            let unacked: u64 = own.map(|out| u64::from(out.messages)).sum();
            assert_eq!(inside.unacked, unacked);
            let limit = u64::from(d.limits.unacked_per_consumer_max);
            assert!(!inside.blocked || unacked > limit / 2);
        }
        let offered: i64 = d
            .consumers
            .iter()
            .filter(|(_, c)| c.is_available())
            .map(|(_, c)| c.permits)
            .sum();
        assert_eq!(d.consumers.permits_offered() as i64, offered);
        for at in 0..tail_end.0 {
            let is = [
                self.acked.contains(&at),
                d.pending.contains(at),
                d.replay.contains(at),
                d.delayed.contains(at),
            ];
            let places = is.iter().filter(|is| **is).count();
            assert!(places <= 1, "{at} is in {places} places: {is:?}");
            assert_eq!(d.pending.contains(at), self.out.contains_key(&at));
            assert_eq!(d.acks().is_acked(Ordinal(at)), is[0]);
        }
        for at in d.redeliveries.keys() {
            assert!(self.counts.contains_key(at));
        }
    }

    /// With everything that could hold a message back out of the way, every message is acknowledged or out.
    pub(super) fn settle(&mut self) {
        self.dispatcher.set_limits(Limits {
            unacked_per_consumer_max: 0,
            unacked_per_subscription_max: 0,
        });
        self.join();
        if self.consumers.is_empty() {
            return;
        }
        self.now += 1 << 20;
        for _ in 0..50_000 {
            let keys: Vec<_> = self.consumers.keys().copied().collect();
            for key in keys {
                let unwritten = std::mem::take(&mut self.consumers.get_mut(&key).unwrap().unwritten);
                self.dispatcher.written(key, unwritten);
                if self.consumers[&key].permits <= 0 {
                    self.grant(key, 1000);
                }
            }
            let was_busy = self.turn_quietly();
            self.check();
            if !was_busy {
                break;
            }
        }
        let lost: Vec<u64> = (0..self.log.len() as u64)
            .filter(|at| !self.acked.contains(at) && !self.out.contains_key(at))
            .filter(|at| !self.may_wait(*at))
            .collect();
        assert!(lost.is_empty(), "never delivered: {lost:?}");
    }

    /// A turn; acks of what drains, so that held back keys get on.
    fn turn_quietly(&mut self) -> bool {
        let was_busy = self.turn();
        if self.consumers.is_empty() {
            self.join();
        }
        if !was_busy && self.dispatcher.stats(Ordinal(0)).draining_hashes > 0 {
            self.ack();
            return true;
        }
        was_busy
    }

    /// With sticky ranges a key may have no owner, and too many of those end the looking ahead.
    fn may_wait(&self, _ordinal: u64) -> bool {
        self.kind.key_shared == Some(Keys::Sticky)
    }
}
