//! Pending acknowledgements of a subscription: those in transactions that have not ended.
//!
//! ```text
//!   acknowledged in a transaction ─┬─ committed ─► acknowledged
//!                                  └─ aborted ───► delivered again
//! ```
//! No other transaction may acknowledge the same meanwhile: a message is in at most one transaction, and in none if
//! it was acknowledged without one. Each message of a batch counts by itself: two transactions may have different
//! ones.

use std::collections::{BTreeMap, BTreeSet};

use pharos_types::varint;
use pharos_types::{Ordinal, TxnId};

use crate::codec::{Malformed, take_u8, take_u64};

/// Entries that all transactions together may have acknowledged in one subscription.
const PENDING_MAX: usize = 100_000;
/// Messages of a batch; none is larger.
const BATCH_MAX: u32 = 64 * 8192;

/// Acknowledgement in a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AckIn {
    /// The entry.
    pub ordinal: Ordinal,
    /// Acknowledged messages of a batch.
    pub parts: BatchParts,
}

/// Selected messages of an entry; by default all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BatchParts {
    /// A bit for each message that is acknowledged; empty for the whole entry.
    acked: Box<[u64]>,
    /// Messages of the batch.
    count: u32,
}

/// Acknowledgements without a transaction, as far as one in a transaction depends on them.
pub trait Plain {
    /// True if the whole entry is acknowledged.
    fn is_acked(&self, ordinal: Ordinal) -> bool;
    /// Bit for each unacknowledged message of a batch that is acknowledged in part.
    fn remaining(&self, ordinal: Ordinal) -> Option<&[i64]>;
}

/// Reason why an acknowledgement in a transaction is refused; no part of it counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Conflict {
    /// Another transaction has it.
    #[error("entry {ordinal} is acknowledged in transaction {by}")]
    Pending {
        /// The entry.
        ordinal: Ordinal,
        /// Transaction that has it.
        by: TxnId,
    },
    /// Already acknowledged.
    #[error("entry {0} is acknowledged already")]
    Acknowledged(Ordinal),
    /// As many are pending as may be.
    #[error(
        "transactions have acknowledged {PENDING_MAX} entries of this subscription, as many as may be at a time"
    )]
    Full,
}

/// Numbers for stats.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PendingStats {
    /// Transactions that have acknowledged something.
    pub transactions: usize,
    /// Entries that are acknowledged one by one, in whole or in part.
    pub entries: usize,
}

/// The pending acknowledgements of one subscription.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct PendingAcks {
    /// Acknowledged messages of each entry, by transaction.
    entries: BTreeMap<Ordinal, BTreeMap<TxnId, BatchParts>>,
    of: BTreeMap<TxnId, BTreeSet<Ordinal>>,
    /// Everything up to an entry, in one transaction at a time.
    cumulative: Option<(TxnId, AckIn)>,
    /// Requests that were stored, by number.
    sequence: u64,
}

impl PendingAcks {
    /// Acknowledges entries one by one. All of them or none.
    ///
    /// # Errors
    /// [`Conflict`].
    pub fn ack(&mut self, txn: TxnId, acks: &[AckIn], plain: &dyn Plain) -> Result<(), Conflict> {
        if self.entries.len().saturating_add(acks.len()) > PENDING_MAX {
            return Err(Conflict::Full);
        }
        for ack in acks {
            self.check(txn, ack, plain)?;
        }
        for ack in acks {
            self.restore(txn, ack, false);
        }
        Ok(())
    }

    /// Acknowledges everything up to an entry; of that, a batch, the messages in `parts` and all before the first that is not in it.
    ///
    /// # Errors
    /// [`Conflict`].
    pub fn ack_cumulative(&mut self, txn: TxnId, ack: &AckIn, plain: &dyn Plain) -> Result<(), Conflict> {
        let ordinal = ack.ordinal;
        if plain.is_acked(ordinal) {
            return Err(Conflict::Acknowledged(ordinal));
        }
        if let Some((by, held)) = &self.cumulative {
            if *by != txn {
                return Err(Conflict::Pending { ordinal, by: *by });
            }
            if held.ordinal > ordinal {
                return Err(Conflict::Acknowledged(ordinal));
            }
        }
        let others = self.entries.range(..=ordinal).flat_map(|(_, held)| held.keys());
        if let Some(by) = others.copied().find(|by| *by != txn) {
            return Err(Conflict::Pending { ordinal, by });
        }
        self.restore(txn, ack, true);
        Ok(())
    }

