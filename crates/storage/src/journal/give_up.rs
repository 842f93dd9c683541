//! Giving up appends that were queued when the device turned out to be full.
//!
//! Appends are refused as soon as that is known. Those that were queued before have been promised nothing yet, but a caller waits
//! for each of them, and a ledger whose entries wait can be neither closed nor recovered. So they wait for room for a while only;
//! then they are dropped, and their ledgers with them: what such a ledger has is sealed when it is recovered.

use std::collections::HashMap;
use std::sync::Arc;

use pharos_runtime::Nanos;
use pharos_types::LedgerId;

use super::Journal;
use super::select::no_space;
use crate::ledgers::Ledger;
use crate::queue::Op;

impl Journal {
    /// Drops the entries that wait for room, when they have waited long enough or the store is to stop. `true`: there were any.
    pub(super) fn give_up_waiting(&mut self, now: Nanos) -> bool {
        let since = *self.short_since.get_or_insert(now);
        let is_stopping = self.pending.iter().any(|op| matches!(op, Op::Stop));
        if !is_stopping && now.since(since) < self.shared.options.space_patience.as_nanos() as u64 {
            return false;
        }
        self.short_since = None;
        let mut ledgers: HashMap<LedgerId, Arc<Ledger>> = HashMap::new();
        for op in &self.pending {
            if let Op::Entry { ledger, .. } = op {
                ledgers.entry(ledger.id).or_insert_with(|| Arc::clone(ledger));
            }
        }
        if ledgers.is_empty() {
            return false;
        }
        let fault = no_space("append");
        tracing::warn!(
            ledgers = ledgers.len(),
            "no space left: appends that were queued are given up"
        );
        for ledger in ledgers.values() {
            ledger.lock().give_up(&fault);
        }
        // Whatever was queued for them meanwhile; from now on nothing is.
        self.shared.journals[self.number].queue.take(&mut self.pending);
        let (mut dropped, mut bytes) = (0, 0);
        self.pending.retain(|op| {
            let goes = match op {
                Op::Entry { ledger, .. } => ledgers.contains_key(&ledger.id),
                // Who waited for it was told; a seal of what is left comes with the right count.
                Op::Seal { ledger, entry_count } => {
                    ledgers.contains_key(&ledger.id) && *entry_count > ledger.lock().end
                }
                Op::Create { .. } | Op::Delete { .. } | Op::Stop => false,
            };
            if goes {
                dropped += 1;
                bytes += op.record_bytes();
            }
            !goes
        });
        self.here().queue.finished(dropped, bytes, self.rooms());
        true
    }
}
