//! Acknowledgement of batch members: the part of the entry, the whole entry, or nothing yet is sent to the broker.

use std::collections::HashMap;

use pharos_wire::proto::MessageIdData;

/// Remembers which members of an entry are acknowledged, while some are not.
#[derive(Debug, Default)]
pub(super) struct Batches {
    /// Bits of the members that remain, by ledger and entry. As long as there are entries partly acknowledged, which
    /// the permits bound.
    remaining: HashMap<(u64, u64), Vec<i64>>,
}

impl Batches {
    /// The id to send for one acknowledged message; `None` to send nothing yet.
    ///
    /// `by_index`: the broker keeps the members apart.
    pub(super) fn individual(&mut self, id: &MessageIdData, by_index: bool) -> Option<MessageIdData> {
        let Some((index, size)) = member(id) else {
            return Some(entry(id));
        };
        if by_index {
            let mut part = entry(id);
            part.ack_set = all(size);
            clear(&mut part.ack_set, index);
            part.batch_size = id.batch_size;
            // The last bit of all is the whole entry, as a batch of one is.
            if part.ack_set.iter().all(|word| *word == 0) {
                part.ack_set.clear();
            }
            return Some(part);
        }
        let key = (id.ledger_id, id.entry_id);
        let remaining = self.remaining.entry(key).or_insert_with(|| all(size));
        clear(remaining, index);
        if remaining.iter().any(|word| *word != 0) {
            return None;
        }
        self.remaining.remove(&key);
        Some(entry(id))
    }

    /// The id to send for everything up to and including one message; `None` to send nothing.
    pub(super) fn cumulative(&mut self, id: &MessageIdData, by_index: bool) -> Option<MessageIdData> {
        self.remaining
            .retain(|(ledger, entry), _| (*ledger, *entry) > (id.ledger_id, id.entry_id));
        let Some((index, size)) = member(id).filter(|(index, size)| index + 1 < *size) else {
            return Some(entry(id));
        };
        if by_index {
            let mut part = entry(id);
            part.ack_set = all(size);
            (0..=index).for_each(|index| clear(&mut part.ack_set, index));
            part.batch_size = id.batch_size;
            return Some(part);
        }
        // Without parts, only what is before this entry can be said.
        let before = id.entry_id.checked_sub(1)?;
        Some(MessageIdData {
            entry_id: before,
            ..entry(id)
        })
    }

    /// Forgets what was acknowledged so far, because messages will come again.
    pub(super) fn clear(&mut self) {
        self.remaining.clear();
    }

    /// Forgets one entry likewise.
    pub(super) fn forget(&mut self, id: &MessageIdData) {
        self.remaining.remove(&(id.ledger_id, id.entry_id));
    }
}

/// Index and size, when the message is a member of a batch.
fn member(id: &MessageIdData) -> Option<(u32, u32)> {
    let index = u32::try_from(id.batch_index?).ok()?;
    let size = u32::try_from(id.batch_size?).ok()?;
    (index < size).then_some((index, size))
}

/// The entry without the member.
fn entry(id: &MessageIdData) -> MessageIdData {
    MessageIdData {
        ledger_id: id.ledger_id,
        entry_id: id.entry_id,
        partition: id.partition,
        ..Default::default()
    }
}

/// A set of `size` bits, all of them set.
fn all(size: u32) -> Vec<i64> {
    let words = size.div_ceil(64);
    let word = |index: u32| match size - index * 64 {
        64.. => -1,
        rest => ((1_u64 << rest) - 1).cast_signed(),
    };
    (0..words).map(word).collect()
}

fn clear(set: &mut [i64], index: u32) {
    if let Some(word) = usize::try_from(index / 64)
        .ok()
        .and_then(|word| set.get_mut(word))
    {
        *word &= !(1_i64 << (index % 64));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(entry_id: u64, index: i32, size: i32) -> MessageIdData {
        MessageIdData {
            ledger_id: 1,
            entry_id,
            batch_index: Some(index),
            batch_size: Some(size),
            ..Default::default()
        }
    }

    fn set(id: Option<MessageIdData>) -> Option<Vec<i64>> {
        id.map(|id| id.ack_set)
    }

    #[test]
    fn sets_have_a_bit_per_member() {
        assert_eq!(all(3), [7]);
        assert_eq!(all(64), [-1]);
        assert_eq!(all(65), [-1, 1]);
        assert_eq!(all(63), [i64::MAX]);
    }

    #[test]
    fn parts_are_told_by_what_remains() {
        let mut batches = Batches::default();
        assert_eq!(set(batches.individual(&id(0, 1, 3), true)), Some(vec![0b101]));
        assert_eq!(set(batches.individual(&id(0, 0, 1), true)), Some(vec![]));
        assert_eq!(set(batches.cumulative(&id(0, 1, 3), true)), Some(vec![0b100]));
        assert_eq!(set(batches.cumulative(&id(0, 2, 3), true)), Some(vec![]));
    }

    #[test]
    fn without_parts_an_entry_is_told_when_it_is_whole() {
        let mut batches = Batches::default();
        assert_eq!(batches.individual(&id(5, 0, 2), false), None);
        assert_eq!(batches.individual(&id(5, 0, 2), false), None);
        let whole = batches.individual(&id(5, 1, 2), false).unwrap();
        assert_eq!((whole.entry_id, whole.batch_index), (5, None));
        let before = batches.cumulative(&id(5, 0, 2), false).unwrap();
        assert_eq!(before.entry_id, 4);
        assert_eq!(batches.cumulative(&id(0, 0, 2), false), None);
        assert!(batches.remaining.is_empty());
    }
}
