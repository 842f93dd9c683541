//! Entries that dispatchers chose for consumers of a connection, until they become frames.
//!
//! Bounded by the consumers' windows, and in bytes by `broker::unwritten`: while memory is short and the socket takes nothing,
//! only what is needed to read an entry again stays here.

use std::collections::VecDeque;
use std::sync::Arc;

use pharos_broker::entry::FeedEntry;
use pharos_broker::ids::ConsumerKey;
use pharos_broker::shard::Dispatched;
use pharos_broker::unwritten::Held;
use pharos_types::Ordinal;

/// Entries that are read again at a time, at most.
const READ_ENTRIES_MAX: usize = 64;
/// Their bytes; the first may be larger.
const READ_BYTES_MAX: usize = 512 << 10;

/// Entry for a consumer.
pub(crate) struct Item {
    pub(crate) consumer_id: u64,
    pub(crate) key: ConsumerKey,
    pub(crate) partition: Option<u32>,
    pub(crate) redelivery_count: u32,
    pub(crate) ack_set: Box<[i64]>,
    pub(crate) body: Body,
}

/// The entry itself.
pub(crate) enum Body {
    Here(Arc<FeedEntry>, Held),
    /// Set aside.
    Aside {
        ordinal: Ordinal,
        bytes: usize,
        /// Messages in it.
        messages: u32,
    },
}

/// The queue.
#[derive(Default)]
pub(crate) struct Queue {
    items: VecDeque<Item>,
    /// Items whose body is here.
    here: usize,
}

impl From<Dispatched> for Item {
    fn from(dispatched: Dispatched) -> Self {
        Self {
            consumer_id: dispatched.consumer_id,
            key: dispatched.key,
            partition: dispatched.partition,
            redelivery_count: dispatched.redelivery_count,
            ack_set: dispatched.ack_set,
            body: Body::Here(dispatched.entry, dispatched.held),
        }
    }
}

impl Queue {
    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// True if it holds any payload.
    pub(crate) fn holds(&self) -> bool {
        self.here > 0
    }

    pub(crate) fn extend(&mut self, dispatched: Vec<Dispatched>) {
        self.here += dispatched.len();
        self.items.extend(dispatched.into_iter().map(Item::from));
    }

    pub(crate) fn front(&self) -> Option<&Item> {
        self.items.front()
    }

    pub(crate) fn pop(&mut self) -> Option<Item> {
        let item = self.items.pop_front()?;
        self.here -= usize::from(matches!(item.body, Body::Here(..)));
        Some(item)
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// True if a payload cannot be read again once it is dropped.
    pub(crate) fn has_unstored(&self) -> bool {
        self.items
            .iter()
            .any(|item| matches!(&item.body, Body::Here(_, held) if !held.is_stored()))
    }

    /// Lets go of all payloads.
    pub(crate) fn set_aside(&mut self) {
        for item in &mut self.items {
            let Body::Here(entry, _) = &item.body else {
                continue;
            };
            let aside = Body::Aside {
                ordinal: entry.ordinal,
                bytes: entry.payload.len(),
                messages: entry.facts.message_count.max(1),
            };
            if let Body::Here(_, held) = std::mem::replace(&mut item.body, aside) {
                held.set_aside();
            }
        }
        self.here = 0;
    }

    /// The first entries, as far as they rise, if they are set aside and for this consumer, and their bytes.
    pub(crate) fn aside(&self, key: ConsumerKey) -> (Vec<Ordinal>, usize) {
        let (mut ordinals, mut sum) = (Vec::<Ordinal>::new(), 0);
        for item in self.items.iter().take(READ_ENTRIES_MAX) {
            let Body::Aside { ordinal, bytes, .. } = item.body else {
                break;
            };
            let rises = ordinals.last().is_none_or(|last| *last < ordinal);
            let fits = ordinals.is_empty() || sum + bytes <= READ_BYTES_MAX;
            if item.key != key || !rises || !fits {
                break;
            }
            ordinals.push(ordinal);
            sum += bytes;
        }
        (ordinals, sum)
    }

    /// Puts back what was read again of the first entries, those of this consumer, and takes out what is gone. Says which messages
    /// and bytes the consumer was charged for and will not get.
    pub(crate) fn bring_back(
        &mut self,
        key: ConsumerKey,
        mut entries: Vec<(Arc<FeedEntry>, Held)>,
        gone: &[Ordinal],
    ) -> (u32, u64) {
        let (mut messages_gone, mut bytes_gone) = (0, 0);
        let rest = self.items.split_off(self.items.len().min(READ_ENTRIES_MAX));
        for mut item in std::mem::replace(&mut self.items, rest).into_iter().rev() {
            if let Body::Aside {
                ordinal,
                bytes,
                messages,
            } = item.body
                && item.key == key
            {
                if gone.contains(&ordinal) {
                    messages_gone += charged(&item.ack_set, messages);
                    bytes_gone += bytes as u64;
                    continue;
                }
                if let Some(at) = entries.iter().position(|(entry, _)| entry.ordinal == ordinal) {
                    let (entry, held) = entries.swap_remove(at);
                    item.body = Body::Here(entry, held);
                    self.here += 1;
                }
            }
            self.items.push_front(item);
        }
        (messages_gone, bytes_gone)
    }
}

/// Messages of an entry that its consumer was charged for.
fn charged(ack_set: &[i64], messages: u32) -> u32 {
    match ack_set {
        [] => messages,
        words => words
            .iter()
            .map(|word| word.count_ones())
            .sum::<u32>()
            .min(messages),
    }
}

#[cfg(test)]
mod tests {
    use pharos_broker::entry::EntryFacts;
    use pharos_broker::unwritten::Unwritten;
    use pharos_runtime::Nanos;
    use pharos_types::Position;

