//! A journal: the one writer of its segment files, with one sync for all appends that wait.
//!
//! [`Journal::step`] takes what is queued, writes one group, syncs it, and only then tells anyone. A thread calls it
//! in a loop ([`thread`]); tests call it themselves.
//!
//! ```text
//!  queue ─► pending ─► group ─► write ─► (sync) ─► write cache, tails, answers
//!                        │
//!                        └ no room: the next segment (preparer) or a free half of the write cache (flusher)
//! ```
//! Always true: the effects of a group appear after its sync (or after its write, for entries of async ledgers; entries
//! that bypass the journal appear with those), in queue order within a ledger. After a failed write or sync nothing is
//! ever written again, in no journal.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use pharos_ledger::{Durability, StorageFault};
use pharos_runtime::Nanos;
use pharos_runtime::fs::AlignedBuf;
use pharos_storage_format::file::SegmentFile;
use pharos_storage_format::group::GROUP_HEADER_BYTES;
use pharos_storage_format::round_up;
use pharos_storage_format::segment_header::{SegmentEnd, SegmentHeader};

use crate::chunk;
use crate::options::RESERVE_BLOCKS;
use crate::queue::{Op, Refused, Room};
use crate::shared::{JournalShared, Prepared, Shared};
use crate::stats::bump;

mod fill;
mod give_up;
pub(crate) mod group;
mod idle;
pub(crate) mod prepare;
mod publish;
pub(crate) mod segments;
mod select;
pub(crate) mod spares;
pub(crate) mod thread;

pub(crate) use publish::on_deleted;
use segments::Segment;
use select::Selected;

/// Result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Something; there may be more.
    Worked,
    /// Nothing was queued; look again at the latest after this long.
    Idle(Option<Duration>),
    /// Waits for the preparer to bring the next segment.
    NoSegment,
    /// Waits for the flusher to empty the other half of the write cache.
    NoRoom,
    /// Will never do anything again.
    Stopped,
}

#[derive(Debug)]
pub(crate) struct Journal {
    shared: Arc<Shared>,
    number: usize,
    /// The segment being written; none when a start found no room for one.
    active: Option<Active>,
    /// End of the segment before the active one.
    previous: SegmentEnd,
    /// Taken from the queue, not yet written.
    pending: VecDeque<Op>,
    /// Bytes of a group. Grows to what groups need and is freed when idle.
    buf: AlignedBuf,
    /// The sequence number of the last group written.
    sequence: u64,
    /// The sequence number of the last group synced.
    synced: u64,
    /// The highest `synced` that a group header on disk says.
    marked: u64,
    /// Bytes written since the store was opened, and what a start found that no checkpoint covers.
    written: u64,
    /// Time of the first write that is not synced.
    dirty_since: Option<Nanos>,
    /// Start of the last group.
    worked_at: Nanos,
    /// For how many it was.
    sharing: GroupSharing,
    /// Time since which entries wait for room on a full device.
    short_since: Option<Nanos>,
    /// Per ledger what a group adds; kept for its memory.
    touched: publish::TouchedLedgers,
}

#[derive(Debug)]
struct Active {
    file: Arc<SegmentFile>,
    file_bytes: u64,
    /// Offset of the next group; a multiple of the block size.
    end: u64,
    /// The header was written but no sync has followed.
    header_unsynced: bool,
    /// The preparer is told when less room than this is left; that was done when it is 0.
    tell_at_room: u64,
    /// True if it was the reserve.
    is_reserve: bool,
}

/// An op of a group and the checksum of its body.
#[derive(Debug)]
struct Placed {
    op: Op,
    crc: u32,
}

/// For how many a group is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GroupSharing {
    /// Single record.
    Alone,
    /// Several entries of one ledger.
    OneLedger,
    Many,
}

