//! The journal: the one writer of segment files, with one sync for everybody who waits.
//!
//! [`Journal::step`] takes what is queued, writes one group, syncs it, and only then tells anyone. A thread calls it
//! in a loop ([`thread`]); tests call it themselves.
//!
//! ```text
//!  queue ─► pending ─► group ─► write ─► (sync) ─► index, tails, answers
//!                        │
//!                        └ does not fit: the next segment, prepared by the keeper
//! ```
//! Always true: the effects of a group appear after its sync (or after its write, for entries of async ledgers), in
//! queue order within a ledger. After a failed write or sync nothing is ever written again.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use pharos_ledger::{Durability, StorageFault};
use pharos_runtime::Nanos;
use pharos_runtime::fs::AlignedBuf;
use pharos_types::LedgerId;

use crate::format::group::GROUP_HEADER_BYTES;
use crate::format::round_up;
use crate::format::segment_header::{SegmentEnd, SegmentHeader};
use crate::options::RESERVE_BLOCKS;
use crate::queue::{Op, Refused};
use crate::segments::{Segment, SegmentFile};
use crate::shared::{Prepared, Shared};

pub(crate) mod group;
mod idle;
mod publish;
mod stall;
pub(crate) mod thread;

/// What a step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Something; there may be more.
    Worked,
    /// Nothing was queued; look again at the latest after this long.
    Idle(Option<Duration>),
    /// Waits for the keeper to bring the next segment.
    NoSegment,
    /// Will never do anything again.
    Stopped,
}

#[derive(Debug)]
pub(crate) struct Journal {
    shared: Arc<Shared>,
    /// The segment being written; none when a start found no room for one.
    active: Option<Active>,
    /// Where the segment before the active one ended.
    previous: SegmentEnd,
    /// Taken from the queue, not yet written.
    pending: VecDeque<Op>,
    /// One group's bytes. Grows to what groups need and goes when idle.
    buf: AlignedBuf,
    /// The sequence number of the last group written.
    sequence: u64,
    /// The sequence number of the last group synced.
    synced: u64,
    /// The highest `synced` that a group header on disk says.
    marked: u64,
    /// Since when something is written and not synced.
    dirty_since: Option<Nanos>,
    /// When the last group was finished.
    worked_at: Nanos,
    /// Per ledger what a group adds; kept for its memory.
    touched: HashMap<LedgerId, publish::Touched>,
}

#[derive(Debug)]
struct Active {
    file: Arc<SegmentFile>,
    file_bytes: u64,
    /// Where the next group begins; a multiple of the block size.
    end: u64,
    /// The header was written but no sync has followed.
    header_unsynced: bool,
}

/// An op and where its record begins.
#[derive(Debug)]
struct Placed {
    op: Op,
    byte_offset: u32,
}

enum Selected {
    Group(Vec<Placed>),
    /// Everything looked at was obsolete.
    Nothing,
    /// The next op needs the next segment.
    Full,
    Stop,
}

impl Journal {
    pub(crate) fn new(shared: Arc<Shared>, previous: SegmentEnd) -> Self {
        Self {
            shared,
            active: None,
            sequence: previous.sequence,
            synced: previous.sequence,
            marked: previous.sequence,
            previous,
            pending: VecDeque::new(),
            buf: AlignedBuf::default(),
            dirty_since: None,
            worked_at: Nanos::default(),
            touched: HashMap::new(),
        }
    }

    /// One round. `now` only decides about waiting, syncing late and marking.
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

    fn try_step(&mut self, now: Nanos) -> Result<Step, Arc<StorageFault>> {
        if let Some(fault) = self.shared.poison() {
            return Err(Arc::clone(fault));
        }
        self.shared.queue.take(&mut self.pending);
        if self.is_sync_due(now) {
            self.sync()?;
        }
        if self.pending.is_empty() {
            return self.on_idle(now);
        }
        match self.select() {
            Selected::Group(group) => self.commit(group, now)?,
            Selected::Nothing => {}
            Selected::Stop => return self.on_stop(),
            Selected::Full => {
                let prepared = self.shared.supply().prepared.take();
                let Some(prepared) = prepared else {
                    return self.on_stalled(now);
                };
                self.roll(prepared)?;
            }
        }
        Ok(Step::Worked)
    }

    /// Takes from `pending` what makes up the next group.
    fn select(&mut self) -> Selected {
        let room = self.room();
        let facts_room = room.saturating_sub(self.shared.block_bytes());
        let entries_room = room.saturating_sub(self.reserve_bytes());
        let mut group = Vec::new();
        let mut bytes = GROUP_HEADER_BYTES;
        while let Some(op) = self.pending.front() {
            if matches!(op, Op::Stop) {
                if group.is_empty() {
                    return Selected::Stop;
                }
                break;
            }
            if self.drop_obsolete() {
                continue;
            }
            let Some(op) = self.pending.front() else { break };
            let need = op.record_bytes();
            let limit = if op.is_fact() { facts_room } else { entries_room };
            if bytes + need > limit {
                if group.is_empty() {
                    return Selected::Full;
                }
                break;
            }
            if !group.is_empty() && bytes + need > self.shared.options.group_bytes_max {
                break;
            }
            let byte_offset = self.next_offset(bytes);
            if let Some(op) = self.pending.pop_front() {
                group.push(Placed { op, byte_offset });
            }
            bytes += need;
        }
        if group.is_empty() {
            Selected::Nothing
        } else {
            Selected::Group(group)
        }
    }

