//! The state of a cursor in Pulsar's form, and back.

use pharos_types::{EntryId, LedgerId, Ordinal};

use super::proto::{
    BatchIndexes, CursorEntry, EntrySet, LongProperty, ManagedCursorInfo, MessageRange, StoredPosition,
};
use crate::cursor::AckState;
use crate::table::{LedgerTable, MarkDelete};

/// Runs that are written; what lies beyond is delivered again. Pulsar's brokers write a sixth of that.
const RANGES_MAX: usize = 60_000;
/// Bytes of batches that are written; what lies beyond is delivered again. With the runs it fits into an entry of 5 MiB.
const BATCH_BYTES_MAX: usize = 1 << 20;
/// Runs for which a node has room, as Pulsar has it (`managedLedgerMaxUnackedRangesToPersistInMetadataStore`).
const RANGES_IN_NODE: usize = 1_000;
/// Bytes of properties for which a node has room, about: a store has room for a megabyte, and is everyone's.
const PROPERTY_BYTES_IN_NODE: usize = 32 << 10;
/// Bits of a word of a set.
const BITS: u64 = 64;

/// Acknowledgement state of a cursor, wherever Pulsar stored it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct CursorState {
    pub(crate) mark_delete: (i64, i64),
    pub(crate) ranges: Vec<MessageRange>,
    pub(crate) sets: Vec<EntrySet>,
    pub(crate) batches: Vec<BatchIndexes>,
}

impl From<&ManagedCursorInfo> for CursorState {
    fn from(info: &ManagedCursorInfo) -> Self {
        let ledger = info.mark_delete_ledger_id.unwrap_or(-1);
        Self {
            mark_delete: (ledger, info.mark_delete_entry_id.unwrap_or(-1)),
            ranges: info.ranges.clone(),
            sets: Vec::new(),
            batches: info.batches.clone(),
        }
    }
}

impl From<CursorEntry> for CursorState {
    fn from(entry: CursorEntry) -> Self {
        Self {
            mark_delete: (entry.ledger_id, entry.entry_id),
            ranges: entry.ranges,
            sets: entry.sets,
            batches: entry.batches,
        }
    }
}

impl CursorState {
    /// True if the state fits in a node, from which Pulsar's brokers read no partial batches.
    pub(crate) fn fits_node(&self, properties: &[LongProperty]) -> bool {
        self.batches.is_empty() && self.ranges.len() <= RANGES_IN_NODE && fit_node(properties)
    }

    /// The node: with all of it, or with the ledger whose last entry has it.
    pub(crate) fn node(&self, ledger: Option<u64>) -> ManagedCursorInfo {
        let ledger = ledger.and_then(|ledger| i64::try_from(ledger).ok());
        ManagedCursorInfo {
            cursors_ledger_id: ledger.unwrap_or(-1),
            mark_delete_ledger_id: Some(self.mark_delete.0),
            mark_delete_entry_id: Some(self.mark_delete.1),
            ranges: match ledger {
                Some(_) => Vec::new(),
                None => self.ranges.clone(),
            },
            ..ManagedCursorInfo::default()
        }
    }

    /// The entry of a cursor's ledger.
    pub(crate) fn entry(&self, properties: Vec<LongProperty>) -> CursorEntry {
        CursorEntry {
            ledger_id: self.mark_delete.0,
            entry_id: self.mark_delete.1,
            ranges: self.ranges.clone(),
            properties,
            batches: self.batches.clone(),
            sets: self.sets.clone(),
        }
    }

    /// The state in a log that ends before `end`. What is no entry of the log says nothing.
    pub(crate) fn acks(&self, table: &LedgerTable, end: Ordinal) -> AckState {
        let after = |(ledger, entry): (i64, i64)| match mark(ledger, entry) {
            Some(mark) => table.acked_to(mark, end),
            None => table.first(),
        };
        let of = |position: &StoredPosition| after((position.ledger_id, position.entry_id));
        let mut acks = AckState::new(after(self.mark_delete).max(table.first()));
        for range in &self.ranges {
            acks.ack_range(of(&range.lower), of(&range.upper));
        }
        for set in &self.sets {
            for (first, last) in runs(&set.words) {
                let before = i64::try_from(first).map_or(i64::MAX, |first| first - 1);
                let last = i64::try_from(last).unwrap_or(i64::MAX);
                acks.ack_range(after((set.ledger_id, before)), after((set.ledger_id, last)));
            }
        }
        for batch in &self.batches {
            let StoredPosition { ledger_id, entry_id } = batch.position;
            let before = after((ledger_id, entry_id.saturating_sub(1)));
            // Otherwise there is no such entry.
            if before.next() == of(&batch.position) && before < end {
                acks.ack_batch(before, &batch.words);
            }
        }
        acks
    }
}

/// True if the properties fit in a node.
pub(crate) fn fit_node(properties: &[LongProperty]) -> bool {
    let bytes = properties.iter().map(|property| property.name.len() + 16);
    bytes.sum::<usize>() <= PROPERTY_BYTES_IN_NODE
}

/// `None` before all ledgers.
fn mark(ledger: i64, entry: i64) -> Option<MarkDelete> {
    Some(MarkDelete {
        ledger: LedgerId(u64::try_from(ledger).ok()?),
        entry: u64::try_from(entry).ok().map(EntryId),
    })
}

/// Runs of set bits, first and last.
fn runs(words: &[i64]) -> Vec<(u64, u64)> {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for (word, index) in words.iter().zip(0_u64..) {
        for bit in (0..BITS).filter(|bit| word >> bit & 1 == 1) {
            let place = index * BITS + bit;
            match runs.last_mut() {
                Some((_, last)) if *last + 1 == place => *last = place,
                _ => runs.push((place, place)),
            }
        }
    }
    runs
}

/// The state in Pulsar's form. `None` when there is no ledger that a position could name.
pub(crate) fn state_of(acks: &AckState, table: &LedgerTable) -> Option<CursorState> {
    let mark = table.mark_delete(acks.acked_to())?;
    let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let mut state = CursorState {
        mark_delete: (
            signed(mark.ledger.0),
            mark.entry.map_or(-1, |entry| signed(entry.0)),
        ),
        ..CursorState::default()
    };
    'runs: for (start, end) in acks.acked_ranges() {
        let mut start = start;
        while start < end {
            let Some((index, row)) = table.row_of(start) else {
                if start < table.first() {
                    // What is trimmed is in a compacted ledger, and said there to be before all that is left.
                    start = table.first();
                    continue;
                }
                break 'runs;
            };
            if state.ranges.len() == RANGES_MAX {
                break 'runs;
            }
            // The last row of an open log was counted some time ago.
            let to = if table.is_open_row(index) {
                end
            } else {
                end.min(row.end())
            };
            if to <= start {
                break 'runs;
            }
            let entry = |ordinal: Ordinal| signed(row.first.count_to(ordinal));
            let ledger_id = signed(row.id.0);
            let at = |entry_id| StoredPosition { ledger_id, entry_id };
            state.ranges.push(MessageRange {
                lower: at(entry(start) - 1),
                upper: at(entry(to) - 1),
            });
            start = to;
        }
    }
    let mut bytes = 0;
    for (ordinal, words) in acks.partial_batches() {
        bytes += 32 + words.len() * 10;
        let Some(position) = table.position_of(ordinal).filter(|_| bytes <= BATCH_BYTES_MAX) else {
            break;
        };
        state.batches.push(BatchIndexes {
            position: StoredPosition {
                ledger_id: signed(position.ledger.0),
                entry_id: signed(position.entry.0),
            },
            words: words.to_vec(),
        });
    }
    Some(state)
}