    fn check(&self, txn: TxnId, ack: &AckIn, plain: &dyn Plain) -> Result<(), Conflict> {
        let ordinal = ack.ordinal;
        if plain.is_acked(ordinal) {
            return Err(Conflict::Acknowledged(ordinal));
        }
        if let Some(remaining) = plain.remaining(ordinal)
            && ack.parts.acked.iter().enumerate().any(|(at, word)| {
                let left = remaining.get(at).copied().unwrap_or(0).cast_unsigned();
                word & !left != 0
            })
        {
            return Err(Conflict::Acknowledged(ordinal));
        }
        if let Some((by, held)) = &self.cumulative
            && *by != txn
            && held.ordinal >= ordinal
        {
            return Err(Conflict::Pending { ordinal, by: *by });
        }
        let Some(held) = self.entries.get(&ordinal) else {
            return Ok(());
        };
        let mut others = held.iter().filter(|(by, _)| **by != txn);
        match others.find(|(_, parts)| parts.overlaps(&ack.parts)) {
            Some((by, _)) => Err(Conflict::Pending { ordinal, by: *by }),
            None => Ok(()),
        }
    }

    /// An acknowledgement that was let in, now or when it was stored.
    pub fn restore(&mut self, txn: TxnId, ack: &AckIn, is_cumulative: bool) {
        if is_cumulative {
            self.cumulative = Some((txn, ack.clone()));
            return;
        }
        self.of.entry(txn).or_default().insert(ack.ordinal);
        let parts = self.entries.entry(ack.ordinal).or_default();
        match parts.get_mut(&txn) {
            Some(held) => *held = held.union(&ack.parts),
            None => {
                parts.insert(txn, ack.parts.clone());
            }
        }
    }

    /// True if the transaction has acknowledged anything here.
    #[must_use]
    pub fn has(&self, txn: TxnId) -> bool {
        self.of.contains_key(&txn) || self.cumulative.as_ref().is_some_and(|(by, _)| *by == txn)
    }

    /// Acknowledgements of the transaction: individual ones, and the cumulative one.
    #[must_use]
    pub fn of(&self, txn: TxnId) -> (Vec<AckIn>, Option<AckIn>) {
        let entries = self.of.get(&txn).into_iter().flatten();
        let acks = entries.filter_map(|ordinal| {
            let parts = self.entries.get(ordinal)?.get(&txn)?.clone();
            Some(AckIn {
                ordinal: *ordinal,
                parts,
            })
        });
        let cumulative = self.cumulative.as_ref().filter(|(by, _)| *by == txn);
        (acks.collect(), cumulative.map(|(_, ack)| ack.clone()))
    }

    /// The transaction has ended here.
    pub fn end(&mut self, txn: TxnId) {
        for ordinal in self.of.remove(&txn).into_iter().flatten() {
            if let Some(held) = self.entries.get_mut(&ordinal) {
                held.remove(&txn);
                if held.is_empty() {
                    self.entries.remove(&ordinal);
                }
            }
        }
        self.cumulative.take_if(|(by, _)| *by == txn);
    }

    /// The entries that are not to be delivered while their transactions are open: those acknowledged in whole. Up to the place that is
    /// returned first, exclusive, all are.
    #[must_use]
    pub fn withheld(&self) -> (Ordinal, Vec<Ordinal>) {
        let whole = self
            .entries
            .iter()
            .filter(|(_, held)| held.values().any(|parts| parts.is_whole()));
        (
            self.withheld_before(),
            whole.map(|(ordinal, _)| *ordinal).collect(),
        )
    }

    /// All before this are not to be delivered.
    #[must_use]
    pub fn withheld_before(&self) -> Ordinal {
        let before = self
            .cumulative
            .as_ref()
            .map(|(_, ack)| match ack.parts.is_whole() {
                true => ack.ordinal.next(),
                false => ack.ordinal,
            });
        before.unwrap_or_default()
    }

    /// A number for the next request that is stored.
    #[must_use]
    pub fn next_sequence(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    /// A request of that number is stored.
    pub fn restore_sequence(&mut self, sequence: u64) {
        self.sequence = self.sequence.max(sequence);
    }

    /// True if nothing is pending.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.of.is_empty() && self.cumulative.is_none()
    }

    /// The transactions that have acknowledged something here.
    #[must_use]
    pub fn transactions(&self) -> Vec<TxnId> {
        let mut all: BTreeSet<TxnId> = self.of.keys().copied().collect();
        all.extend(self.cumulative.as_ref().map(|(by, _)| *by));
        all.into_iter().collect()
    }

    /// Numbers for stats.
    #[must_use]
    pub fn stats(&self) -> PendingStats {
        PendingStats {
            transactions: self.transactions().len(),
            entries: self.entries.len(),
        }
    }
}

impl AckIn {
    /// The whole entry.
    #[must_use]
    pub fn whole(ordinal: Ordinal) -> Self {
        Self {
            ordinal,
            parts: BatchParts::default(),
        }
    }

