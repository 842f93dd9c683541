//! Emptying mostly dead segments: what is still needed is appended again through the journal.
//!
//! The old records stay valid until the copies are durable, so a crash at any point leaves one or two good copies of
//! each. When nothing live is left the segment is dead and goes the usual way.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use pharos_ledger::Durability;
use pharos_runtime::{Nanos, clock};
use pharos_types::LedgerId;

use super::{Keeper, Pace};
use crate::format::record::Kind;
use crate::journal::group::RESTATED;
use crate::ledgers::{Ledger, Location};
use crate::queue::{MoveBatch, Op};
use crate::reader;
use crate::segments::{Presence, Segment, SegmentFile};

/// Bytes copied in one round.
const ROUND_BYTES: u64 = 256 << 10;

/// Segments this many times smaller than usual are small.
const SMALL_PART: u64 = 16;

/// So many small segments are too many: they come from restarts and are merged.
const SMALL_SEGMENTS_MAX: usize = 8;

/// How long to wait after a round that could not be written.
const AFTER_FAILURE: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Compaction {
    file: Arc<SegmentFile>,
    /// Ledgers still to be looked at, the next one last.
    todo: Vec<(LedgerId, Presence)>,
    /// The entry to go on with in the last of `todo`.
    entry_next: Option<u64>,
    batch: Arc<MoveBatch>,
    /// No further round before this, to keep the rate.
    not_before: Nanos,
}

/// One round's worth of copies.
#[derive(Default)]
struct Round {
    ops: Vec<Op>,
    bytes: u64,
    /// Something could not be read.
    damaged: bool,
}

impl Keeper {
    /// Goes on with a compaction, or looks for a segment that deserves one.
    pub(super) fn compact(&mut self) -> Pace {
        if self.shared.queue.has_no_space() {
            return Pace::Wait(None);
        }
        let Some(mut compaction) = self.compaction.take() else {
            self.compaction = self.find_candidate();
            return if self.compaction.is_some() {
                Pace::Again
            } else {
                Pace::Wait(None)
            };
        };
        if compaction.batch.is_open() {
            // The journal rings when copies are done.
            self.compaction = Some(compaction);
            return Pace::Wait(None);
        }
        let early = compaction.not_before.since(clock::now());
        if early > 0 {
            self.compaction = Some(compaction);
            return Pace::Wait(Some(Duration::from_nanos(early)));
        }
        if compaction.batch.has_failed() {
            return Pace::Wait(Some(AFTER_FAILURE));
        }
        let mut round = Round::default();
        self.collect(&mut compaction, &mut round);
        let file = Arc::clone(&compaction.file);
        if round.damaged {
            self.pin(file.id);
        }
        if round.ops.is_empty() {
            // Whatever is still live now cannot be moved; do not try for ever.
            if self
                .shared
                .segments()
                .by_id
                .get(&file.id)
                .is_some_and(|s| s.live_bytes > 0)
            {
                self.pin(file.id);
            }
            return Pace::Again;
        }
        compaction.batch.expect(round.ops.len());
        for op in round.ops {
            if self.shared.queue.push(op).is_err() {
                compaction.batch.finish(false);
            }
        }
        let rate = self.shared.options.compact_bytes_per_s.max(1);
        let pause = round.bytes.saturating_mul(1_000_000_000) / rate;
        compaction.not_before = Nanos(clock::now().0.saturating_add(pause));
        self.compaction = Some(compaction);
        Pace::Wait(None)
    }

    fn find_candidate(&self) -> Option<Compaction> {
        let options = &self.shared.options;
        let block = u64::from(self.shared.superblock.block_bytes);
        let segments = self.shared.segments();
        let usable =
            |s: &&Segment| s.closed && s.indexed && !s.pinned && s.live_bytes > 0 && s.damages.is_empty();
        let mostly_dead = |s: &&Segment| {
            s.live_bytes.saturating_mul(100)
                < s.end.saturating_sub(block) * u64::from(options.compact_live_percent)
        };
        let small = |s: &&Segment| s.end < options.segment_bytes / SMALL_PART;
        let usable_all = || segments.by_id.values().filter(usable);
        let found = usable_all().find(mostly_dead).or_else(|| {
            let count = usable_all().filter(small).count();
            usable_all().find(small).filter(|_| count >= SMALL_SEGMENTS_MAX)
        })?;
        let mut todo: Vec<(LedgerId, Presence)> = found
            .ledgers
            .iter()
            .filter(|(_, p)| p.live_bytes > 0)
            .map(|(l, p)| (*l, *p))
            .collect();
        todo.sort_unstable_by_key(|(ledger, _)| std::cmp::Reverse(*ledger));
        Some(Compaction {
            file: Arc::clone(&found.file),
            todo,
            entry_next: None,
            batch: Arc::default(),
            not_before: Nanos::default(),
        })
    }

