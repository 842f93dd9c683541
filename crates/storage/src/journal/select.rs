//! What makes up the next group, and what still goes when entries must wait.
//!
//! Entries wait for a segment and for room in the write cache. Facts may pass entries of *other* ledgers, and may use the
//! reserve at the end of the active segment, so that ledgers can be deleted and room be made.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use pharos_ledger::{Durability, StorageFault};
use pharos_runtime::Nanos;

use super::group::journal_bytes;
use super::{Journal, Placed, Step};
use crate::chunk;
use crate::format::group::GROUP_HEADER_BYTES;
use crate::queue::{Op, Refused};

pub(super) enum Selected {
    Group(Vec<Placed>),
    /// Everything looked at was obsolete or waits elsewhere.
    Nothing,
    /// The next op needs the next segment.
    Full,
    /// The next op needs room in the write cache.
    NoRoom,
    Stop,
}

impl Journal {
    /// Takes from `pending` what makes up the next group.
    pub(super) fn select(&mut self) -> Selected {
        let room = self.room();
        let facts_room = room.saturating_sub(self.shared.block_bytes());
        let entries_room = room.saturating_sub(self.reserve_bytes());
        let mut cache_room = self.shared.cache.room();
        let mut group: Vec<Placed> = Vec::new();
        let mut bytes = GROUP_HEADER_BYTES;
        while let Some(op) = self.pending.front() {
            if matches!(op, Op::Stop) {
                if group.is_empty() {
                    return Selected::Stop;
                }
                break;
            }
            if self.drop_obsolete() || self.park_seal() {
                continue;
            }
            let Some(op) = self.pending.front() else { break };
            if let Op::Entry { payload, .. } = op {
                let cost = chunk::cost(payload.len());
                // Only an empty half takes whatever comes first.
                let first = cache_room == u64::MAX;
                if cost > cache_room {
                    return group_or(group, Selected::NoRoom);
                }
                cache_room = if first {
                    self.shared.cache.half_bytes().saturating_sub(cost)
                } else {
                    cache_room - cost
                };
            }
            let need = journal_bytes(op);
            let limit = if op.is_fact() { facts_room } else { entries_room };
            if need > 0 && bytes + need > limit {
                return group_or(group, Selected::Full);
            }
            let options = &self.shared.options;
            let full = bytes + need > options.group_bytes_max || group.len() >= options.group_entries_max;
            if !group.is_empty() && full {
                break;
            }
            if let Some(op) = self.pending.pop_front() {
                group.push(Placed { op, crc: 0 });
            }
            bytes += need;
        }
        group_or(group, Selected::Nothing)
    }

    /// Answers the first pending op without writing when it has become pointless.
    fn drop_obsolete(&mut self) -> bool {
        let obsolete = match self.pending.front() {
            Some(Op::Delete { ledger, .. } | Op::Seal { ledger, .. }) => ledger.lock().deleted,
            _ => false,
        };
        if obsolete && let Some(op) = self.pending.pop_front() {
            let bytes = op.record_bytes();
            self.answer_obsolete(op);
            self.here().queue.finished(1, bytes, self.entries_room());
        }
        obsolete
    }

    /// Takes the first pending op away when it seals a ledger whose entries no durable checkpoint names: one will seal it.
    ///
    /// Entries that are in a log already may lie behind the end that the last checkpoint gives it, and a start cuts there.
    fn park_seal(&mut self) -> bool {
        let Some(Op::Seal { ledger, entry_count }) = self.pending.front() else {
            return false;
        };
        let is_kept = || {
            let state = ledger.lock();
            state.flushed >= *entry_count && state.named_by <= self.shared.generation()
        };
        let waits = ledger.durability == Durability::Bypass && !is_kept();
        if waits {
            self.shared.parked().push(Arc::clone(ledger));
            self.shared.flush_bell.ring();
            if let Some(op) = self.pending.pop_front() {
                let bytes = op.record_bytes();
                self.here().queue.finished(1, bytes, self.entries_room());
            }
        }
        waits
    }

