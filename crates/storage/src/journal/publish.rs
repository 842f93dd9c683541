//! The effects of a group that is as durable as was asked for.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::Arc;

use pharos_ledger::StorageFault;
use pharos_runtime::Nanos;
use pharos_storage_format::checkpoint::Mark;
use pharos_types::LedgerId;

use super::{Journal, Placed};
use crate::cache::JournalProgress;
use crate::chunk::CachedEntry;
use crate::ledgers::{Ledger, Phase};
use crate::queue::Op;
use crate::shared::Shared;
use crate::stats::bump;

/// Additions of one group to each ledger. The same group always has the same order, so that a simulated history can
/// be repeated; the ids are the engine's own, so no client can make them collide.
pub(super) type TouchedLedgers = HashMap<LedgerId, Touched, BuildHasherDefault<DefaultHasher>>;

/// Additions of one group to one ledger.
#[derive(Debug)]
pub(super) struct Touched {
    ledger: Arc<Ledger>,
    first: u64,
    entries: Vec<CachedEntry>,
}

impl Journal {
    /// Lets the effects of `group` appear: first all entries, each ledger's tail once; then the facts in order.
    /// `whole`: nothing of the last group written is left after this.
    pub(super) fn publish(&mut self, group: Vec<Placed>, whole: bool, now: Nanos) {
        let mark = self.active.as_ref().map(|active| Mark {
            segment: active.file.id,
            byte_offset: active.end,
            sequence: self.sequence,
        });
        let progress = mark.filter(|_| whole).map(|mark| JournalProgress {
            mark,
            written: self.written,
        });
        let epoch = self.shared.cache.begin_publish(self.number, progress);
        let mut facts = Vec::new();
        for Placed { op, crc } in group {
            match op {
                Op::Entry {
                    ledger,
                    entry,
                    payload,
                    crc32c: _,
                } => self.touch(ledger, entry, CachedEntry { payload, crc }),
                fact => facts.push(fact),
            }
        }
        self.publish_entries(epoch, now);
        for fact in facts {
            match fact {
                Op::Entry { .. } | Op::Stop => {}
                Op::Create { ledger, done } => {
                    self.shared.ledgers.insert(ledger);
                    let _ = done.send(Ok(()));
                }
                Op::Seal { ledger, .. } => {
                    let mut state = ledger.lock();
                    if !state.deleted {
                        state.on_sealed();
                    }
                }
                Op::Delete { ledger, done } => {
                    on_deleted(&self.shared, &ledger);
                    let _ = done.send(Ok(()));
                }
            }
        }
        self.shared.cache.end_publish(self.number);
    }

    fn touch(&mut self, ledger: Arc<Ledger>, entry: u64, cached: CachedEntry) {
        let touched = match self.touched.entry(ledger.id) {
            Entry::Occupied(touched) => touched.into_mut(),
            Entry::Vacant(vacant) => vacant.insert(Touched {
                ledger,
                first: entry,
                entries: Vec::new(),
            }),
        };
        touched.entries.push(cached);
    }

    fn publish_entries(&mut self, epoch: u64, now: Nanos) {
        let (mut count, mut payload_bytes) = (0, 0);
        let (mut cost, mut gone) = (0, 0);
        let mut new = Vec::new();
        for (_, touched) in self.touched.drain() {
            let bytes: u64 = touched.entries.iter().map(CachedEntry::cost).sum();
            count += touched.entries.len() as u64;
            payload_bytes += touched
                .entries
                .iter()
                .map(|e| e.payload.len() as u64)
                .sum::<u64>();
            cost += bytes;
            let mut state = touched.ledger.lock();
            if state.deleted {
                gone += bytes;
                continue;
            }
            let first_here = state.chunks[(epoch & 1) as usize].is_empty();
            state.publish(epoch, touched.first, touched.entries);
            drop(state);
            if first_here {
                new.push(touched.ledger);
            }
        }
        if count > 0 && self.shared.cache.add(epoch, cost, cost - gone, new, now) {
            // It sleeps without an end while there is nothing to flush.
            self.shared.flush_bell.ring();
        }
        bump(&self.shared.counters.entries, count);
        bump(&self.shared.counters.payload_bytes, payload_bytes);
    }

    /// Answers an op that need not be written.
    pub(super) fn answer_obsolete(&self, op: Op) {
        match op {
            // Deleted, and that is durable.
            Op::Delete { done, .. } => {
                let _ = done.send(Ok(()));
            }
            Op::Seal { ledger, .. } => ledger.lock().on_failed(&deleted_fault(&ledger)),
            Op::Entry { .. } | Op::Create { .. } | Op::Stop => {}
        }
    }
}

/// The deletion of a ledger is durable: its entries leave memory at once, and its records in the logs are dead.
pub(crate) fn on_deleted(shared: &Shared, ledger: &Ledger) {
    let fault = deleted_fault(ledger);
    let (chunks, runs) = {
        let mut state = ledger.lock();
        if std::mem::replace(&mut state.deleted, true) {
            return;
        }
        state.phase = Phase::Fenced;
        state.on_failed(&fault);
        state.tail = None;
        (std::mem::take(&mut state.chunks), std::mem::take(&mut state.runs))
    };
    shared.ledgers.remove(ledger.id);
    for (half, chunk) in (0..).zip(&chunks) {
        if chunk.cost > 0 {
            shared.cache.release(half, chunk.cost);
            bump(&shared.counters.trimmed_bytes, chunk.cost);
        }
    }
    shared.release_runs(ledger.dir, runs.iter());
    shared.ring_journals();
    // Whole logs may have become dead.
    shared.flush_bell.ring();
}

fn deleted_fault(ledger: &Ledger) -> Arc<StorageFault> {
    StorageFault::new(format!("ledger {}", ledger.id), "was deleted")
}
