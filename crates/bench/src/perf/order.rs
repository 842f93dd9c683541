//! Check that one consumer got the messages of every producer once and in order.

use std::collections::BTreeSet;

use crate::proto::payload::Stamp;

use super::slice::Slice;

/// Skipped messages remembered per consumer, to tell late ones from doubled ones.
const MISSING_MAX: usize = 1 << 20;

/// Next expected message of each producer, for one consumer.
#[derive(Debug, Default)]
pub(crate) struct OrderOf {
    expected: Vec<(u32, u64)>,
    /// Skipped so far: source and sequence.
    missing: BTreeSet<(u32, u64)>,
}

impl OrderOf {
    /// Checks one message. `from_first`: a producer not seen before must begin at 0; otherwise it may begin anywhere.
    #[inline]
    pub(super) fn check(&mut self, stamp: &Stamp, from_first: bool, slice: &mut Slice) {
        let known = self
            .expected
            .iter_mut()
            .find(|(source, _)| *source == stamp.source);
        match known {
            Some((_, expected)) if stamp.sequence == *expected => *expected += 1,
            Some(_) => self.anomaly(stamp, slice),
            None => self.begin(stamp, from_first, slice),
        }
    }

    #[cold]
    fn begin(&mut self, stamp: &Stamp, from_first: bool, slice: &mut Slice) {
        let first = if from_first { 0 } else { stamp.sequence };
        self.expected.push((stamp.source, first));
        self.check(stamp, from_first, slice);
    }

    #[cold]
    fn anomaly(&mut self, stamp: &Stamp, slice: &mut Slice) {
        let known = self
            .expected
            .iter_mut()
            .find(|(source, _)| *source == stamp.source);
        let Some((source, expected)) = known else {
            return;
        };
        if stamp.sequence > *expected {
            slice.gaps += (stamp.sequence - *expected) as i64;
            let room = MISSING_MAX.saturating_sub(self.missing.len());
            self.missing.extend(
                (*expected..stamp.sequence)
                    .take(room)
                    .map(|sequence| (*source, sequence)),
            );
            *expected = stamp.sequence + 1;
        } else if self.missing.remove(&(stamp.source, stamp.sequence)) {
            slice.gaps -= 1;
            slice.out_of_order += 1;
        } else {
            slice.duplicates += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(from_first: bool, messages: &[(u32, u64)]) -> (i64, u64, u64) {
        let (mut order, mut slice) = (OrderOf::default(), Slice::default());
        for (source, sequence) in messages {
            let stamp = Stamp {
                sequence: *sequence,
                sent_ns: 0,
                source: *source,
            };
            order.check(&stamp, from_first, &mut slice);
        }
        (slice.gaps, slice.out_of_order, slice.duplicates)
    }

    #[test]
    fn order_is_kept_per_producer() {
        let messages = [(1, 5), (2, 0), (1, 6), (2, 1), (2, 4), (1, 6)];
        assert_eq!(counts(false, &messages), (2, 0, 1));
    }

    #[test]
    fn what_comes_late_is_not_lost() {
        assert_eq!(counts(true, &[(1, 0), (1, 3), (1, 1), (1, 2), (1, 4)]), (0, 2, 0));
    }

    #[test]
    fn a_missing_beginning_counts_where_it_must_be_there() {
        assert_eq!(counts(true, &[(1, 2)]), (2, 0, 0));
        assert_eq!(counts(false, &[(1, 2)]), (0, 0, 0));
    }
}
