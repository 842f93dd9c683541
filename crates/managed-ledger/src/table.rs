//! The chain of ledgers as a table, and the two ways through it: ordinal to position and back.
//!
//! ```text
//!   rows       12 (4 entries)   17 (3 entries)   20 (open)
//!   positions  12:0 … 12:3      17:0 … 17:2      20:0 20:1 …
//!   ordinals   100 … 103        104 … 106        107 108 …
//! ```
//!
//! A [`LedgerTable`] is a snapshot: cheap to clone and to send to other shards. It changes its version only when the chain
//! changes (rollover, trim, end), because the last row of an open table has no end: any entry of it converts.
//!
//! Always true: rows rise by id, are dense in ordinals, and only the last may be open.

use std::sync::Arc;

use pharos_types::{EntryId, LedgerId, Ordinal, Position};

/// Ledger of a managed ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LedgerRow {
    /// Its id.
    pub id: LedgerId,
    /// Ordinal of its entry 0.
    pub first: Ordinal,
    /// Entries; of the open ledger those known when the row was made.
    pub entries: u64,
    /// Their payload bytes together.
    pub bytes: u64,
    /// Close time, in milliseconds since 1970; `None` while it is open or being closed.
    pub closed_at_ms: Option<u64>,
}

impl LedgerRow {
    /// Ordinal after its last entry.
    #[must_use]
    pub fn end(&self) -> Ordinal {
        self.first.plus(self.entries)
    }
}

/// Location of a position relative to the entries of a managed ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// The position of this entry.
    Exact(Ordinal),
    /// Before the first remaining entry; this one.
    BeforeFirst(Ordinal),
    /// No entry has it; the next entry is this one.
    Between(Ordinal),
    /// At or after the end.
    AfterEnd,
}

impl Lookup {
    /// The first entry at or after the position; `end` when there is none.
    #[must_use]
    pub fn at_or_after(self, end: Ordinal) -> Ordinal {
        match self {
            Self::Exact(ordinal) | Self::BeforeFirst(ordinal) | Self::Between(ordinal) => ordinal,
            Self::AfterEnd => end,
        }
    }

    /// The first entry after the position: what a mark-delete position there leaves to be acknowledged.
    #[must_use]
    pub fn after(self, end: Ordinal) -> Ordinal {
        match self {
            Self::Exact(ordinal) => ordinal.next(),
            other => other.at_or_after(end),
        }
    }
}

/// A mark-delete position as Pulsar writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MarkDelete {
    /// The ledger.
    pub ledger: LedgerId,
    /// The last acknowledged entry (inclusive), or `None` before the ledger's first entry (`-1` on the wire).
    pub entry: Option<EntryId>,
}

/// A snapshot of a managed ledger's chain.
#[derive(Clone, Debug)]
pub struct LedgerTable {
    rows: Arc<[LedgerRow]>,
    /// First ordinal, also when no row is left.
    first: Ordinal,
    /// True if the last row still takes entries.
    is_open: bool,
    version: u64,
}

/// The table of a topic without any published entries.
impl Default for LedgerTable {
    fn default() -> Self {
        Self::new(&[], Ordinal(0), false, 0)
    }
}

impl LedgerTable {
    pub(crate) fn new(rows: &[LedgerRow], first: Ordinal, is_open: bool, version: u64) -> Self {
        debug_assert!(rows.is_sorted_by(|one, two| one.id < two.id && one.end() == two.first));
        Self {
            rows: rows.into(),
            first,
            is_open,
            version,
        }
    }

    /// The ledgers, oldest first.
    #[must_use]
    pub fn rows(&self) -> &[LedgerRow] {
        &self.rows
    }

    /// Rises whenever the chain changes.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Ordinal of the first entry that is left, or of the next one when none is.
    #[must_use]
    pub fn first(&self) -> Ordinal {
        self.first
    }

    /// The position of an entry; `None` before the first, and after the end of a table that is not open.
    #[must_use]
    pub fn position_of(&self, ordinal: Ordinal) -> Option<Position> {
        let (index, row) = self.row_of(ordinal)?;
        let is_last_open = self.is_open && index + 1 == self.rows.len();
        (is_last_open || ordinal < row.end()).then(|| Position {
            ledger: row.id,
            entry: EntryId(row.first.count_to(ordinal)),
        })
    }

    /// Looks up `position` in a log that ends before `end`.
    #[must_use]
    pub fn ordinal_of(&self, position: Position, end: Ordinal) -> Lookup {
        let index = self.rows.partition_point(|row| row.id <= position.ledger);
        let Some(row) = index.checked_sub(1).and_then(|index| self.rows.get(index)) else {
            return if self.first < end {
                Lookup::BeforeFirst(self.first)
            } else {
                Lookup::AfterEnd
            };
        };
        let is_last = index == self.rows.len();
        if row.id == position.ledger && (position.entry.0 < row.entries || (is_last && self.is_open)) {
            let ordinal = row.first.plus(position.entry.0);
            return if ordinal < end {
                Lookup::Exact(ordinal)
            } else {
                Lookup::AfterEnd
            };
        }
        if is_last || row.end() >= end {
            Lookup::AfterEnd
        } else {
            Lookup::Between(row.end())
        }
    }