    /// The first pending op needs a segment that is not there.
    pub(super) fn on_no_segment(&mut self, now: Nanos) -> Result<Step, Arc<StorageFault>> {
        if !self.here().queue.has_no_space() {
            // The preparer is at it and rings when it is ready; it need not fill the file to its end first.
            self.here().supply_urgent.store(true, Ordering::Release);
            return Ok(Step::NoSegment);
        }
        self.pass_facts(now, Step::NoSegment)
    }

    /// The first pending op needs a free half of the write cache.
    pub(super) fn on_no_room(&mut self, now: Nanos) -> Result<Step, Arc<StorageFault>> {
        self.shared.flush_wanted.store(true, Ordering::Release);
        self.shared.flush_bell.ring();
        self.pass_facts(now, Step::NoRoom)
    }

    fn pass_facts(&mut self, now: Nanos, stalled: Step) -> Result<Step, Arc<StorageFault>> {
        let stopping = self.pending.iter().any(|op| matches!(op, Op::Stop));
        if stopping && self.here().queue.refuses_for_space() {
            // Nobody will wait for room any more; what is queued was never acknowledged.
            return Err(StorageFault::new("stop", "no space left for what was queued"));
        }
        let group = self.select_facts();
        if group.is_empty() {
            return Ok(stalled);
        }
        self.commit(group, now)?;
        Ok(Step::Worked)
    }

    fn select_facts(&mut self) -> Vec<Placed> {
        let room = self.room().saturating_sub(self.shared.block_bytes());
        let refuses = self.here().queue.refuses_for_space();
        let deleted = self.ledgers_to_delete();
        // Ledgers with an entry that waits: their later facts wait behind it.
        let mut waiting = HashSet::new();
        let mut kept = VecDeque::new();
        let mut group = Vec::new();
        let mut bytes = GROUP_HEADER_BYTES;
        let (mut dropped, mut dropped_bytes) = (0, 0);
        for op in std::mem::take(&mut self.pending) {
            let op_bytes = op.record_bytes();
            let fits = bytes + op_bytes <= room;
            match op {
                Op::Entry { ref ledger, .. } if deleted.contains(&ledger.id) => {
                    dropped += 1;
                    dropped_bytes += op_bytes;
                }
                Op::Entry { ref ledger, .. } => {
                    waiting.insert(ledger.id);
                    kept.push_back(op);
                }
                Op::Create { done, .. } if refuses => {
                    let _ = done.send(Err(Refused::NoSpace));
                    dropped += 1;
                    dropped_bytes += op_bytes;
                }
                Op::Seal { ref ledger, .. } if ledger.durability == Durability::Bypass => kept.push_back(op),
                Op::Create { .. } if fits => {
                    bytes += op_bytes;
                    group.push(Placed { op, crc: 0 });
                }
                Op::Seal { ref ledger, .. } | Op::Delete { ref ledger, .. }
                    if fits && !waiting.contains(&ledger.id) =>
                {
                    bytes += op_bytes;
                    group.push(Placed { op, crc: 0 });
                }
                Op::Create { .. } | Op::Seal { .. } | Op::Delete { .. } | Op::Stop => kept.push_back(op),
            }
        }
        self.pending = kept;
        self.here()
            .queue
            .finished(dropped, dropped_bytes, self.entries_room());
        group
    }

    fn ledgers_to_delete(&self) -> HashSet<pharos_types::LedgerId> {
        let deletes = self.pending.iter().filter_map(|op| match op {
            Op::Delete { ledger, .. } => Some(ledger.id),
            _ => None,
        });
        deletes.collect()
    }
}

fn group_or(group: Vec<Placed>, otherwise: Selected) -> Selected {
    if group.is_empty() {
        otherwise
    } else {
        Selected::Group(group)
    }
}
