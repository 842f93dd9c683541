//! Rollover schedule of the current ledger, and the next ledger, created ahead of need.

use std::sync::Arc;

use pharos_ledger::{Durability, LedgerWriter};
use pharos_types::{LedgerId, Ordinal};

use crate::options::{Keeping, Options};
use crate::table::LedgerRow;

/// Ledgers of up to this many entries prepare their successor with their first entry, so that small limits are kept.
const SMALL_LEDGER: u64 = 256;

/// State that decides the next rollover.
pub(super) struct Rollover {
    /// Step 1 of a rollover.
    next: Next,
    /// Durability and placement of the last row's ledger.
    keeping: Keeping,
    /// Opening time of the last row's ledger; its age decides about rollover.
    opened_ms: u64,
    /// The end as of the last call that saw it move, and when that was.
    moved: (Ordinal, u64),
    /// The owner wants a rollover whatever the limits say.
    is_asked: bool,
}

/// The ledger after the current one.
enum Next {
    None,
    Preparing,
    /// Named in the info, empty.
    Ready(NewLedger),
}

/// A ledger that was just created.
pub(super) struct NewLedger {
    pub(super) writer: Arc<dyn LedgerWriter>,
    pub(super) keeping: Keeping,
}

impl Rollover {
    /// The current ledger was just opened, and begins at `end`.
    pub(super) fn new(keeping: Keeping, end: Ordinal, now_ms: u64) -> Self {
        Self {
            next: Next::None,
            keeping,
            opened_ms: now_ms,
            moved: (end, now_ms),
            is_asked: false,
        }
    }

    /// Durability of the current ledger.
    pub(super) fn durability(&self) -> Durability {
        self.keeping.durability
    }

    /// Asks for one at the next chance, whatever the limits say, unless the current ledger is empty.
    pub(super) fn ask(&mut self, current: Option<&LedgerRow>) {
        self.is_asked = current.is_some_and(|row| row.entries > 0);
    }

    /// Asks for one when nothing was appended for long, so that what every cursor has passed can go.
    pub(super) fn ask_when_idle(
        &mut self,
        current: Option<&LedgerRow>,
        end: Ordinal,
        options: &Options,
        now_ms: u64,
    ) {
        if end != self.moved.0 {
            self.moved = (end, now_ms);
        }
        let idle_ms = now_ms.saturating_sub(self.moved.1);
        if options.ledger_idle_ms_max.is_some_and(|most| idle_ms >= most) {
            self.ask(current);
        }
    }

    /// True if the current ledger is full, old enough, or asked to end.
    pub(super) fn is_due(&self, current: &LedgerRow, options: &Options, now_ms: u64) -> bool {
        self.is_full(current, options, now_ms, |limit| limit)
    }

    /// True if there is no next ledger and the current one will soon be full.
    pub(super) fn is_next_wanted(&self, current: &LedgerRow, options: &Options, now_ms: u64) -> bool {
        let nearly = |limit: u64| if limit <= SMALL_LEDGER { 1 } else { limit / 4 * 3 };
        matches!(self.next, Next::None) && self.is_full(current, options, now_ms, nearly)
    }

    fn is_full(
        &self,
        current: &LedgerRow,
        options: &Options,
        now_ms: u64,
        limit_of: impl Fn(u64) -> u64,
    ) -> bool {
        if self.keeping != options.keeping() {
            return true;
        }
        let age_ms = now_ms.saturating_sub(self.opened_ms);
        let is_full = current.entries >= limit_of(options.ledger_entries_max)
            || current.bytes >= limit_of(options.ledger_bytes_max)
            || age_ms >= options.ledger_age_ms_max;
        current.entries > 0 && (self.is_asked || (is_full && age_ms >= options.ledger_age_ms_min))
    }

    // ---- the next ledger ---------------------------------------------------------------------------------------

    /// Records that the next ledger is being created.
    pub(super) fn prepare(&mut self) {
        self.next = Next::Preparing;
    }

    /// Records that the next ledger was created, or that this failed.
    pub(super) fn on_prepared(&mut self, made: Option<NewLedger>) {
        self.next = made.map_or(Next::None, Next::Ready);
    }

    pub(super) fn is_ready(&self) -> bool {
        matches!(self.next, Next::Ready(_))
    }

    pub(super) fn is_preparing(&self) -> bool {
        matches!(self.next, Next::Preparing)
    }

    /// The next ledger, which nothing was appended to.
    pub(super) fn spare(&self) -> Option<LedgerId> {
        match &self.next {
            Next::Ready(spare) => Some(spare.writer.id()),
            Next::None | Next::Preparing => None,
        }
    }

    /// Makes the next ledger the current one.
    pub(super) fn take_next(&mut self, now_ms: u64) -> Option<Arc<dyn LedgerWriter>> {
        let Next::Ready(ledger) = std::mem::replace(&mut self.next, Next::None) else {
            return None;
        };
        self.keeping = ledger.keeping;
        self.opened_ms = now_ms;
        self.is_asked = false;
        Some(ledger.writer)
    }

    /// There will be none.
    pub(super) fn end(&mut self) {
        self.next = Next::None;
    }
}
