//! The chain of ledgers: which there are, and where in them an entry is.

use pharos_types::{EntryId, LedgerId, Ordinal, Position};

use super::append::Appended;
use crate::options::Retention;
use crate::table::{LedgerRow, LedgerTable};

/// The ledgers of a log, as its owner counts them and as others see them.
pub(super) struct Chain {
    /// Oldest first. The last row is the one that entries are appended to.
    rows: Vec<LedgerRow>,
    /// First ordinal that is left, also when no row is.
    first: Ordinal,
    /// True if the last row takes entries.
    is_open: bool,
    /// The chain as others see it; made anew when the chain changes, not on appends.
    table: LedgerTable,
}

impl Chain {
    pub(super) fn new(rows: Vec<LedgerRow>, first: Ordinal, is_open: bool) -> Self {
        Self {
            table: LedgerTable::new(&rows, first, is_open, 1),
            rows,
            first,
            is_open,
        }
    }

    pub(super) fn rows(&self) -> &[LedgerRow] {
        &self.rows
    }

    pub(super) fn last(&self) -> Option<&LedgerRow> {
        self.rows.last()
    }

    pub(super) fn row(&self, ledger: LedgerId) -> Option<&LedgerRow> {
        self.rows.iter().find(|row| row.id == ledger)
    }

    pub(super) fn table(&self) -> &LedgerTable {
        &self.table
    }

    pub(super) fn first(&self) -> Ordinal {
        self.first
    }

    /// Ordinal of the next entry.
    pub(super) fn end(&self) -> Ordinal {
        self.rows.last().map_or(self.first, LedgerRow::end)
    }

    /// Position of the last entry; `None` when none is left.
    pub(super) fn last_position(&self) -> Option<Position> {
        let row = self.rows.iter().rev().find(|row| row.entries > 0)?;
        Some(Position {
            ledger: row.id,
            entry: EntryId(row.entries - 1),
        })
    }

    /// Counts one more entry of the last ledger.
    pub(super) fn add(&mut self, bytes: usize) -> Option<Appended> {
        let row = self.rows.last_mut()?;
        let position = Position {
            ledger: row.id,
            entry: EntryId(row.entries),
        };
        let ordinal = row.end();
        row.entries += 1;
        row.bytes += bytes as u64;
        Some(Appended { position, ordinal })
    }

    /// Entries get positions in this ledger from now on.
    pub(super) fn begin(&mut self, ledger: LedgerId) {
        self.rows.push(LedgerRow {
            id: ledger,
            first: self.end(),
            entries: 0,
            bytes: 0,
            closed_at_ms: None,
        });
        self.rebuild_table();
    }

    /// The last ledger but one is closed. Returns its row, and the first place of the last.
    pub(super) fn close_before_last(&mut self, now_ms: u64) -> Option<(LedgerRow, Ordinal)> {
        let [.., closed, open] = self.rows.as_mut_slice() else {
            return None;
        };
        closed.closed_at_ms = Some(now_ms);
        let outcome = (*closed, open.first);
        self.rebuild_table();
        Some(outcome)
    }

    /// The last ledger is closed, and none follows.
    pub(super) fn end_for_good(&mut self, now_ms: u64) {
        if let Some(row) = self.rows.last_mut() {
            row.closed_at_ms = Some(now_ms);
        }
        self.is_open = false;
        self.rebuild_table();
    }

    /// Lets go of the oldest ledgers whose entries all lie below `acked_below` and which `retention` does not keep; never the
    /// last one. Returns their ids.
    pub(super) fn trim(&mut self, acked_below: Ordinal, retention: Retention, now_ms: u64) -> Vec<LedgerId> {
        let mut bytes_left: u64 = self.rows.iter().map(|row| row.bytes).sum();
        let mut count = 0;
        let closed = self.rows.len().saturating_sub(1);
        for row in self.rows.iter().take(closed) {
            let Some(closed_at_ms) = row.closed_at_ms else {
                break;
            };
            bytes_left -= row.bytes;
            let age_ms = now_ms.saturating_sub(closed_at_ms);
            let is_old = retention
                .time_ms
                .is_some_and(|kept_ms| kept_ms == 0 || age_ms > kept_ms);
            let is_over_size = retention.bytes.is_some_and(|kept| bytes_left >= kept);
            if row.end() > acked_below || !(is_old || is_over_size) {
                break;
            }
            count += 1;
        }
        let gone: Vec<_> = self.rows.drain(..count).map(|row| row.id).collect();
        if let (Some(row), false) = (self.rows.first(), gone.is_empty()) {
            self.first = row.first;
            self.rebuild_table();
        }
        gone
    }

    /// Takes over the ledgers of a shadow's source as they are now.
    pub(super) fn replace(&mut self, rows: Vec<LedgerRow>, first: Ordinal, is_open: bool) {
        let is_new = (is_open, first) != (self.is_open, self.first)
            || rows
                .iter()
                .map(|row| row.id)
                .ne(self.rows.iter().map(|row| row.id));
        (self.rows, self.first, self.is_open) = (rows, first, is_open);
        if is_new {
            self.rebuild_table();
        }
    }

    fn rebuild_table(&mut self) {
        let version = self.table.version() + 1;
        self.table = LedgerTable::new(&self.rows, self.first, self.is_open, version);
    }
}
