//! What still goes when there is no room for a further segment.
//!
//! Entries wait. Facts may use the reserve at the end of the active segment, ahead of entries of *other* ledgers, so
//! that ledgers can be deleted and room be made.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use pharos_ledger::StorageFault;
use pharos_runtime::Nanos;

use super::{Journal, Placed, Step};
use crate::format::group::GROUP_HEADER_BYTES;
use crate::queue::{Op, Refused};

impl Journal {
    /// The first pending op needs a segment that is not there.
    pub(super) fn on_stalled(&mut self, now: Nanos) -> Result<Step, Arc<StorageFault>> {
        if !self.shared.queue.has_no_space() {
            // The keeper is at it and rings when it is ready; it need not fill the file to its end first.
            self.shared.supply_urgent.store(true, Ordering::Release);
            return Ok(Step::NoSegment);
        }
        if self.pending.iter().any(|op| matches!(op, Op::Stop)) {
            // Nobody will wait for room any more; what is queued was never acknowledged.
            return Err(StorageFault::new("stop", "no space left for what was queued"));
        }
        let group = self.select_facts();
        if group.is_empty() {
            return Ok(Step::NoSegment);
        }
        self.commit(group, now)?;
        Ok(Step::Worked)
    }

    fn select_facts(&mut self) -> Vec<Placed> {
        let room = self.room().saturating_sub(self.shared.block_bytes());
        let deleted: HashSet<_> = self
            .pending
            .iter()
            .filter_map(|op| {
                if let Op::Delete { ledger, .. } = op {
                    Some(ledger.id)
                } else {
                    None
                }
            })
            .collect();
        // Ledgers with an entry that waits: their later facts wait behind it.
        let mut waiting = HashSet::new();
        let mut kept = VecDeque::new();
        let mut group = Vec::new();
        let mut bytes = GROUP_HEADER_BYTES;
        let (mut dropped, mut dropped_bytes) = (0, 0);
        for op in std::mem::take(&mut self.pending) {
            let fits = bytes + op.record_bytes() <= room;
            match op {
                Op::Entry { ref ledger, .. } if deleted.contains(&ledger.id) => {
                    dropped += 1;
                    dropped_bytes += op.record_bytes();
                }
                Op::Entry { ref ledger, .. } => {
                    waiting.insert(ledger.id);
                    kept.push_back(op);
                }
                Op::Create { done, .. } => {
                    let _ = done.send(Err(Refused::NoSpace));
                    dropped += 1;
                    dropped_bytes += crate::segments::FACT_BYTES as usize;
                }
                Op::Move { ref batch, .. } | Op::Restate { ref batch, .. } => {
                    batch.finish(false);
                    dropped += 1;
                    dropped_bytes += op.record_bytes();
                    self.shared.keeper_bell.ring();
                }
                Op::Seal { ref ledger, .. } | Op::Delete { ref ledger, .. }
                    if fits && !waiting.contains(&ledger.id) =>
                {
                    let byte_offset = self.next_offset(bytes);
                    bytes += op.record_bytes();
                    group.push(Placed { op, byte_offset });
                }
                Op::Seal { .. } | Op::Delete { .. } | Op::Stop => kept.push_back(op),
            }
        }
        self.pending = kept;
        self.shared
            .queue
            .finished(dropped, dropped_bytes, self.entries_room());
        group
    }
}
