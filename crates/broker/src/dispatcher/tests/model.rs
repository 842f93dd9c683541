//! A world with one subscription in it, and a model that remembers where every message is in the plainest way.
//!
//! The world does random things to a dispatcher and checks each of its deliveries against the model.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::dispatcher::HashRange;
use crate::dispatcher::acknowledge::count_ones;

/// What kind of world.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind {
    pub(super) key_shared: Option<Keys>,
    pub(super) delays: bool,
    pub(super) chunks: bool,
    pub(super) resets: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keys {
    Ring,
    Ranges,
    Sticky,
    OutOfOrder,
}

/// A small generator of numbers; the same seed gives the same world.
pub(super) struct Rng(pub(super) u64);

impl Rng {
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> Option<T> {
        (!from.is_empty()).then(|| from[self.below(from.len() as u64) as usize])
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Out {
    consumer: ConsumerKey,
    messages: u32,
}

#[derive(Debug, Default)]
struct ModelConsumer {
    priority_level: i32,
    /// Granted minus charged, parked ones included.
    permits: i64,
    unwritten: u64,
}

pub(super) struct World {
    kind: Kind,
    pub(super) rng: Rng,
    pub(super) dispatcher: Dispatcher,
    log: Vec<EntryRef>,
    now: i64,
    next_key: u64,
    consumers: BTreeMap<ConsumerKey, ModelConsumer>,
    acked: BTreeSet<u64>,
    partial: BTreeMap<u64, Vec<i64>>,
    out: BTreeMap<u64, Out>,
    counts: BTreeMap<u64, u32>,
    delivered_once: BTreeSet<u64>,
    /// Chunked message under way → who gets its pieces.
    pieces: BTreeMap<u64, ConsumerKey>,
}

const WINDOW: u64 = 1000;
const TICK_MS: i64 = 10;

impl World {
    pub(super) fn new(kind: Kind, seed: u64) -> Self {
        let mut rng = Rng(seed);
        let options = Options {
            read_entries_max: 1 + rng.below(20) as u32,
            round_robin_messages_max: 1 + rng.below(20) as u32,
            delay: Some(DelayOptions {
                tick_ms: TICK_MS,
                strict: false,
                index_entries_max: 1 + rng.below(10) as usize,
            }),
            key_shared: KeySharedOptions {
                consistent_hashing: kind.key_shared != Some(Keys::Ranges),
                ring_points: 1 + rng.below(20) as u32,
                look_ahead_per_consumer_max: 5 + rng.below(20) as u32,
                look_ahead_per_subscription_max: 10 + rng.below(50) as u32,
            },
            ..Options::default()
        };
        let limits = Limits {
            unacked_per_consumer_max: rng.below(40) as u32,
            unacked_per_subscription_max: rng.below(100) as u32,
        };
        let dispatcher = match kind.key_shared {
            Some(_) => Dispatcher::key_shared(AckState::default(), options, limits),
            None => Dispatcher::shared(AckState::default(), options, limits),
        };
        Self {
            kind,
            rng,
            dispatcher,
            log: Vec::new(),
            now: 1000,
            next_key: 0,
            consumers: BTreeMap::new(),
            acked: BTreeSet::new(),
            partial: BTreeMap::new(),
            out: BTreeMap::new(),
            counts: BTreeMap::new(),
            delivered_once: BTreeSet::new(),
            pieces: BTreeMap::new(),
        }
    }

    /// One random event.
    pub(super) fn step(&mut self) {
        match self.rng.below(100) {
            0..20 => self.append(),
            20..25 => self.join(),
            25..28 => self.leave(),
            28..43 => self.flow(),
            43..58 => self.ack(),
            58..64 => self.ack_batch(),
            64..70 => self.redeliver(),
            70..78 => self.written(),
            78..82 => self.now += self.rng.below(30) as i64,
            82 if self.kind.resets => self.reset(),
            83 => self.ack_before(),
            84 => self.set_limits(),
            _ => {
                self.turn();
            }
        }
        self.check();
    }

    fn append(&mut self) {
        for _ in 0..1 + self.rng.below(5) {
            let ordinal = self.log.len() as u64;
            let key = ["a", "b", "c", "d", "e", "key-0", "key-1"][self.rng.below(7) as usize];
            let mut entry = keyed(ordinal, key);
            entry.bytes = self.rng.below(400) as u32;
            if self.rng.chance(30) {
                entry.message_count = 1 + self.rng.below(70) as u32;
            }
            entry.is_marker = self.rng.chance(3);
            if self.kind.delays && self.rng.chance(30) {
                entry.deliver_at = Some(self.now + self.rng.below(100) as i64);
            }
            if self.kind.chunks && self.rng.chance(60) {
                // A few messages of three pieces each, mixed with one another.
                let uuid_hash = ordinal / 12 * 2 + self.rng.below(2);
                let of_it = |e: &&EntryRef| e.chunk.is_some_and(|chunk| chunk.uuid_hash == uuid_hash);
                let index = self.log.iter().filter(of_it).count() as u32;
                entry.message_count = 1;
                entry.is_marker = false;
                entry.chunk = (index < 3).then_some(Chunk {
                    uuid_hash,
                    index,
                    count: 3,
                });
            }
            self.log.push(entry);
        }
    }

    fn join(&mut self) {
        if self.consumers.len() > 5 {
            return;
        }
        let key = ConsumerKey(self.next_key);
        let priority_level = self.rng.below(2) as i32;
        let low = self.rng.below(65_000) as u32;
        let mode = match self.kind.key_shared {
            Some(Keys::Sticky) => KeySharedMode::Sticky(vec![HashRange {
                start: low,
                end: (low + self.rng.below(40_000) as u32).min(65_535),
            }]),
            _ => KeySharedMode::AutoSplit,
        };
        let spec = ConsumerSpec {
            priority_level,
            window_bytes: WINDOW,
            key_shared: Some(KeySharedSpec {
                mode,
                allow_out_of_order: self.kind.key_shared == Some(Keys::OutOfOrder),
            }),
            ..spec(&format!("c{}", self.next_key % 7))
        };
        match self.dispatcher.add_consumer(key, spec) {
            Ok(()) => {
                self.next_key += 1;
                let consumer = ModelConsumer {
                    priority_level,
                    ..ModelConsumer::default()
                };
                self.consumers.insert(key, consumer);
            }
            Err(error) => assert!(self.kind.key_shared == Some(Keys::Sticky), "{error}"),
        }
    }

    fn any_consumer(&mut self) -> Option<ConsumerKey> {
        let keys: Vec<_> = self.consumers.keys().copied().collect();
        self.rng.pick(&keys)
    }

    fn any_out(&mut self) -> Option<u64> {
        let out: Vec<_> = self.out.keys().copied().collect();
        self.rng.pick(&out)
    }

    fn leave(&mut self) {
        if let Some(key) = self.any_consumer() {
            assert!(self.dispatcher.remove_consumer(key));
            self.consumers.remove(&key);
            self.out.retain(|_, out| out.consumer != key);
            self.pieces.retain(|_, owner| *owner != key);
        }
    }

    fn flow(&mut self) {
        if let Some(key) = self.any_consumer() {
            let permits = 1 + self.rng.below(30) as u32;
            self.grant(key, permits);
        }
    }

    fn grant(&mut self, key: ConsumerKey, permits: u32) {
        self.dispatcher.flow(key, permits);
        self.consumers.get_mut(&key).unwrap().permits += i64::from(permits);
    }

    fn written(&mut self) {
        if let Some(key) = self.any_consumer() {
            let consumer = self.consumers.get_mut(&key).unwrap();
            let bytes = self.rng.below(consumer.unwritten + 1);
            consumer.unwritten -= bytes;
            self.dispatcher.written(key, bytes);
        }
    }

    fn forget(&mut self, ordinal: u64) {
        self.acked.insert(ordinal);
        self.partial.remove(&ordinal);
        self.out.remove(&ordinal);
        self.counts.remove(&ordinal);
    }

    /// Mostly of what is out, sometimes of anything that exists.
    fn ack(&mut self) {
        let anything = (!self.log.is_empty()).then(|| self.rng.below(self.log.len() as u64));
        let ordinal = match self.rng.chance(90) {
            true => self.any_out(),
            false => anything,
        };
        if let Some(ordinal) = ordinal {
            let acked = self.dispatcher.ack(Ordinal(ordinal));
            let out = self.out.get(&ordinal);
            assert_eq!(acked.owner, out.map(|out| out.consumer));
            assert_eq!(acked.messages, out.map_or(0, |out| out.messages));
            self.forget(ordinal);
        }
    }

    fn ack_batch(&mut self) {
        let Some(ordinal) = self.any_out() else { return };
        let count = self.log[ordinal as usize].message_count as usize;
        let all = self.partial.get(&ordinal).cloned().unwrap_or_else(|| {
            let bits = |word: usize| match count - word * 64 {
                64.. => -1,
                left => (1_i64 << left).wrapping_sub(1),
            };
            (0..count.div_ceil(64)).map(bits).collect()
        });
        let given: Vec<i64> = all.iter().map(|_| (self.rng.below(u64::MAX)) as i64).collect();
        let left: Vec<i64> = all.iter().zip(&given).map(|(all, given)| all & given).collect();
        self.dispatcher
            .ack_batch(Ordinal(ordinal), &given_within(&given, count));
        match count_ones(&left) {
            0 => self.forget(ordinal),
            messages => {
                self.partial.insert(ordinal, left);
                self.out.get_mut(&ordinal).unwrap().messages = messages;
            }
        }
    }

    fn redeliver(&mut self) {
        let Some(key) = self.any_consumer() else { return };
        let asked: Option<Vec<Ordinal>> = self.rng.chance(70).then(|| {
            let some = (0..3).filter_map(|_| self.any_out());
            some.map(Ordinal).collect()
        });
        let messages = self.dispatcher.redeliver(key, asked.as_deref());
        let mut expected = 0;
        self.out.retain(|&at, out| {
            let again =
                out.consumer == key && asked.as_ref().is_none_or(|asked| asked.contains(&Ordinal(at)));
            if again {
                expected += u64::from(out.messages);
                *self.counts.entry(at).or_default() += 1;
            }
            !again
        });
        assert_eq!(messages, expected);
    }

    fn reset(&mut self) {
        let to = self.rng.below(self.log.len() as u64 + 1);
        self.dispatcher.reset(Ordinal(to));
        self.acked = (0..to).collect();
        self.partial.clear();
        self.out.clear();
        self.counts.clear();
        self.delivered_once.clear();
        self.pieces.clear();
    }

    fn ack_before(&mut self) {
        let end = (self.dispatcher.acked_to().0 + self.rng.below(10)).min(self.log.len() as u64);
        self.dispatcher.ack_before(Ordinal(end));
        (0..end).for_each(|at| self.forget(at));
    }

    fn set_limits(&mut self) {
        let limits = Limits {
            unacked_per_consumer_max: self.rng.below(40) as u32,
            unacked_per_subscription_max: self.rng.below(100) as u32,
        };
        self.dispatcher.set_limits(limits);
    }

    /// Asks what to read and answers it, not always well; other events may come between. Whether there was something to do.
    pub(super) fn turn(&mut self) -> bool {
        let tail_end = Ordinal(self.log.len() as u64);
        let mut entries: Vec<EntryRef> = match self.dispatcher.next(self.now, tail_end) {
            Next::Idle => return false,
            Next::WaitUntil(due) => {
                assert!(due > self.now);
                return false;
            }
            Next::Read {
                from, entries_max, ..
            } => {
                assert!(!self.acked.contains(&from.0) && from < tail_end && entries_max > 0);
                let entries = self.log[from.0 as usize..].iter();
                entries.take(entries_max as usize).copied().collect()
            }
            Next::Replay { ordinals, .. } => {
                assert!(!ordinals.is_empty() && ordinals.is_sorted());
                ordinals.iter().map(|at| self.log[at.0 as usize]).collect()
            }
        };
        if self.rng.chance(5) {
            self.dispatcher.read_failed();
            return true;
        }
        if self.rng.chance(20) {
            let kept = 1 + self.rng.below(entries.len() as u64) as usize;
            entries.truncate(kept);
        }
        for _ in 0..self.rng.below(3) {
            match self.rng.below(7) {
                0 => self.leave(),
                1 => self.join(),
                2 => self.redeliver(),
                3 => self.ack_before(),
                4 if self.kind.resets && self.rng.chance(10) => self.reset(),
                _ => self.ack(),
            }
        }
        let mut out = Vec::new();
        self.dispatcher.on_entries(self.now, &entries, &mut out);
        for entry in entries.iter().filter(|entry| entry.is_marker) {
            if self.dispatcher.acks().is_acked(entry.ordinal) {
                self.forget(entry.ordinal.0);
            }
        }
        for delivery in &out {
            assert_eq!(entries[delivery.entry_index as usize].ordinal, delivery.ordinal);
            self.on_delivery(delivery);
        }
        true
    }

    fn on_delivery(&mut self, delivery: &Delivery) {
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

    /// Nobody of a better level could have taken it. Blocked consumers cannot be told from here, so limits must be off.
    fn check_priority(&self, taker: ConsumerKey, entry: &EntryRef) {
        let level = self.consumers[&taker].priority_level;
        if self.dispatcher.limits.unacked_per_consumer_max > 0 || entry.chunk.is_some() {
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
    fn check(&self) {
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

/// Random words with nothing beyond the batch set.
fn given_within(given: &[i64], count: usize) -> Vec<i64> {
    let mask = |(word, bits): (usize, &i64)| match count - word * 64 {
        64.. => *bits,
        left => bits & (1_i64 << left).wrapping_sub(1),
    };
    given.iter().enumerate().map(mask).collect()
}