impl GroupSharing {
    fn of(group: &[Placed]) -> Self {
        let ledger = |placed: &Placed| match &placed.op {
            Op::Entry { ledger, .. } => Some(ledger.id),
            _ => None,
        };
        match group {
            [] | [_] => Self::Alone,
            [first, rest @ ..] => {
                let first = ledger(first);
                let is_one = first.is_some() && rest.iter().all(|placed| ledger(placed) == first);
                if is_one { Self::OneLedger } else { Self::Many }
            }
        }
    }
}

impl Journal {
    pub(crate) fn new(shared: Arc<Shared>, number: usize, previous: SegmentEnd, written: u64) -> Self {
        Self {
            shared,
            number,
            active: None,
            sequence: previous.sequence,
            synced: previous.sequence,
            marked: previous.sequence,
            previous,
            pending: VecDeque::new(),
            buf: AlignedBuf::default(),
            written,
            dirty_since: None,
            worked_at: Nanos::default(),
            sharing: GroupSharing::Alone,
            short_since: None,
            touched: publish::TouchedLedgers::default(),
        }
    }

    /// Returns the shared state of this journal.
    fn here(&self) -> &JournalShared {
        &self.shared.journals[self.number]
    }

    /// Runs a round. `now` only decides about waiting, syncing late and marking.
    pub(crate) fn step(&mut self, now: Nanos) -> Step {
        match self.try_step(now) {
            Ok(step) => step,
            Err(fault) => {
                self.shared.set_poison(fault);
                self.fail_everything();
                Step::Stopped
            }
        }
    }

    /// Returns the time that the next group should wait for more entries: groups that could be shared begin some time
    /// apart, because each costs the same, and wakes all writers, however few entries it has. The writer of a single
    /// ledger is woken once, so its pause is half as long. A single writer never waits.
    pub(crate) fn pause(&self, now: Nanos) -> Duration {
        let linger = match self.sharing {
            GroupSharing::Alone => return Duration::ZERO,
            GroupSharing::OneLedger => self.shared.options.linger / 2,
            GroupSharing::Many => self.shared.options.linger,
        };
        linger.saturating_sub(Duration::from_nanos(now.since(self.worked_at)))
    }

    fn try_step(&mut self, now: Nanos) -> Result<Step, Arc<StorageFault>> {
        if let Some(fault) = self.shared.poison() {
            return Err(Arc::clone(fault));
        }
        self.shared.journals[self.number].queue.take(&mut self.pending);
        if self.is_sync_due(now) {
            self.sync()?;
        }
        if self.pending.is_empty() {
            return self.on_idle(now);
        }
        match self.select() {
            Selected::Group(group) => {
                self.short_since = None;
                self.commit(group, now)?;
            }
            Selected::Nothing => {}
            Selected::Stop => return self.on_stop(now),
            Selected::NoRoom => return self.on_no_room(now),
            Selected::Full => {
                let prepared = self.here().supply().prepared.take();
                let Some(prepared) = prepared else {
                    return self.on_no_segment(now);
                };
                self.roll(prepared)?;
            }
        }
        Ok(Step::Worked)
    }

    /// Bytes left in the active segment.
    fn room(&self) -> usize {
        let active = self.active.as_ref();
        active.map_or(0, |a| {
            usize::try_from(a.file_bytes.saturating_sub(a.end)).unwrap_or(usize::MAX)
        })
    }

    fn reserve_bytes(&self) -> usize {
        self.shared.block_bytes() * RESERVE_BLOCKS as usize
    }

    /// Bytes of the active segment that entries may take.
    fn entries_limit(&self) -> usize {
        match &self.active {
            Some(active) if active.is_reserve => 0,
            _ => self.room().saturating_sub(self.reserve_bytes()),
        }
    }

    /// Bytes that entries of background ledgers, and new ledgers, may take while others are refused: the rest is for deletions.
    fn background_limit(&self) -> usize {
        let kept = match &self.active {
            Some(active) if active.is_reserve => usize::try_from(active.file_bytes / 2).unwrap_or(usize::MAX),
            _ => self.reserve_bytes() / 2,
        };
        self.room().saturating_sub(kept)
    }

