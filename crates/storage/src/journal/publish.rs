//! The effects of a group that is as durable as was asked for.

use std::collections::hash_map::Entry;
use std::sync::Arc;

use pharos_ledger::StorageFault;
use pharos_types::LedgerId;

use super::{Journal, Placed};
use crate::format::record::{Kind, record_bytes};
use crate::ledgers::{Ledger, Location, Phase};
use crate::queue::Op;
use crate::stats::bump;

/// What one group adds to one ledger.
#[derive(Debug)]
pub(super) struct Touched {
    ledger: Arc<Ledger>,
    locations: Vec<Location>,
    bytes: u64,
}

impl Journal {
    /// Lets the effects of `group` appear: first all entries, each ledger's tail once; then the facts in order.
    pub(super) fn publish(&mut self, group: Vec<Placed>) {
        let Some(segment) = self.active.as_ref().map(|active| active.file.id) else {
            return;
        };
        self.publish_entries(segment, &group);
        let mut moved = false;
        for Placed { op, byte_offset } in group {
            match op {
                Op::Entry { .. } | Op::Stop => {}
                Op::Create { ledger, done } => {
                    ledger.lock().created_in = segment;
                    self.note_fact(segment, ledger.id, Kind::Created, true);
                    self.shared.ledgers.insert(ledger);
                    let _ = done.send(Ok(()));
                }
                Op::Seal { ledger, .. } => self.on_sealed(segment, &ledger),
                Op::Delete { ledger, done } => {
                    self.on_deleted(segment, &ledger);
                    let _ = done.send(Ok(()));
                }
                Op::Move {
                    ledger,
                    entry,
                    from,
                    payload,
                    batch,
                } => {
                    let to = Location::new(segment, byte_offset, payload.len() as u32, true);
                    self.on_moved(&ledger, entry, from, to);
                    batch.finish(true);
                    moved = true;
                }
                Op::Restate {
                    kind,
                    ledger,
                    from,
                    batch,
                    ..
                } => {
                    self.on_restated(segment, kind, ledger, from);
                    batch.finish(true);
                    moved = true;
                }
            }
        }
        if moved {
            self.shared.keeper_bell.ring();
        }
    }

    fn publish_entries(&mut self, segment: u32, group: &[Placed]) {
        let (mut count, mut total) = (0, 0);
        let mut segments = self.shared.segments();
        let mut noted = segments.by_id.get_mut(&segment);
        for Placed { op, byte_offset } in group {
            let Op::Entry {
                ledger,
                entry,
                payload,
            } = op
            else {
                continue;
            };
            count += 1;
            total += payload.len() as u64;
            if let Some(noted) = &mut noted {
                noted.note_entry(ledger.id, Kind::Entry, *entry, payload.len(), true);
            }
            let touched = match self.touched.entry(ledger.id) {
                Entry::Occupied(touched) => touched.into_mut(),
                Entry::Vacant(vacant) => vacant.insert(Touched {
                    ledger: Arc::clone(ledger),
                    locations: Vec::new(),
                    bytes: 0,
                }),
            };
            let location = Location::new(segment, *byte_offset, payload.len() as u32, false);
            touched.locations.push(location);
            touched.bytes += payload.len() as u64;
        }
        drop(segments);
        for (_, touched) in self.touched.drain() {
            let mut state = touched.ledger.lock();
            state.index.extend(touched.locations);
            state.bytes += touched.bytes;
            let durable = state.index.len() as u64;
            if let Some(tail) = &state.tail {
                // Once failed, always failed: somebody may have acted on it.
                tail.send_if_modified(|tail| {
                    let moves = tail.failed.is_none();
                    if moves {
                        tail.durable = durable;
                    }
                    moves
                });
            }
        }
        bump(&self.shared.counters.entries, count);
        bump(&self.shared.counters.payload_bytes, total);
    }

    fn note_fact(&self, segment: u32, ledger: LedgerId, kind: Kind, live: bool) {
        if let Some(segment) = self.shared.segments().by_id.get_mut(&segment) {
            segment.note_fact(ledger, kind, live);
        }
    }