    use super::*;

    const KEY: ConsumerKey = ConsumerKey(7);

    fn entry(ordinal: u64) -> Arc<FeedEntry> {
        Arc::new(FeedEntry {
            ordinal: Ordinal(ordinal),
            position: Position::new(1, ordinal),
            payload: vec![1; 100].into(),
            facts: EntryFacts {
                message_count: 10,
                ..EntryFacts::default()
            },
            durable_at: Nanos(0),
        })
    }

    fn dispatched(account: &Arc<Unwritten>, key: ConsumerKey, ordinal: u64, ack_set: &[i64]) -> Dispatched {
        Dispatched {
            consumer_id: 1,
            key,
            entry: entry(ordinal),
            held: account.hold(100, true),
            partition: None,
            redelivery_count: 3,
            ack_set: ack_set.into(),
        }
    }

    #[test]
    fn entries_that_were_set_aside_come_back_in_their_order_without_those_that_are_gone() {
        let account = Unwritten::new(1 << 20);
        let mut queue = Queue::default();
        let other = ConsumerKey(8);
        queue.extend(vec![
            dispatched(&account, KEY, 4, &[]),
            dispatched(&account, KEY, 5, &[0b101]),
            dispatched(&account, KEY, 6, &[]),
            dispatched(&account, KEY, 3, &[]),
            dispatched(&account, other, 9, &[]),
        ]);
        assert!(queue.holds() && account.used() == 500);
        queue.set_aside();
        assert!(!queue.holds() && account.used() == 0);
        // Only as far as they rise, and for one consumer.
        let wanted = queue.aside(KEY);
        assert_eq!(wanted, (vec![Ordinal(4), Ordinal(5), Ordinal(6)], 300));
        let back = [4, 6].map(|ordinal| (entry(ordinal), account.hold(100, true)));
        let gone = queue.bring_back(KEY, back.into(), &[Ordinal(5)]);
        assert_eq!(gone, (2, 100));
        assert!(queue.holds() && account.used() == 200);
        let mut order = Vec::new();
        while let Some(item) = queue.pop() {
            order.push(match item.body {
                Body::Here(entry, _) => (entry.ordinal.0, true),
                Body::Aside { ordinal, .. } => (ordinal.0, false),
            });
            assert_eq!(item.redelivery_count, 3);
        }
        assert_eq!(order, [(4, true), (6, true), (3, false), (9, false)]);
        assert!(!queue.holds() && account.used() == 0);
    }

    #[test]
    fn as_many_are_read_again_as_fit() {
        let account = Unwritten::new(1 << 20);
        let mut queue = Queue::default();
        queue.extend(
            (0..200)
                .map(|ordinal| dispatched(&account, KEY, ordinal, &[]))
                .collect(),
        );
        queue.set_aside();
        let (ordinals, bytes) = queue.aside(KEY);
        assert_eq!(
            (ordinals.len(), bytes),
            (READ_ENTRIES_MAX, READ_ENTRIES_MAX * 100)
        );
        // Nothing came back: all is as it was.
        assert_eq!(queue.bring_back(KEY, Vec::new(), &[]), (0, 0));
        assert_eq!(queue.aside(KEY).0, ordinals);
        assert_eq!(std::iter::from_fn(|| queue.pop()).count(), 200);
    }
}