    /// Returns the room left in the active segment, with a group header allowed for.
    fn rooms(&self) -> Room {
        Room {
            entries: self.entries_limit().saturating_sub(GROUP_HEADER_BYTES),
            background: self.background_limit().saturating_sub(GROUP_HEADER_BYTES),
        }
    }

    /// Writes and, where an append asked for that, syncs one group; then lets its effects appear.
    fn commit(&mut self, group: Vec<Placed>, now: Nanos) -> Result<(), Arc<StorageFault>> {
        let bytes: usize = group.iter().map(|placed| placed.op.record_bytes()).sum();
        let count = group.len();
        let cost = group_cost(&group);
        let sharing = GroupSharing::of(&group);
        let is_urgent = group.iter().any(|placed| group::is_urgent(&placed.op));
        self.shared.cache.reserve(cost);
        let done = self.write_and_publish(group, now);
        if done.is_err() {
            self.shared.cache.cancel(cost);
        }
        done?;
        self.worked_at = now;
        self.sharing = sharing;
        if is_urgent {
            bump(&self.shared.urgent_groups, 1);
            self.shared.last_urgent.store(now.0, Ordering::Relaxed);
        }
        let rooms = self.rooms();
        self.here().queue.finished(count, bytes, rooms);
        self.tell_preparer(rooms.entries as u64);
        self.ask_for_flush();
        Ok(())
    }

    /// Once for each segment: a preparer that hoped for an old one's file should begin a new one.
    fn tell_preparer(&mut self, room: u64) {
        let Some(active) = &mut self.active else { return };
        if room < active.tell_at_room {
            active.tell_at_room = 0;
            self.here().bell.ring();
        }
    }

    fn write_and_publish(&mut self, mut group: Vec<Placed>, now: Nanos) -> Result<(), Arc<StorageFault>> {
        let written = group.iter().any(|placed| group::is_written(&placed.op));
        if written {
            if let Err(fault) = self.write_group(&mut group) {
                self.put_back(group);
                return Err(fault);
            }
        } else {
            for placed in &mut group {
                placed.crc = group::body_crc(&placed.op);
            }
        }
        let (early, late): (Vec<_>, Vec<_>) = group.into_iter().partition(
            |placed| matches!(&placed.op, Op::Entry { ledger, .. } if ledger.durability != Durability::Sync),
        );
        if !early.is_empty() {
            if written {
                self.dirty_since.get_or_insert(now);
            }
            self.publish(early, late.is_empty(), now);
        }
        if late.is_empty() {
            return Ok(());
        }
        if let Err(fault) = self.sync() {
            self.put_back(late);
            return Err(fault);
        }
        self.publish(late, true, now);
        Ok(())
    }

    /// Puts back what could not be written; it is answered with the rest, by
    /// [`fail_everything`](Self::fail_everything).
    fn put_back(&mut self, group: Vec<Placed>) {
        for placed in group.into_iter().rev() {
            self.pending.push_front(placed.op);
        }
    }

    fn sync(&mut self) -> Result<(), Arc<StorageFault>> {
        let Some(active) = &mut self.active else {
            return Ok(());
        };
        active
            .file
            .file
            .sync_data()
            .map_err(|e| StorageFault::new(format!("sync {}", active.file.path.display()), e))?;
        crate::stats::bump(&self.shared.counters.syncs, 1);
        self.synced = self.sequence;
        self.dirty_since = None;
        if std::mem::take(&mut active.header_unsynced) {
            let id = active.file.id;
            if let Some(segment) = self.here().segments().by_id.get_mut(&id) {
                segment.header_durable = true;
            }
        }
        Ok(())
    }