    /// `acked_to` (exclusive) as Pulsar's inclusive mark-delete position; `None` when no ledger is left.
    #[must_use]
    pub fn mark_delete(&self, acked_to: Ordinal) -> Option<MarkDelete> {
        if acked_to <= self.first {
            return self.rows.first().map(|row| MarkDelete {
                ledger: row.id,
                entry: None,
            });
        }
        let last = self.position_of(Ordinal(acked_to.0 - 1));
        let last = last.or_else(|| {
            let row = self.rows.iter().rev().find(|row| row.entries > 0)?;
            Some(Position {
                ledger: row.id,
                entry: EntryId(row.entries - 1),
            })
        })?;
        Some(MarkDelete {
            ledger: last.ledger,
            entry: Some(last.entry),
        })
    }

    /// `acked_to` (exclusive) of a mark-delete position, in a log that ends before `end`.
    #[must_use]
    pub fn acked_to(&self, mark_delete: MarkDelete, end: Ordinal) -> Ordinal {
        match mark_delete.entry {
            Some(entry) => self
                .ordinal_of(
                    Position {
                        ledger: mark_delete.ledger,
                        entry,
                    },
                    end,
                )
                .after(end),
            None => self
                .ordinal_of(
                    Position {
                        ledger: mark_delete.ledger,
                        entry: EntryId(0),
                    },
                    end,
                )
                .at_or_after(end),
        }
    }

    /// The row that holds `ordinal`, or the last one when it lies beyond.
    pub(crate) fn row_of(&self, ordinal: Ordinal) -> Option<(usize, &LedgerRow)> {
        // Empty ledgers share their first ordinal with the next; the last of them is the one that holds it.
        let index = self
            .rows
            .partition_point(|row| row.first <= ordinal)
            .checked_sub(1)?;
        self.rows.get(index).map(|row| (index, row))
    }

    /// True if the row at `index` still takes entries.
    pub(crate) fn is_open_row(&self, index: usize) -> bool {
        self.is_open && index + 1 == self.rows.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(id: u64, first: u64, entries: u64) -> LedgerRow {
        LedgerRow {
            id: LedgerId(id),
            first: Ordinal(first),
            entries,
            bytes: 0,
            closed_at_ms: None,
        }
    }

    fn table(is_open: bool) -> LedgerTable {
        LedgerTable::new(
            &[row(12, 100, 4), row(17, 104, 3), row(20, 107, 2)],
            Ordinal(100),
            is_open,
            1,
        )
    }

    #[test]
    fn every_ordinal_has_a_position_and_comes_back() {
        for is_open in [false, true] {
            let table = table(is_open);
            for ordinal in (100..109).map(Ordinal) {
                let position = table.position_of(ordinal).unwrap();
                assert_eq!(table.ordinal_of(position, Ordinal(109)), Lookup::Exact(ordinal));
                let mark_delete = table.mark_delete(ordinal.next()).unwrap();
                assert_eq!(
                    mark_delete,
                    MarkDelete {
                        ledger: position.ledger,
                        entry: Some(position.entry)
                    }
                );
                assert_eq!(table.acked_to(mark_delete, Ordinal(109)), ordinal.next());
            }
            assert_eq!(table.position_of(Ordinal(99)), None);
            assert_eq!(
                table.position_of(Ordinal(109)),
                is_open.then(|| Position::new(20, 2))
            );
        }
    }

    #[test]
    fn positions_at_the_borders_find_the_next_entry() {
        let (table, end) = (table(true), Ordinal(109));
        let at = |ledger, entry| table.ordinal_of(Position::new(ledger, entry), end);
        assert_eq!(at(3, 9), Lookup::BeforeFirst(Ordinal(100)));
        assert_eq!(at(12, 3), Lookup::Exact(Ordinal(103)));
        assert_eq!(at(12, 4), Lookup::Between(Ordinal(104)));
        assert_eq!(at(15, 0), Lookup::Between(Ordinal(104)));
        assert_eq!(at(17, 0), Lookup::Exact(Ordinal(104)));
        assert_eq!(at(17, u64::MAX), Lookup::Between(Ordinal(107)));
        assert_eq!(at(20, 1), Lookup::Exact(Ordinal(108)));
        assert_eq!(at(20, 2), Lookup::AfterEnd);
        assert_eq!(at(20, u64::MAX), Lookup::AfterEnd);
        assert_eq!(at(u64::MAX, 0), Lookup::AfterEnd);
        assert_eq!(at(12, 3).after(end), Ordinal(104));
        assert_eq!(at(12, 7).after(end), Ordinal(104));
        assert_eq!(at(99, 0).after(end), end);
    }

    #[test]
    fn nothing_acknowledged_is_just_before_the_first_ledger() {
        let table = table(true);
        let before = MarkDelete {
            ledger: LedgerId(12),
            entry: None,
        };
        assert_eq!(table.mark_delete(Ordinal(100)), Some(before));
        assert_eq!(table.mark_delete(Ordinal(7)), Some(before));
        assert_eq!(table.acked_to(before, Ordinal(109)), Ordinal(100));
        let last_of_ledger = MarkDelete {
            ledger: LedgerId(12),
            entry: Some(EntryId(3)),
        };
        assert_eq!(table.mark_delete(Ordinal(104)), Some(last_of_ledger));
    }

    #[test]
    fn a_table_without_rows_still_knows_where_it_is() {
        let table = LedgerTable::new(&[], Ordinal(50), false, 3);
        assert_eq!(table.position_of(Ordinal(50)), None);
        assert_eq!(
            table.ordinal_of(Position::new(1, 1), Ordinal(50)),
            Lookup::AfterEnd
        );
        assert_eq!(table.mark_delete(Ordinal(50)), None);
    }
}
