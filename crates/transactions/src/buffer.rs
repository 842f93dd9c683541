//! Effect of transactions on the readers of one topic: the end of readable entries, and the entries to skip.
//!
//! ```text
//!   ordinal   0 1 2 3 4 5 6 7 8 9
//!   entry     · a · b a A · b C ·        a, b: published in a transaction; A: a was aborted, C: b was committed
//!   readable  ──────►│                   while a is open: up to its first entry
//!                    ─────►│             after A: up to the first entry of b
//! ```
//! Fed in the order of the log: a message when it is appended, an end once it is durable. Invariant: nothing before
//! [`readable_before`](TransactionBuffer::readable_before) belongs to an open transaction, so the outcome of readable
//! entries never changes.

use std::collections::{BTreeMap, HashMap};

use pharos_types::varint;
use pharos_types::{Ordinal, TxnEntry, TxnId, TxnOutcome};

use crate::codec::{Malformed, take_u64};

/// Aborted transactions that a topic remembers; while it has as many it takes no more messages in transactions. They are forgotten
/// when their entries are trimmed.
const ABORTED_MAX: usize = 200_000;

/// The open and the aborted transactions of one topic.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct TransactionBuffer {
    /// Start of each open transaction.
    open: HashMap<TxnId, Open>,
    by_first: BTreeMap<Ordinal, TxnId>,
    /// The place of each aborted one's end: before it lie all its entries.
    aborted: HashMap<TxnId, Ordinal>,
    by_end: BTreeMap<Ordinal, TxnId>,
    committed_count: u64,
    aborted_count: u64,
}

/// An open transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Open {
    first: Ordinal,
    messages: u64,
}

/// Numbers for stats.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BufferStats {
    /// Open transactions.
    pub open: usize,
    /// Aborted ones that are remembered.
    pub aborted: usize,
    /// Ended since the topic was loaded, committed.
    pub committed_count: u64,
    /// Ended since the topic was loaded, aborted.
    pub aborted_count: u64,
}

impl TransactionBuffer {
    /// An entry was appended or read, in the order of the log.
    pub fn on_entry(&mut self, ordinal: Ordinal, entry: TxnEntry) {
        match entry {
            TxnEntry::Message(txn) => self.on_message(txn, ordinal),
            TxnEntry::End(txn, outcome) => self.on_end(txn, outcome, ordinal),
        }
    }

    fn on_message(&mut self, txn: TxnId, ordinal: Ordinal) {
        let by_first = &mut self.by_first;
        let open = self.open.entry(txn).or_insert_with(|| {
            by_first.insert(ordinal, txn);
            Open {
                first: ordinal,
                messages: 0,
            }
        });
        open.messages += 1;
    }

    fn on_end(&mut self, txn: TxnId, outcome: TxnOutcome, ordinal: Ordinal) {
        if let Some(open) = self.open.remove(&txn) {
            self.by_first.remove(&open.first);
        }
        match outcome {
            TxnOutcome::Committed => self.committed_count += 1,
            TxnOutcome::Aborted => {
                self.aborted_count += 1;
                self.restore_aborted(txn, ordinal);
            }
        }
    }

    /// True if the topic remembers so many aborted transactions that it accepts no more messages in any.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.aborted.len() >= ABORTED_MAX
    }

    /// Readers get nothing from here on; `None`: no transaction is open.
    #[must_use]
    pub fn readable_before(&self) -> Option<Ordinal> {
        self.by_first.first_key_value().map(|(first, _)| *first)
    }

    /// True if messages of this transaction are skipped. Valid only for entries before
    /// [`readable_before`](Self::readable_before).
    #[must_use]
    pub fn is_aborted(&self, txn: TxnId) -> bool {
        self.aborted.contains_key(&txn)
    }

    /// True if the transaction has messages here and has not ended.
    #[must_use]
    pub fn is_open(&self, txn: TxnId) -> bool {
        self.open.contains_key(&txn)
    }

    /// The first entry of an open transaction.
    #[must_use]
    pub fn first_of(&self, txn: TxnId) -> Option<Ordinal> {
        self.open.get(&txn).map(|open| open.first)
    }

    /// The open transactions, in the order in which they began.
    #[must_use]
    pub fn open(&self) -> Vec<TxnId> {
        self.by_first.values().copied().collect()
    }

    /// The aborted ones all of whose entries lie before `first`: they are forgotten.
    pub fn trim(&mut self, first: Ordinal) -> Vec<TxnId> {
        let kept = self.by_end.split_off(&first);
        let gone: Vec<TxnId> = std::mem::replace(&mut self.by_end, kept).into_values().collect();
        for txn in &gone {
            self.aborted.remove(txn);
        }
        gone
    }

    /// Numbers for stats.
    #[must_use]
    pub fn stats(&self) -> BufferStats {
        BufferStats {
            open: self.open.len(),
            aborted: self.aborted.len(),
            committed_count: self.committed_count,
            aborted_count: self.aborted_count,
        }
    }

    // ---- stored ------------------------------------------------------------------------------------------------------

    /// State needed to continue from an entry: that position, and the transactions that began before it and are open.
    /// Every end before it was fed. Aborted transactions are stored one by one.
    #[must_use]
    pub fn encode_from(&self, from: Ordinal) -> Vec<u8> {
        let open = || self.by_first.range(..from);
        let mut out = Vec::new();
        varint::put(&mut out, from.0);
        varint::put(&mut out, open().count() as u64);
        for (first, txn) in open() {
            varint::put(&mut out, txn.most);
            varint::put(&mut out, txn.least);
            varint::put(&mut out, first.0);
        }
        out
    }

    /// State of open transactions at a position, and that position: the entries from there on are to be fed again.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn decode_from(mut input: &[u8]) -> Result<(Self, Ordinal), Malformed> {
        let input = &mut input;
        let from = Ordinal(take_u64(input)?);
        let mut buffer = Self::default();
        for _ in 0..take_u64(input)? {
            let (most, least) = (take_u64(input)?, take_u64(input)?);
            buffer.on_message(TxnId { most, least }, Ordinal(take_u64(input)?));
        }
        Ok((buffer, from))
    }

    /// An aborted transaction is remembered again; `end`: the place of its end.
    pub fn restore_aborted(&mut self, txn: TxnId, end: Ordinal) {
        if let Some(before) = self.aborted.insert(txn, end) {
            self.by_end.remove(&before);
        }
        self.by_end.insert(end, txn);
    }
}
