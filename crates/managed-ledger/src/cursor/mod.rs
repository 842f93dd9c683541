//! Acknowledgement state of one cursor: plain data, no I/O, no async.
//!
//! ```text
//!   ordinals   0 1 2 3 4 5 6 7 8 9 …
//!              x x x . x x ~ . x .
//!                    │ └┬┘ │   └ range 8..9
//!                    │  │  └ batch 6: partly acknowledged, the words say which indexes remain
//!                    │  └ range 4..6
//!                    └ acked_to (exclusive): everything below is acknowledged, this one is not
//! ```
//!
//! Owned by the shard of the cursor: the home shard for main cursors, a connection's shard for virtual ones.
//!
//! Always true:
//! - the entry at `acked_to` is not acknowledged as a whole; ranges begin after it, do not touch and are not empty;
//! - a batch set names an entry at or after `acked_to` outside every range, and has at least one index remaining;
//! - without holes and partial batches an [`AckState`] is 16 bytes and owns no heap: 100,000 of them exist.
//!
//! `acked_to` is exclusive because counting is then plain subtraction; Pulsar's *inclusive* mark-delete position is
//! the entry before it (`LedgerTable::mark_delete` converts at the edges). Batch words are the wire's `ack_set`: bit
//! set = index still to be acknowledged, lowest index first (PulsarApi.proto, `MessageIdData`).

use std::collections::BTreeMap;

use pharos_types::Ordinal;

mod codec;
#[cfg(test)]
mod tests;

/// Acknowledged ranges that are kept when a state is encoded; the lowest win, the others are delivered again.
pub const RANGES_PERSISTED_MAX: usize = 10_000;
/// Partly acknowledged batches that are kept when a state is encoded; the lowest win.
pub const BATCHES_PERSISTED_MAX: usize = 10_000;
/// Words of batch sets, all batches together, that are kept when a state is encoded (1 MiB); the lowest batches win.
pub const WORDS_PERSISTED_MAX: usize = 131_072;
/// Longest batch set that is taken, in words of 64 indexes; longer ones are ignored (so: delivered again).
pub const BATCH_WORDS_MAX: usize = 8_192;

/// Bytes of a disk that are not what this crate writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("malformed: {0}")]
pub struct Malformed(pub &'static str);

/// Effect of an acknowledgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AckOutcome {
    /// Nothing: it was known already.
    Unchanged,
    /// Some indexes of a batch; the entry is not done.
    Partial,
    /// A whole entry beyond a hole; `acked_to` stays.
    Recorded,
    /// `acked_to` moved.
    Advanced,
}

impl AckOutcome {
    /// True if `acked_to` moved.
    #[must_use]
    pub fn advanced(self) -> bool {
        self == Self::Advanced
    }

    /// True if anything changed, so that it should be persisted.
    #[must_use]
    pub fn changed(self) -> bool {
        self != Self::Unchanged
    }
}

/// The acknowledgement state of one cursor. See the module for its shape.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AckState {
    /// Everything below is acknowledged; the entry here is not.
    acked_to: u64,
    /// State above `acked_to`; `None` without holes and partial batches.
    beyond: Option<Box<Beyond>>,
}

const _: () = assert!(std::mem::size_of::<AckState>() == 16);

/// The sparse part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Beyond {
    /// Start → end (exclusive) of acknowledged runs.
    ranges: BTreeMap<u64, u64>,
    /// Sum of the ranges' lengths, so that a backlog is counted without a walk.
    ranges_count: u64,
    /// Remaining indexes of partly acknowledged batches; no trailing zero word, never empty.
    batches: BTreeMap<u64, Box<[i64]>>,
}

impl AckState {
    /// Everything below `to` acknowledged, nothing from there on.
    #[must_use]
    pub fn new(to: Ordinal) -> Self {
        Self {
            acked_to: to.0,
            beyond: None,
        }
    }

    /// Everything below is acknowledged (exclusive); the entry here is the first that is not.
    #[must_use]
    pub fn acked_to(&self) -> Ordinal {
        Ordinal(self.acked_to)
    }

    /// True if entries or batch indexes beyond [`acked_to`](Self::acked_to) are acknowledged.
    #[must_use]
    pub fn has_holes(&self) -> bool {
        self.beyond.is_some()
    }