    fn on_sealed(&self, segment: u32, ledger: &Ledger) {
        let deleted = {
            let mut state = ledger.lock();
            if !state.deleted {
                state.on_sealed(segment);
            }
            state.deleted
        };
        self.note_fact(segment, ledger.id, Kind::Sealed, !deleted);
    }

    fn on_deleted(&self, segment: u32, ledger: &Ledger) {
        let fault = deleted_fault(ledger.id);
        {
            let mut state = ledger.lock();
            state.deleted = true;
            state.phase = Phase::Fenced;
            state.on_failed(&fault);
            state.tail = None;
            state.index = Vec::new();
        }
        self.shared.ledgers.remove(ledger.id);
        self.shared.segments().on_deleted(ledger.id, segment);
        // Whole segments may have become dead.
        self.shared.keeper_bell.ring();
    }

    fn on_moved(&self, ledger: &Ledger, entry: u64, from: Location, to: Location) {
        let current = {
            let mut state = ledger.lock();
            let place = usize::try_from(entry).ok().and_then(|e| state.index.get_mut(e));
            match place {
                Some(place) if *place == from => {
                    *place = to;
                    true
                }
                _ => false,
            }
        };
        let bytes = record_bytes(to.body_bytes()) as u64;
        let mut segments = self.shared.segments();
        if let Some(segment) = segments.by_id.get_mut(&to.segment) {
            segment.note_entry(ledger.id, Kind::Moved, entry, to.body_bytes(), current);
        }
        if current {
            segments.release(from.segment, ledger.id, bytes);
        } else {
            segments.settle_deletion(ledger.id);
        }
        bump(&self.shared.counters.bytes_moved, bytes);
    }

    fn on_restated(&self, segment: u32, kind: Kind, ledger: LedgerId, from: u32) {
        if kind == Kind::Deleted {
            let mut segments = self.shared.segments();
            if let Some(to) = segments.by_id.get_mut(&segment) {
                to.note_fact(ledger, kind, false);
            }
            if segments.deleted.get(&ledger) == Some(&from) {
                segments.deleted.insert(ledger, segment);
                segments.release(from, ledger, u64::MAX);
                segments.settle_deletion(ledger);
            }
            return;
        }
        let Some(found) = self.shared.ledgers.get(ledger) else {
            self.note_fact(segment, ledger, kind, false);
            self.shared.segments().settle_deletion(ledger);
            return;
        };
        let current = {
            let mut state = found.lock();
            let created = kind == Kind::Created;
            let place = if created {
                &mut state.created_in
            } else {
                &mut state.sealed_in
            };
            let current = *place == from;
            if current {
                *place = segment;
                state.created_restated |= created;
            }
            current
        };
        self.note_fact(segment, ledger, kind, current);
        if current {
            self.shared
                .segments()
                .release(from, ledger, crate::segments::FACT_BYTES);
        }
    }

    /// Whether a fact still has its current record in segment `from`.
    pub(super) fn is_restate_needed(&self, ledger: LedgerId, from: u32) -> bool {
        let segments = self.shared.segments();
        let segment = segments.by_id.get(&from);
        segment
            .and_then(|s| s.ledgers.get(&ledger))
            .is_some_and(|p| p.live_bytes > 0)
    }

    /// Answers an op that need not be written.
    pub(super) fn answer_obsolete(&self, op: Op) {
        match op {
            // Deleted, and that is durable.
            Op::Delete { done, .. } => {
                let _ = done.send(Ok(()));
            }
            Op::Seal { ledger, .. } => ledger.lock().on_failed(&deleted_fault(ledger.id)),
            Op::Move { batch, .. } | Op::Restate { batch, .. } => {
                batch.finish(true);
                self.shared.keeper_bell.ring();
            }
            Op::Entry { .. } | Op::Create { .. } | Op::Stop => {}
        }
    }
}

pub(super) fn deleted_fault(ledger: LedgerId) -> Arc<StorageFault> {
    StorageFault::new(format!("ledger {ledger}"), "was deleted")
}