    /// Ends the active segment and goes on in `prepared`.
    ///
    /// The order matters: the old segment is synced before the new header says where it ended.
    pub(crate) fn roll(&mut self, prepared: Prepared) -> Result<(), Arc<StorageFault>> {
        if self.dirty_since.is_some() || self.synced < self.sequence {
            self.sync()?;
        }
        self.close_active();
        let block = self.shared.block_bytes();
        self.buf.reserve(block);
        let header = SegmentHeader {
            segment: prepared.file.id,
            salt: prepared.file.salt,
            previous: self.previous,
            ledger_next: self.shared.ledger_next.load(Ordering::Acquire),
        };
        let bytes = &mut self.buf.bytes_mut()[..block];
        header.encode(bytes);
        let what = || format!("write the header of {}", prepared.file.path.display());
        let written = prepared.file.file.write_all_at(bytes, 0);
        written.map_err(|e| StorageFault::new(what(), e))?;
        let mut segment = Segment::new(Arc::clone(&prepared.file), prepared.bytes);
        segment.sequence = self.sequence;
        let here = &self.shared.journals[self.number];
        here.segments().by_id.insert(prepared.file.id, segment);
        here.supply_urgent.store(false, Ordering::Release);
        if prepared.is_reserve {
            tracing::warn!(dir = %here.dir.display(), "no space left: the journal goes on in its reserve");
            bump(&self.shared.counters.reserves_used, 1);
        } else {
            here.supply().wanted = Some(self.shared.options.segment_bytes_after(prepared.bytes));
        }
        self.active = Some(Active {
            file: prepared.file,
            file_bytes: prepared.bytes,
            end: block as u64,
            header_unsynced: true,
            tell_at_room: match prepared.is_reserve {
                true => 0,
                false => prepare::enough_room(prepared.bytes),
            },
            is_reserve: prepared.is_reserve,
        });
        here.queue.finished(0, 0, self.rooms());
        here.bell.ring();
        Ok(())
    }

    /// Makes the first segment's header durable, so that segments before it may go.
    pub(crate) fn start(&mut self, prepared: Prepared) -> Result<(), Arc<StorageFault>> {
        self.roll(prepared)?;
        self.sync()?;
        // Whatever lies before it was replayed, or there was nothing.
        self.publish(Vec::new(), true, Nanos::default());
        Ok(())
    }

    /// The active segment is synced and gets nothing more.
    fn close_active(&mut self) {
        let Some(active) = self.active.take() else {
            return;
        };
        self.previous = SegmentEnd {
            segment: active.file.id,
            end: active.end,
            sequence: self.sequence,
        };
        if let Some(segment) = self.here().segments().by_id.get_mut(&active.file.id) {
            segment.closed = true;
        }
    }

    /// Answers all callers that still wait, after the store was poisoned.
    fn fail_everything(&mut self) {
        self.shared.journals[self.number].queue.take(&mut self.pending);
        let Some(fault) = self.shared.poison().cloned() else {
            return;
        };
        while let Some(op) = self.pending.pop_front() {
            self.here().queue.finished(1, op.record_bytes(), Room::default());
            match op {
                Op::Create { done, .. } | Op::Delete { done, .. } => {
                    let _ = done.send(Err(Refused::Poisoned(Arc::clone(&fault))));
                }
                Op::Seal { ledger, .. } => ledger.lock().on_failed(&fault),
                Op::Entry { .. } | Op::Stop => {}
            }
        }
        self.active = None;
        self.shared.on_journal_stopped(self.number);
    }

    fn padded(&self, bytes: usize) -> usize {
        round_up(bytes as u64, self.shared.block_bytes() as u64) as usize
    }

    /// Wakes the flusher when the write cache or the journal has become long.
    fn ask_for_flush(&self) {
        if self.shared.cache.is_nearly_full() {
            self.shared.flush_bell.ring();
        }
        let checkpointed = self.shared.checkpointed_bytes(self.number);
        if self.written - checkpointed.min(self.written) >= self.shared.options.journal_bytes_max {
            self.shared.flush_bell.ring();
        }
    }
}

/// Returns the cost of a group's entries in the write cache, in bytes.
fn group_cost(group: &[Placed]) -> u64 {
    let cost = |placed: &Placed| match &placed.op {
        Op::Entry { payload, .. } => chunk::cost(payload.len()),
        _ => 0,
    };
    group.iter().map(cost).sum()
}