    /// Acknowledges one whole entry.
    pub fn ack(&mut self, ordinal: Ordinal) -> AckOutcome {
        if self.is_acked(ordinal) {
            return AckOutcome::Unchanged;
        }
        // The last representable ordinal has no exclusive end; no log gets there.
        let Some(end) = ordinal.0.checked_add(1) else {
            return AckOutcome::Unchanged;
        };
        if ordinal.0 == self.acked_to {
            self.advance(end);
            return AckOutcome::Advanced;
        }
        let beyond = self.beyond.get_or_insert_default();
        beyond.batches.remove(&ordinal.0);
        beyond.insert(ordinal.0, end);
        AckOutcome::Recorded
    }

    /// Acknowledges some indexes of a batch. `remaining`: bit set = still to be acknowledged; it is combined (AND) with
    /// what is known, and indexes beyond its words count as acknowledged. When none remain the entry is acknowledged.
    ///
    /// Words beyond [`BATCH_WORDS_MAX`] make the call a no-op: delivered again rather than lost.
    pub fn ack_batch(&mut self, ordinal: Ordinal, remaining: &[i64]) -> AckOutcome {
        if self.is_acked(ordinal) || remaining.len() > BATCH_WORDS_MAX {
            return AckOutcome::Unchanged;
        }
        let known = self.remaining_batch(ordinal);
        let mut words: Vec<i64> = match known {
            Some(known) => known
                .iter()
                .zip(remaining)
                .map(|(known, new)| known & new)
                .collect(),
            None => remaining.to_vec(),
        };
        while words.last() == Some(&0) {
            words.pop();
        }
        if words.is_empty() {
            return self.ack(ordinal);
        }
        if known == Some(words.as_slice()) {
            return AckOutcome::Unchanged;
        }
        self.beyond
            .get_or_insert_default()
            .batches
            .insert(ordinal.0, words.into_boxed_slice());
        AckOutcome::Partial
    }

    /// Acknowledges the entries `from..to`.
    pub fn ack_range(&mut self, from: Ordinal, to: Ordinal) {
        let from = from.0.max(self.acked_to);
        if from >= to.0 {
            return;
        }
        if from == self.acked_to {
            self.advance(to.0);
            return;
        }
        let beyond = self.beyond.get_or_insert_default();
        let (start, end) = beyond.take_touching(from, to.0);
        beyond.insert(start, end);
        let later = beyond.batches.split_off(&to.0);
        beyond.batches.split_off(&from);
        beyond.batches.extend(later);
    }

    /// Acknowledges every entry up to and including `ordinal`.
    pub fn ack_cumulative(&mut self, ordinal: Ordinal) -> AckOutcome {
        match ordinal.0.checked_add(1) {
            Some(end) if end > self.acked_to => {
                self.advance(end);
                AckOutcome::Advanced
            }
            _ => AckOutcome::Unchanged,
        }
    }

    /// Acknowledges every entry before `ordinal`, and of that batch all indexes that are not in `remaining`.
    pub fn ack_cumulative_batch(&mut self, ordinal: Ordinal, remaining: &[i64]) -> AckOutcome {
        let advanced = self.raise_to(ordinal);
        let outcome = self.ack_batch(ordinal, remaining);
        if advanced { AckOutcome::Advanced } else { outcome }
    }

    /// Acknowledges everything below `to`, for entries that are gone (trimmed, expired). Whether that moved anything.
    pub fn raise_to(&mut self, to: Ordinal) -> bool {
        let moves = to.0 > self.acked_to;
        if moves {
            self.advance(to.0);
        }
        moves
    }

    /// Forgets what is known at and beyond `end`, for a log that came back shorter than the cursor remembers.
    /// Whether that changed anything.
    pub fn clamp_to(&mut self, end: Ordinal) -> bool {
        let mut changed = false;
        if let Some(beyond) = &mut self.beyond {
            changed |= beyond.cut_at(end.0);
        }
        if self.acked_to > end.0 {
            self.acked_to = end.0;
            changed = true;
        }
        self.tidy();
        changed
    }

    /// Everything below `to` acknowledged, nothing from there on: a seek.
    pub fn reset(&mut self, to: Ordinal) {
        *self = Self::new(to);
    }

    /// True if the whole entry is acknowledged.
    #[must_use]
    pub fn is_acked(&self, ordinal: Ordinal) -> bool {
        ordinal.0 < self.acked_to || self.range_around(ordinal.0).is_some()
    }

    /// The indexes of a batch that remain, when some of it is acknowledged and not all: the wire's `ack_set`.
    #[must_use]
    pub fn remaining_batch(&self, ordinal: Ordinal) -> Option<&[i64]> {
        self.beyond
            .as_ref()?
            .batches
            .get(&ordinal.0)
            .map(|words| &**words)
    }