    /// From what the wire says: `remaining` has a bit for each message that is *not* acknowledged, and the batch has so many; 0: it is
    /// not said, then it ends with the last that remains.
    #[must_use]
    pub fn of_wire(ordinal: Ordinal, remaining: &[i64], batch_size: u32) -> Self {
        let last = remaining.iter().rposition(|word| *word != 0);
        let Some(last) = last else {
            // Nothing remains.
            return Self::whole(ordinal);
        };
        let top = remaining.get(last).map_or(0, |word| 64 - word.leading_zeros());
        let least = u32::try_from(last)
            .unwrap_or(u32::MAX)
            .saturating_mul(64)
            .saturating_add(top);
        let count = batch_size.max(least).min(BATCH_MAX);
        let words = usize::try_from(count.div_ceil(64)).unwrap_or(0);
        let left = |at: usize| remaining.get(at).copied().unwrap_or(0).cast_unsigned();
        let acked = (0..words).map(|at| !left(at) & mask(count, at)).collect();
        Self {
            ordinal,
            parts: BatchParts { acked, count },
        }
    }

    /// For the wire again: a bit for each message that is not acknowledged by it. Empty for the whole entry.
    #[must_use]
    pub fn remaining(&self) -> Box<[i64]> {
        let BatchParts { acked, count } = &self.parts;
        let words = acked.iter().enumerate();
        words
            .map(|(at, word)| (!word & mask(*count, at)).cast_signed())
            .collect()
    }

    /// True if all of it is acknowledged without a transaction.
    #[must_use]
    pub fn is_in(&self, plain: &dyn Plain) -> bool {
        let is_done = |remaining: &[i64]| {
            let mut words = self.parts.acked.iter().enumerate();
            words.all(|(at, word)| {
                remaining
                    .get(at)
                    .is_none_or(|left| left.cast_unsigned() & word == 0)
            })
        };
        let in_part = || plain.remaining(self.ordinal).is_some_and(is_done);
        plain.is_acked(self.ordinal) || (!self.parts.is_whole() && in_part())
    }

    /// As acknowledgements of one request are stored together.
    #[must_use]
    pub fn encode_all(acks: &[Self], is_cumulative: bool) -> Vec<u8> {
        let mut out = vec![u8::from(is_cumulative)];
        varint::put(&mut out, acks.len() as u64);
        for ack in acks {
            varint::put(&mut out, ack.ordinal.0);
            varint::put(&mut out, u64::from(ack.parts.count));
            for word in &ack.parts.acked {
                out.extend_from_slice(&word.to_le_bytes());
            }
        }
        out
    }

    /// From what is stored, and whether it is everything up to the one entry.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn decode_all(mut input: &[u8]) -> Result<(Vec<Self>, bool), Malformed> {
        let input = &mut input;
        let is_cumulative = take_u8(input)? != 0;
        let mut acks = Vec::new();
        for _ in 0..take_u64(input)? {
            let ordinal = Ordinal(take_u64(input)?);
            let count = u32::try_from(take_u64(input)?).unwrap_or(u32::MAX);
            if count > BATCH_MAX {
                return Err(Malformed("a batch is too large"));
            }
            let mut acked = Vec::new();
            for _ in 0..count.div_ceil(64) {
                let (word, rest) = input
                    .split_first_chunk()
                    .ok_or(Malformed("a set ends too early"))?;
                *input = rest;
                acked.push(u64::from_le_bytes(*word));
            }
            acks.push(Self {
                ordinal,
                parts: BatchParts {
                    acked: acked.into(),
                    count,
                },
            });
        }
        Ok((acks, is_cumulative))
    }
}

impl BatchParts {
    /// True for the whole entry.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.acked.is_empty()
    }

    /// True if both have a message in common.
    fn overlaps(&self, other: &Self) -> bool {
        let mut both = self.acked.iter().zip(&other.acked);
        self.is_whole() || other.is_whole() || both.any(|(one, other)| one & other != 0)
    }

    fn union(&self, other: &Self) -> Self {
        if self.is_whole() || other.is_whole() {
            return Self::default();
        }
        let words = self.acked.len().max(other.acked.len());
        let word = |of: &Self, at: usize| of.acked.get(at).copied().unwrap_or(0);
        Self {
            acked: (0..words).map(|at| word(self, at) | word(other, at)).collect(),
            count: self.count.max(other.count),
        }
    }
}

/// The bits of the word `at` that messages of a batch have.
fn mask(count: u32, at: usize) -> u64 {
    let before = u32::try_from(at).unwrap_or(u32::MAX).saturating_mul(64);
    match count.saturating_sub(before) {
        0 => 0,
        left => u64::MAX >> (64 - left.min(64)),
    }
}
