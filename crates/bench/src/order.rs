//! Did every consumer get every message, once, in order?
//!
//! Each consumer is one small number, the next sequence it expects. Only a consumer for which something went wrong costs
//! more: the set of sequences it jumped over.

use std::collections::{BTreeSet, HashMap};

/// Classification of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// The next one, or the first after a gap.
    New,
    /// A sequence that a later one had overtaken.
    Late,
    /// Seen before.
    Duplicate,
}

/// Sums over all consumers of one process.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct OrderCounts {
    /// Messages a consumer never got.
    pub(crate) lost: u64,
    /// Deliveries beyond the first.
    pub(crate) duplicates: u64,
    /// Messages that came after a later one.
    pub(crate) out_of_order: u64,
    /// The furthest a duplicate lay behind its consumer's newest message, in messages.
    pub(crate) duplicate_reach: u64,
}

impl OrderCounts {
    /// Adds another process's sums.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.lost += other.lost;
        self.duplicates += other.duplicates;
        self.out_of_order += other.out_of_order;
        self.duplicate_reach = self.duplicate_reach.max(other.duplicate_reach);
    }
}

/// The check for a group of consumers numbered from 0.
#[derive(Debug)]
pub(crate) struct OrderCheck {
    expected: Vec<u32>,
    missing: HashMap<u32, BTreeSet<u32>>,
    counts: OrderCounts,
}

impl OrderCheck {
    /// `consumers` consumers, each expecting sequence 0.
    pub(crate) fn new(consumers: usize) -> Self {
        Self {
            expected: vec![0; consumers],
            missing: HashMap::new(),
            counts: OrderCounts::default(),
        }
    }

    /// Records one delivery. A delivery to a consumer that does not exist is ignored, and counts as a duplicate.
    #[inline]
    pub(crate) fn arrived(&mut self, consumer: u32, sequence: u32) -> Arrival {
        let Some(expected) = self.expected.get_mut(consumer as usize) else {
            return Arrival::Duplicate;
        };
        if *expected == sequence {
            *expected += 1;
            return Arrival::New;
        }
        self.anomaly(consumer, sequence)
    }

    #[cold]
    fn anomaly(&mut self, consumer: u32, sequence: u32) -> Arrival {
        let Some(expected) = self.expected.get_mut(consumer as usize) else {
            return Arrival::Duplicate;
        };
        if sequence > *expected {
            self.missing
                .entry(consumer)
                .or_default()
                .extend(*expected..sequence);
            *expected = sequence + 1;
            return Arrival::New;
        }
        if self
            .missing
            .get_mut(&consumer)
            .is_some_and(|missing| missing.remove(&sequence))
        {
            self.counts.out_of_order += 1;
            return Arrival::Late;
        }
        self.counts.duplicates += 1;
        self.counts.duplicate_reach = self.counts.duplicate_reach.max(u64::from(*expected - sequence));
        Arrival::Duplicate
    }

    /// Messages not yet seen, if `total` were sent.
    pub(crate) fn outstanding(&self, total: u32) -> u64 {
        let behind: u64 = self
            .expected
            .iter()
            .map(|expected| u64::from(total.saturating_sub(*expected)))
            .sum();
        behind
            + self
                .missing
                .values()
                .map(|missing| missing.len() as u64)
                .sum::<u64>()
    }

    /// The sums, with everything outstanding counted as lost.
    pub(crate) fn finish(&self, total: u32) -> OrderCounts {
        OrderCounts {
            lost: self.outstanding(total),
            ..self.counts.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(sequences: &[u32], total: u32) -> OrderCounts {
        let mut check = OrderCheck::new(2);
        for sequence in sequences {
            check.arrived(1, *sequence);
        }
        // The other consumer got everything.
        for sequence in 0..total {
            assert_eq!(check.arrived(0, sequence), Arrival::New);
        }
        check.finish(total)
    }

    #[test]
    fn everything_in_order_is_clean() {
        assert_eq!(check(&[0, 1, 2, 3], 4), OrderCounts::default());
    }

    #[test]
    fn a_gap_is_lost_and_so_is_the_tail() {
        assert_eq!(
            check(&[0, 2], 4),
            OrderCounts {
                lost: 2,
                ..OrderCounts::default()
            }
        );
    }

    #[test]
    fn a_gap_filled_later_is_out_of_order_not_lost() {
        assert_eq!(
            check(&[0, 2, 1, 3], 4),
            OrderCounts {
                out_of_order: 1,
                ..OrderCounts::default()
            }
        );
    }

    #[test]
    fn a_replay_is_duplicates_and_says_how_far_back_it_went() {
        let counts = check(&[0, 1, 2, 1, 2, 3], 4);
        assert_eq!(
            counts,
            OrderCounts {
                duplicates: 2,
                duplicate_reach: 2,
                ..OrderCounts::default()
            }
        );
    }
}