    /// Entries in `acked_to..end` that are not acknowledged; a partly acknowledged batch counts as one.
    #[must_use]
    pub fn backlog(&self, end: Ordinal) -> u64 {
        let acked = self.beyond.as_ref().map_or(0, |beyond| beyond.count_below(end.0));
        end.0.saturating_sub(self.acked_to) - acked
    }

    /// The first ordinal at or after `from` that is not acknowledged.
    #[must_use]
    pub fn next_unacked(&self, from: Ordinal) -> Ordinal {
        let from = from.0.max(self.acked_to);
        Ordinal(self.range_around(from).map_or(from, |(_, end)| end))
    }

    /// The acknowledged runs beyond [`acked_to`](Self::acked_to) as `start..end`, rising.
    pub fn acked_ranges(&self) -> impl Iterator<Item = (Ordinal, Ordinal)> + '_ {
        let ranges = self.beyond.iter().flat_map(|beyond| &beyond.ranges);
        ranges.map(|(&start, &end)| (Ordinal(start), Ordinal(end)))
    }

    /// The partly acknowledged batches and their remaining indexes, rising.
    pub fn partial_batches(&self) -> impl Iterator<Item = (Ordinal, &[i64])> + '_ {
        let batches = self.beyond.iter().flat_map(|beyond| &beyond.batches);
        batches.map(|(&ordinal, words)| (Ordinal(ordinal), &**words))
    }

    /// The run that holds `ordinal`.
    fn range_around(&self, ordinal: u64) -> Option<(u64, u64)> {
        let (&start, &end) = self.beyond.as_ref()?.ranges.range(..=ordinal).next_back()?;
        (ordinal < end).then_some((start, end))
    }

    /// Moves `acked_to` up to `to`, and on over a run that begins there.
    fn advance(&mut self, to: u64) {
        self.acked_to = to;
        if let Some(beyond) = &mut self.beyond {
            self.acked_to = beyond.drop_below(to);
        }
        self.tidy();
    }

    /// Gives the heap back when the last hole is gone.
    fn tidy(&mut self) {
        if self
            .beyond
            .as_ref()
            .is_some_and(|beyond| beyond.ranges.is_empty() && beyond.batches.is_empty())
        {
            self.beyond = None;
        }
    }
}

impl Beyond {
    /// Adds `start..end`, which overlaps no run, joining its neighbours.
    fn insert(&mut self, mut start: u64, mut end: u64) {
        self.ranges_count += end - start;
        if let Some((&left, &left_end)) = self.ranges.range(..start).next_back()
            && left_end == start
        {
            start = left;
        }
        if let Some(right_end) = self.ranges.remove(&end) {
            end = right_end;
        }
        self.ranges.insert(start, end);
    }

    /// Takes out the runs that `start..end` overlaps. Returns it as long as with them.
    fn take_touching(&mut self, mut start: u64, mut end: u64) -> (u64, u64) {
        while let Some((&run, &run_end)) = self.ranges.range(..end).next_back()
            && run_end > start
        {
            self.ranges.remove(&run);
            self.ranges_count -= run_end - run;
            (start, end) = (start.min(run), end.max(run_end));
        }
        (start, end)
    }

    /// Drops what lies below `to` and a run that reaches or touches it. Returns the first ordinal not acknowledged.
    fn drop_below(&mut self, to: u64) -> u64 {
        let mut acked_to = to;
        while let Some(first) = self.ranges.first_entry() {
            if *first.key() > acked_to {
                break;
            }
            let (start, end) = first.remove_entry();
            self.ranges_count -= end - start;
            acked_to = acked_to.max(end);
        }
        while let Some(first) = self.batches.first_entry() {
            if *first.key() >= acked_to {
                break;
            }
            first.remove();
        }
        acked_to
    }

    /// Drops what lies at or beyond `end`. Whether anything did.
    fn cut_at(&mut self, end: u64) -> bool {
        let mut changed = !self.batches.split_off(&end).is_empty();
        for (start, range_end) in self.ranges.split_off(&end) {
            self.ranges_count -= range_end - start;
            changed = true;
        }
        if let Some(mut last) = self.ranges.last_entry()
            && *last.get() > end
        {
            self.ranges_count -= *last.get() - end;
            *last.get_mut() = end;
            changed = true;
        }
        changed
    }

    /// Acknowledged entries of the runs below `end`.
    fn count_below(&self, end: u64) -> u64 {
        match self.ranges.last_key_value() {
            Some((_, &last_end)) if last_end > end => self
                .ranges
                .range(..end)
                .map(|(&start, &range_end)| range_end.min(end) - start)
                .sum(),
            _ => self.ranges_count,
        }
    }
}
