//! Times at which each recent entry arrived, was first dispatched and was written, so that the later stages of its
//! delivery can be timed.

use std::collections::VecDeque;

use pharos_runtime::{Histogram, Nanos, clock};
use pharos_types::Ordinal;

use crate::entry::FeedEntry;

/// Number of newest entries that are timed; older ones no longer matter.
const ENTRIES_MAX: usize = 1024;
/// Number of entries that stay timed after leaving memory, so that their acknowledgements are timed however late.
const ENTRIES_KEPT: usize = 64;

/// The stages that happen on a listening shard.
#[derive(Clone, Debug, Default)]
pub struct FeedStages {
    /// Durable on the home shard → known on this shard.
    pub notification: Histogram,
    /// Known → first dealt to a consumer.
    pub preparation: Histogram,
    /// First dealt → handed to the socket, per delivery.
    pub broadcasting: Histogram,
    /// First dealt → acknowledged, per acknowledgement.
    pub acknowledgement: Histogram,
}

impl FeedStages {
    /// Adds another shard's.
    pub fn merge(&mut self, other: &Self) {
        self.notification.merge(&other.notification);
        self.preparation.merge(&other.preparation);
        self.broadcasting.merge(&other.broadcasting);
        self.acknowledgement.merge(&other.acknowledgement);
    }
}

#[derive(Debug)]
struct Times {
    ordinal: Ordinal,
    arrived: Nanos,
    /// Zero until it was dealt to a consumer.
    prepared: Nanos,
}

/// The newest entries' times, in order of ordinals.
#[derive(Debug, Default)]
pub(super) struct Timeline {
    entries: VecDeque<Times>,
    stages: FeedStages,
}

impl Timeline {
    pub(super) fn arrived(&mut self, entry: &FeedEntry, now: Nanos) {
        self.stages.notification.record(now.since(entry.durable_at));
        if self.entries.len() >= ENTRIES_MAX {
            self.entries.pop_front();
        }
        if self
            .entries
            .back()
            .is_some_and(|last| last.ordinal >= entry.ordinal)
        {
            return;
        }
        self.entries.push_back(Times {
            ordinal: entry.ordinal,
            arrived: now,
            prepared: Nanos(0),
        });
    }

    /// Only so many of the newest entries are still at hand: lets go of what is known of much older ones.
    pub(super) fn forget_before(&mut self, at_hand: usize) {
        let keep = at_hand.max(ENTRIES_KEPT);
        let old = self.entries.len().saturating_sub(keep);
        self.entries.drain(..old);
        self.entries.shrink_to(2 * keep);
    }

    /// Notes that an entry is ready to be sent, the first time; when that was. Of one that is not live, or no longer known, it
    /// is now.
    pub(super) fn prepared(&mut self, entry: &FeedEntry) -> Nanos {
        let known = entry.is_live().then(|| self.index_of(entry.ordinal)).flatten();
        let Some(times) = known.and_then(|index| self.entries.get_mut(index)) else {
            return clock::now();
        };
        if times.prepared == Nanos(0) {
            times.prepared = clock::now();
            let waited = times.prepared.since(times.arrived);
            self.stages.preparation.record(waited);
        }
        times.prepared
    }

    pub(super) fn written(&mut self, entry: &FeedEntry, messages: u64, now: Nanos) {
        if let Some(prepared) = self.prepared_at(entry.ordinal) {
            self.stages.broadcasting.record_n(now.since(prepared), messages);
        }
    }

    pub(super) fn acknowledged(&mut self, ordinal: Ordinal, now: Nanos) {
        if let Some(prepared) = self.prepared_at(ordinal) {
            self.stages.acknowledgement.record(now.since(prepared));
        }
    }

    pub(super) fn stages(&self) -> FeedStages {
        self.stages.clone()
    }

    fn prepared_at(&self, ordinal: Ordinal) -> Option<Nanos> {
        let times = self.entries.get(self.index_of(ordinal)?)?;
        (times.prepared != Nanos(0)).then_some(times.prepared)
    }

    /// Ordinals are nearly always contiguous, so the place follows from the distance to the last; a gap falls back
    /// to a binary search.
    fn index_of(&self, ordinal: Ordinal) -> Option<usize> {
        let last = self.entries.back()?.ordinal;
        let back = usize::try_from(ordinal.count_to(last)).ok()?;
        let guess = self.entries.len().checked_sub(1 + back);
        if let Some(index) = guess
            && self
                .entries
                .get(index)
                .is_some_and(|times| times.ordinal == ordinal)
        {
            return Some(index);
        }
        self.entries
            .binary_search_by_key(&ordinal, |times| times.ordinal)
            .ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::window::tests::entry;

    #[test]
    fn a_quiet_topic_keeps_the_times_of_its_last_entries_only() {
        let mut timeline = Timeline::default();
        for ordinal in 0..1000 {
            timeline.arrived(&entry(ordinal, 1), Nanos(1000 + ordinal));
        }
        timeline.forget_before(900);
        assert_eq!(timeline.entries.len(), 900);
        timeline.forget_before(0);
        assert_eq!(timeline.entries.len(), ENTRIES_KEPT);
        assert!(timeline.entries.capacity() <= 2 * ENTRIES_KEPT);
        assert!(timeline.index_of(Ordinal(999)).is_some() && timeline.index_of(Ordinal(935)).is_none());
        timeline.prepared(&entry(999, 1));
        timeline.acknowledged(Ordinal(999), clock::now());
        timeline.acknowledged(Ordinal(5), clock::now());
        assert_eq!(timeline.stages().acknowledgement.count(), 1);
    }
}
