//! An [`AckState`] as bytes; `docs/formats/cursor-log.md` draws it.
//!
//! ```text
//!   acked_to             varint
//!   range count          varint   ≤ 10,000
//!     gap, length        varint × 2, gap counted from the end of the run before (or acked_to), both ≥ 1
//!   batch count          varint   ≤ 10,000
//!     distance           varint, from the batch before + 1 (or acked_to)
//!     word count, words  varint ≤ 8,192, then 8 bytes each, little-endian; the last is not 0
//! ```

use pharos_types::Ordinal;

use super::{
    AckState, BATCH_WORDS_MAX, BATCHES_PERSISTED_MAX, Malformed, RANGES_PERSISTED_MAX, WORDS_PERSISTED_MAX,
};
use crate::fields::{put_u64, take_u64};

impl AckState {
    /// Appends the state to `out`. Runs beyond the first [`RANGES_PERSISTED_MAX`] and batches beyond the first
    /// [`BATCHES_PERSISTED_MAX`] (or [`WORDS_PERSISTED_MAX`] words of them) are left out: those entries are delivered again.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_u64(out, self.acked_to);
        let Some(beyond) = &self.beyond else {
            out.extend_from_slice(&[0, 0]);
            return;
        };
        put_u64(out, beyond.ranges.len().min(RANGES_PERSISTED_MAX) as u64);
        let mut before = self.acked_to;
        for (&start, &end) in beyond.ranges.iter().take(RANGES_PERSISTED_MAX) {
            put_u64(out, start - before);
            put_u64(out, end - start);
            before = end;
        }
        let mut words_left = WORDS_PERSISTED_MAX;
        let fits = |words: &[i64]| -> bool {
            let left = words_left.checked_sub(words.len());
            words_left = left.unwrap_or_default();
            left.is_some()
        };
        let batches = beyond.batches.values().take(BATCHES_PERSISTED_MAX);
        let batches = batches
            .map(|words| &**words)
            .map(fits)
            .take_while(|fits| *fits)
            .count();
        put_u64(out, batches as u64);
        let mut before = self.acked_to;
        for (&ordinal, words) in beyond.batches.iter().take(batches) {
            put_u64(out, ordinal - before);
            put_u64(out, words.len() as u64);
            for word in words {
                out.extend_from_slice(&word.to_le_bytes());
            }
            before = ordinal + 1;
        }
    }

    /// Takes a state from the front of `input`.
    ///
    /// # Errors
    /// [`Malformed`] for anything [`encode`](Self::encode) does not write.
    pub fn decode(input: &mut &[u8]) -> Result<Self, Malformed> {
        let mut state = Self::new(Ordinal(take_u64(input)?));
        let ranges = take_u64(input)?;
        if ranges > RANGES_PERSISTED_MAX as u64 {
            return Err(Malformed("too many ranges"));
        }
        let mut before = state.acked_to;
        for _ in 0..ranges {
            let (gap, length) = (take_u64(input)?, take_u64(input)?);
            if gap == 0 || length == 0 {
                return Err(Malformed("range is empty or touches its neighbour"));
            }
            let start = before.checked_add(gap).ok_or(Malformed("range beyond 64 bits"))?;
            let end = start
                .checked_add(length)
                .ok_or(Malformed("range beyond 64 bits"))?;
            state.beyond.get_or_insert_default().insert(start, end);
            before = end;
        }
        let batches = take_u64(input)?;
        if batches > BATCHES_PERSISTED_MAX as u64 {
            return Err(Malformed("too many batches"));
        }
        let mut before = state.acked_to;
        for _ in 0..batches {
            let ordinal = before
                .checked_add(take_u64(input)?)
                .ok_or(Malformed("batch beyond 64 bits"))?;
            let words = take_words(input)?;
            if state.is_acked(Ordinal(ordinal)) {
                return Err(Malformed("batch set of an acknowledged entry"));
            }
            state
                .beyond
                .get_or_insert_default()
                .batches
                .insert(ordinal, words);
            before = ordinal.checked_add(1).ok_or(Malformed("batch beyond 64 bits"))?;
        }
        Ok(state)
    }
}

/// Takes the words of one batch.
fn take_words(input: &mut &[u8]) -> Result<Box<[i64]>, Malformed> {
    let count = take_u64(input)?;
    if count == 0 || count > BATCH_WORDS_MAX as u64 {
        return Err(Malformed("batch set of no or too many words"));
    }
    let (bytes, rest) = input
        .split_at_checked(count as usize * 8)
        .ok_or(Malformed("batch set ends too early"))?;
    *input = rest;
    let words: Box<[i64]> = bytes
        .as_chunks::<8>()
        .0
        .iter()
        .map(|word| i64::from_le_bytes(*word))
        .collect();
    if words.last() == Some(&0) {
        return Err(Malformed("batch set ends in a zero word"));
    }
    Ok(words)
}
