//! Selection of the next group, and of the ops that may pass while entries must wait.
//!
//! Entries wait for a segment and for room in the write cache. Facts may pass entries of *other* ledgers, and may use
//! the reserve at the end of the active segment, so that ledgers can be deleted and room be made.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use pharos_ledger::{Durability, StorageFault};
use pharos_runtime::Nanos;
use pharos_storage_format::group::GROUP_HEADER_BYTES;

use super::group::journal_bytes;
use super::{Journal, Placed, Step};
use crate::chunk;
use crate::queue::{Op, Refused};

/// Maximum bytes of a group for each kind of op.
struct Limits {
    facts: usize,
    entries: usize,
    /// For entries of background ledgers and new ledgers.
    background: usize,
    /// Entries are refused for want of space.
    is_short: bool,
}

impl Limits {
    fn of(journal: &Journal) -> Self {
        Self {
            facts: journal.room().saturating_sub(journal.shared.block_bytes()),
            entries: journal.entries_limit(),
            background: journal.background_limit(),
            is_short: journal.here().queue.refuses_for_space(),
        }
    }

    fn for_op(&self, op: &Op) -> usize {
        match op {
            Op::Entry { ledger, .. } if self.is_short && ledger.is_background => self.background,
            Op::Entry { .. } => self.entries,
            Op::Create { .. } if self.is_short => self.background,
            Op::Create { .. } | Op::Seal { .. } | Op::Delete { .. } | Op::Stop => self.facts,
        }
    }
}

/// Ops that are written although entries wait.
#[derive(Debug, Default)]
struct Facts {
    group: Vec<Placed>,
    /// Some did not fit into the active segment.
    lack_room: bool,
    /// And some were told so.
    refused: bool,
}

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
        let limits = Limits::of(self);
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
            if need > 0 && bytes + need > limits.for_op(op) {
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
            self.here().queue.finished(1, bytes, self.rooms());
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
                self.here().queue.finished(1, bytes, self.rooms());
            }
        }
        waits
    }

    /// The first pending op needs a segment that is not there.
    pub(super) fn on_no_segment(&mut self, now: Nanos) -> Result<Step, Arc<StorageFault>> {
        if !self.here().queue.refuses_for_space() {
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
        let gave_up = self.here().queue.refuses_for_space() && self.give_up_waiting(now);
        let facts = self.select_facts();
        if !facts.group.is_empty() {
            self.commit(facts.group, now)?;
            return Ok(Step::Worked);
        }
        if facts.lack_room && self.take_reserve()? || gave_up || facts.refused {
            return Ok(Step::Worked);
        }
        Ok(stalled)
    }

    /// Goes on in the reserve, or asks for it. `true`: the journal is in it.
    fn take_reserve(&mut self) -> Result<bool, Arc<StorageFault>> {
        let prepared = self.here().supply().prepared.take();
        if let Some(prepared) = prepared {
            self.roll(prepared)?;
            return Ok(true);
        }
        let here = self.here();
        here.reserve_wanted.store(true, Ordering::Release);
        here.bell.ring();
        Ok(false)
    }

    /// Selects the ops that are written although entries wait.
    fn select_facts(&mut self) -> Facts {
        let limits = Limits::of(self);
        let here = &self.shared.journals[self.number];
        // With neither a reserve nor a segment to come, who waits must be told.
        let is_last =
            limits.is_short && !here.has_reserve(&self.shared.options) && here.supply().prepared.is_none();
        let deleted = self.ledgers_to_delete();
        // Ledgers with an entry that waits: their later facts wait behind it.
        let mut waiting = HashSet::new();
        let mut kept = VecDeque::new();
        let mut facts = Facts::default();
        let mut bytes = GROUP_HEADER_BYTES;
        let (mut dropped, mut dropped_bytes) = (0, 0);
        for op in std::mem::take(&mut self.pending) {
            let op_bytes = op.record_bytes();
            let fits = bytes + op_bytes <= limits.for_op(&op);
            let goes = match &op {
                Op::Entry { ledger, .. } if deleted.contains(&ledger.id) => {
                    dropped += 1;
                    dropped_bytes += op_bytes;
                    continue;
                }
                Op::Entry { ledger, .. } => {
                    let vital = limits.is_short && op.is_background() && !waiting.contains(&ledger.id);
                    facts.lack_room |= vital && !fits;
                    if !(vital && fits) {
                        waiting.insert(ledger.id);
                    }
                    vital && fits
                }
                Op::Stop => false,
                Op::Seal { ledger, .. } if ledger.durability == Durability::Bypass => false,
                Op::Seal { ledger, .. } | Op::Delete { ledger, .. } if waiting.contains(&ledger.id) => false,
                Op::Create { .. } | Op::Seal { .. } | Op::Delete { .. } if fits => true,
                Op::Create { .. } | Op::Seal { .. } | Op::Delete { .. } => {
                    facts.lack_room = true;
                    if is_last {
                        dropped += 1;
                        dropped_bytes += op_bytes;
                        facts.refused = true;
                        refuse_for_space(op);
                        continue;
                    }
                    false
                }
            };
            if goes {
                bytes += op_bytes;
                facts.group.push(Placed { op, crc: 0 });
            } else {
                kept.push_back(op);
            }
        }
        self.pending = kept;
        self.here().queue.finished(dropped, dropped_bytes, self.rooms());
        facts
    }

    fn ledgers_to_delete(&self) -> HashSet<pharos_types::LedgerId> {
        let deletes = self.pending.iter().filter_map(|op| match op {
            Op::Delete { ledger, .. } => Some(ledger.id),
            _ => None,
        });
        deletes.collect()
    }
}

/// Answers a fact for which there is no room, nor will be soon.
fn refuse_for_space(op: Op) {
    match op {
        Op::Create { done, .. } | Op::Delete { done, .. } => {
            // Who gave up waiting does not mind.
            let _ = done.send(Err(Refused::NoSpace));
        }
        Op::Seal { ledger, .. } => ledger.lock().on_seal_failed(&no_space("seal a ledger")),
        Op::Entry { .. } | Op::Stop => {}
    }
}

/// The device is full, which passes.
pub(super) fn no_space(what: &str) -> Arc<StorageFault> {
    StorageFault::transient(what, "no space left on the device")
}

fn group_or(group: Vec<Placed>, otherwise: Selected) -> Selected {
    if group.is_empty() {
        otherwise
    } else {
        Selected::Group(group)
    }
}