    fn pin(&self, segment: u32) {
        if let Some(segment) = self.shared.segments().by_id.get_mut(&segment) {
            segment.pinned = true;
        }
    }

    fn collect(&self, compaction: &mut Compaction, round: &mut Round) {
        while round.bytes < ROUND_BYTES
            && let Some((id, presence)) = compaction.todo.last().copied()
        {
            let Some(ledger) = self.shared.ledgers.get(id) else {
                self.restate_deletion(compaction, id, round);
                compaction.todo.pop();
                continue;
            };
            let first = compaction.entry_next.unwrap_or_else(|| {
                self.restate_facts(compaction, &ledger, round);
                presence.first
            });
            compaction.entry_next = self.collect_entries(compaction, &ledger, first, presence.last, round);
            if compaction.entry_next.is_none() {
                compaction.todo.pop();
            }
        }
    }

    /// Copies entries from `first` on while the round has room; returns where to go on.
    fn collect_entries(
        &self,
        compaction: &Compaction,
        ledger: &Arc<Ledger>,
        first: u64,
        last: u64,
        round: &mut Round,
    ) -> Option<u64> {
        for entry in first..=last {
            if round.bytes >= ROUND_BYTES {
                return Some(entry);
            }
            let location = {
                let state = ledger.lock();
                let location = usize::try_from(entry).ok().and_then(|e| state.index.get(e));
                location.copied().filter(|l| l.segment == compaction.file.id)
            };
            let Some(from) = location else { continue };
            let Some(payload) = read_one(&compaction.file, ledger.id, entry, from) else {
                tracing::error!(
                    ledger = ledger.id.0, entry, file = %compaction.file.path.display(),
                    byte_offset = from.byte_offset, "a damaged entry cannot be moved"
                );
                round.damaged = true;
                continue;
            };
            round.bytes += payload.len() as u64 + crate::segments::FACT_BYTES;
            round.ops.push(Op::Move {
                ledger: Arc::clone(ledger),
                entry,
                from,
                payload,
                batch: Arc::clone(&compaction.batch),
            });
        }
        None
    }

    fn restate_facts(&self, compaction: &Compaction, ledger: &Ledger, round: &mut Round) {
        let segment = compaction.file.id;
        let state = ledger.lock();
        let (created_in, sealed_in, sealed) = (state.created_in, state.sealed_in, state.sealed);
        drop(state);
        if created_in == segment {
            let value = u64::from(ledger.durability == Durability::Async) | RESTATED;
            self.restate(compaction, Kind::Created, ledger.id, value, round);
        }
        if let Some(sealed) = sealed.filter(|_| sealed_in == segment) {
            self.restate(compaction, Kind::Sealed, ledger.id, sealed.entry_count, round);
        }
    }

    fn restate_deletion(&self, compaction: &Compaction, ledger: LedgerId, round: &mut Round) {
        let here = self.shared.segments().deleted.get(&ledger) == Some(&compaction.file.id);
        if here {
            self.restate(compaction, Kind::Deleted, ledger, 0, round);
        }
    }

    fn restate(&self, compaction: &Compaction, kind: Kind, ledger: LedgerId, value: u64, round: &mut Round) {
        round.bytes += crate::segments::FACT_BYTES;
        round.ops.push(Op::Restate {
            kind,
            ledger,
            value,
            from: compaction.file.id,
            batch: Arc::clone(&compaction.batch),
        });
    }
}

fn read_one(file: &SegmentFile, ledger: LedgerId, entry: u64, location: Location) -> Option<Bytes> {
    let bytes = crate::format::record::record_bytes(location.body_bytes());
    let record = file.read_span(u64::from(location.byte_offset), bytes).ok()?;
    reader::check_record(&record, file.salt, ledger, entry, location)
}
