//! A world with one subscription in it, and a model that remembers where every message is in the plainest way.
//!
//! The world does random things to a dispatcher and checks each of its deliveries against the model.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::HashRange;
use crate::acknowledge::count_ones;

/// Configuration of a world.
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
pub(super) struct Out {
    pub(super) consumer: ConsumerKey,
    pub(super) messages: u32,
}

#[derive(Debug, Default)]
pub(super) struct ModelConsumer {
    pub(super) priority_level: i32,
    /// Granted minus charged, parked ones included.
    pub(super) permits: i64,
    pub(super) unwritten: u64,
}

pub(super) struct World {
    pub(super) kind: Kind,
    pub(super) rng: Rng,
    pub(super) dispatcher: Dispatcher,
    pub(super) log: Vec<EntryRef>,
    pub(super) now: i64,
    next_key: u64,
    pub(super) consumers: BTreeMap<ConsumerKey, ModelConsumer>,
    pub(super) acked: BTreeSet<u64>,
    pub(super) partial: BTreeMap<u64, Vec<i64>>,
    pub(super) out: BTreeMap<u64, Out>,
    pub(super) counts: BTreeMap<u64, u32>,
    pub(super) delivered_once: BTreeSet<u64>,
    /// Chunked message under way → who gets its pieces.
    pub(super) pieces: BTreeMap<u64, ConsumerKey>,
}

pub(super) const WINDOW: u64 = 1000;
pub(super) const TICK_MS: i64 = 10;

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

    /// Performs one random event.
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

    pub(super) fn join(&mut self) {
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

    pub(super) fn grant(&mut self, key: ConsumerKey, permits: u32) {
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
    pub(super) fn ack(&mut self) {
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
        let disturbances = self.rng.below(3);
        for _ in 0..disturbances {
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
        let before = self.dispatcher.read_position;
        self.dispatcher.on_entries(self.now, &entries, &mut out);
        let moved = self.dispatcher.read_position > before;
        assert!(
            disturbances > 0 || moved || !out.is_empty(),
            "a read was asked for in vain"
        );
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
}

/// Random words with nothing beyond the batch set.
fn given_within(given: &[i64], count: usize) -> Vec<i64> {
    let mask = |(word, bits): (usize, &i64)| match count - word * 64 {
        64.. => *bits,
        left => bits & (1_i64 << left).wrapping_sub(1),
    };
    given.iter().enumerate().map(mask).collect()
}