    /// Where a record lands that comes `bytes` after the start of the next group. Segments are below 4 GiB.
    fn next_offset(&self, bytes: usize) -> u32 {
        let start = self.active.as_ref().map_or(0, |active| active.end);
        (start + bytes as u64) as u32
    }

    /// Answers the first pending op without writing when it has become pointless.
    fn drop_obsolete(&mut self) -> bool {
        let obsolete = match self.pending.front() {
            Some(Op::Move { ledger, .. } | Op::Delete { ledger, .. } | Op::Seal { ledger, .. }) => {
                ledger.lock().deleted
            }
            Some(Op::Restate { ledger, from, .. }) => !self.is_restate_needed(*ledger, *from),
            _ => false,
        };
        if obsolete && let Some(op) = self.pending.pop_front() {
            let bytes = op.record_bytes();
            self.answer_obsolete(op);
            self.shared.queue.finished(1, bytes, self.entries_room());
        }
        obsolete
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

    /// Bytes left in the active segment for entries, with a group header allowed for.
    fn entries_room(&self) -> usize {
        self.room()
            .saturating_sub(self.reserve_bytes() + GROUP_HEADER_BYTES)
    }

    /// Writes and, where anybody asked for that, syncs one group; then lets its effects appear.
    fn commit(&mut self, group: Vec<Placed>, now: Nanos) -> Result<(), Arc<StorageFault>> {
        let bytes: usize = group.iter().map(|placed| placed.op.record_bytes()).sum();
        let count = group.len();
        self.write_and_publish(group, now)?;
        self.worked_at = now;
        self.shared.queue.finished(count, bytes, self.entries_room());
        Ok(())
    }

    fn write_and_publish(&mut self, group: Vec<Placed>, now: Nanos) -> Result<(), Arc<StorageFault>> {
        if let Err(fault) = self.write_group(&group) {
            self.put_back(group);
            return Err(fault);
        }
        let (early, late): (Vec<_>, Vec<_>) = group.into_iter().partition(
            |placed| matches!(&placed.op, Op::Entry { ledger, .. } if ledger.durability == Durability::Async),
        );
        if !early.is_empty() {
            self.dirty_since.get_or_insert(now);
            self.publish(early);
        }
        if late.is_empty() {
            return Ok(());
        }
        if let Err(fault) = self.sync() {
            self.put_back(late);
            return Err(fault);
        }
        self.publish(late);
        Ok(())
    }

    /// What could not be written is answered with the rest, by [`fail_everything`](Self::fail_everything).
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
        if std::mem::take(&mut active.header_unsynced)
            && let Some(segment) = self.shared.segments().by_id.get_mut(&active.file.id)
        {
            segment.header_durable = true;
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
        segment.end = block as u64;
        segment.sequence = self.sequence;
        segment.ledger_next = header.ledger_next;
        self.shared.segments().by_id.insert(prepared.file.id, segment);
        self.shared.supply_urgent.store(false, Ordering::Release);
        self.shared.supply().wanted = Some(self.shared.options.segment_bytes_after(prepared.bytes));
        self.active = Some(Active {
            file: prepared.file,
            file_bytes: prepared.bytes,
            end: block as u64,
            header_unsynced: true,
        });
        self.shared.queue.finished(0, 0, self.entries_room());
        self.shared.keeper_bell.ring();
        Ok(())
    }

    /// Makes the first segment's header durable, so that segments before it may go.
    pub(crate) fn start(&mut self, prepared: Prepared) -> Result<(), Arc<StorageFault>> {
        self.roll(prepared)?;
        self.sync()
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
        if let Some(segment) = self.shared.segments().by_id.get_mut(&active.file.id) {
            segment.closed = true;
        }
    }

    /// Answers everybody who still waits, after the store was poisoned.
    fn fail_everything(&mut self) {
        self.shared.queue.take(&mut self.pending);
        let Some(fault) = self.shared.poison().cloned() else {
            return;
        };
        while let Some(op) = self.pending.pop_front() {
            self.shared.queue.finished(1, op.record_bytes(), 0);
            match op {
                Op::Create { done, .. } | Op::Delete { done, .. } => {
                    let _ = done.send(Err(Refused::Poisoned(Arc::clone(&fault))));
                }
                Op::Seal { ledger, .. } => ledger.lock().on_failed(&fault),
                Op::Move { batch, .. } | Op::Restate { batch, .. } => batch.finish(false),
                Op::Entry { .. } => {}
                Op::Stop => self.shared.stopping.store(true, Ordering::Release),
            }
        }
        self.active = None;
        self.shared.keeper_bell.ring();
    }

    fn padded(&self, bytes: usize) -> usize {
        round_up(bytes as u64, self.shared.block_bytes() as u64) as usize
    }
}
