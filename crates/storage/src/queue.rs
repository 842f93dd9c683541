//! Queue of a journal thread. Each journal has one.
//!
//! Writers push without waiting; the journal thread takes everything there is. Bounded in bytes: what is queued and
//! what the journal has taken but not finished count together.
//!
//! Lock order: a ledger's state before this lock.

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;

use pharos_ledger::StorageFault;
use pharos_runtime::sync::{Condvar, Mutex, MutexGuard};
use pharos_storage_format::record::record_bytes;

use crate::ledgers::Ledger;

/// Reason why a journal refused an op.
#[derive(Clone, Debug)]
pub(crate) enum Refused {
    Poisoned(Arc<StorageFault>),
    NoSpace,
}

pub(crate) type Done = oneshot::Sender<Result<(), Refused>>;

/// Operation for the journal to write.
#[derive(Debug)]
pub(crate) enum Op {
    Entry {
        ledger: Arc<Ledger>,
        entry: u64,
        payload: Bytes,
        /// The checksum of the payload, when it came with one.
        crc32c: Option<u32>,
    },
    Create {
        ledger: Arc<Ledger>,
        done: Done,
    },
    Seal {
        ledger: Arc<Ledger>,
        entry_count: u64,
    },
    Delete {
        ledger: Arc<Ledger>,
        done: Done,
    },
    /// Finish and stop. Nothing is queued after it.
    Stop,
}

impl Op {
    /// The room its record takes.
    pub(crate) fn record_bytes(&self) -> usize {
        match self {
            Self::Entry { payload, .. } => record_bytes(payload.len()),
            _ => record_bytes(0),
        }
    }

    /// True if it is an entry of a ledger whose appends are not urgent.
    pub(crate) fn is_background(&self) -> bool {
        matches!(self, Self::Entry { ledger, .. } if ledger.is_background)
    }
}

/// Reason why the queue accepted nothing.
#[derive(Clone, Debug)]
pub(crate) enum NotQueued {
    Poisoned(Arc<StorageFault>),
    Overloaded,
    NoSpace,
}

#[derive(Debug, Default)]
struct QueueState {
    ops: VecDeque<Op>,
    /// Record bytes of what is queued or taken and not finished.
    bytes: usize,
    /// Number of ops that `bytes` stands for.
    count: usize,
    /// Reason why nothing more is accepted.
    closed: Option<Arc<StorageFault>>,
    /// No further segment can be had; only `room` is left.
    no_space: bool,
    /// The write cache cannot be flushed for want of space.
    no_flush_space: bool,
    /// Bytes that entries may still take in the segment being written.
    room: usize,
    /// Bytes that entries of background ledgers may still take while others are refused.
    background_room: usize,
    /// And in the journal's reserve.
    reserve_room: usize,
    /// The journal thread is asked to look around.
    rung: bool,
    /// The journal thread sleeps.
    sleeping: bool,
}

/// Room left in the active segment of a journal, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Room {
    /// For entries.
    pub(crate) entries: usize,
    /// For entries of background ledgers while others are refused for want of space.
    pub(crate) background: usize,
}

/// The queue.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    state: Mutex<QueueState>,
    bell: Condvar,
    bytes_max: usize,
}

impl Queue {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            ..Self::default()
        }
    }

    /// Queues an entry, if there is room.
    pub(crate) fn push_entry(&self, op: Op) -> Result<(), NotQueued> {
        let bytes = op.record_bytes();
        let state = self.lock();
        if let Some(fault) = &state.closed {
            return Err(NotQueued::Poisoned(Arc::clone(fault)));
        }
        let is_full = state.no_flush_space || state.no_space && state.bytes + bytes > state.room;
        // Places of consumers: without them nothing that was read could ever go.
        let is_vital =
            || op.is_background() && state.bytes + bytes <= state.background_room + state.reserve_room;
        if is_full && !is_vital() {
            return Err(NotQueued::NoSpace);
        }
        // One entry is always taken, so that a small bound cannot lock out a large entry for ever.
        if state.count > 0 && state.bytes + bytes > self.bytes_max {
            return Err(NotQueued::Overloaded);
        }
        self.push_to(state, op);
        Ok(())
    }

    /// Queues anything else. Facts are small and few. Gives the op back when the queue is closed.
    pub(crate) fn push(&self, op: Op) -> Result<(), (Op, Arc<StorageFault>)> {
        let state = self.lock();
        if let Some(fault) = &state.closed {
            return Err((op, Arc::clone(fault)));
        }
        self.push_to(state, op);
        Ok(())
    }

    /// Queues the last op and closes the queue with `fault` for every later caller. `false`: it was closed already.
    pub(crate) fn push_stop(&self, fault: Arc<StorageFault>) -> bool {
        let mut state = self.lock();
        if state.closed.is_some() {
            return false;
        }
        state.closed = Some(fault);
        self.push_to(state, Op::Stop);
        true
    }

    fn push_to(&self, mut state: MutexGuard<'_, QueueState>, op: Op) {
        state.bytes += op.record_bytes();
        state.count += 1;
        state.ops.push_back(op);
        let wake = std::mem::take(&mut state.sleeping);
        drop(state);
        if wake {
            self.bell.notify_one();
        }
    }

    /// Moves everything queued to the end of `pending`.
    pub(crate) fn take(&self, pending: &mut VecDeque<Op>) {
        let mut state = self.lock();
        if pending.is_empty() {
            std::mem::swap(pending, &mut state.ops);
        } else {
            pending.append(&mut state.ops);
        }
    }

    /// Everything queued.
    pub(crate) fn take_all(&self) -> VecDeque<Op> {
        std::mem::take(&mut self.lock().ops)
    }

    /// The journal is done with some ops.
    pub(crate) fn finished(&self, count: usize, bytes: usize, room: Room) {
        let mut state = self.lock();
        state.count = state.count.saturating_sub(count);
        state.bytes = state.bytes.saturating_sub(bytes);
        state.room = room.entries;
        state.background_room = room.background;
    }

    /// Says how much of the journal's reserve entries of background ledgers may take.
    pub(crate) fn set_reserve_room(&self, bytes: usize) {
        self.lock().reserve_room = bytes;
    }

    /// Closes the queue; the first reason wins.
    pub(crate) fn close(&self, fault: &Arc<StorageFault>) {
        self.lock().closed.get_or_insert_with(|| Arc::clone(fault));
        self.ring();
    }

    /// Says whether a further segment can be had.
    pub(crate) fn set_no_space(&self, no_space: bool) {
        self.lock().no_space = no_space;
        self.ring();
    }

    /// Says whether the write cache cannot be flushed for want of space. `true`: that is news.
    pub(crate) fn set_no_flush_space(&self, no_space: bool) -> bool {
        let before = std::mem::replace(&mut self.lock().no_flush_space, no_space);
        self.ring();
        before != no_space
    }

    /// True if no further segment is available.
    pub(crate) fn has_no_space(&self) -> bool {
        self.lock().no_space
    }

    /// True if the write cache cannot be flushed for lack of space.
    pub(crate) fn lacks_flush_space(&self) -> bool {
        self.lock().no_flush_space
    }

    /// True if entries are refused for lack of space.
    pub(crate) fn refuses_for_space(&self) -> bool {
        let state = self.lock();
        state.no_space || state.no_flush_space
    }

    /// Ops and their bytes that are not finished.
    pub(crate) fn depth(&self) -> (usize, usize) {
        let state = self.lock();
        (state.count, state.bytes)
    }

    /// Bytes that entries may still take in the segment being written.
    pub(crate) fn room(&self) -> usize {
        self.lock().room
    }

    /// Makes the journal thread look around.
    pub(crate) fn ring(&self) {
        let mut state = self.lock();
        state.rung = true;
        state.sleeping = false;
        drop(state);
        self.bell.notify_one();
    }

    /// Waits until something is queued or the bell rings, at most `timeout` (`None`: for ever). `true`: nothing came.
    pub(crate) fn wait(&self, timeout: Option<Duration>) -> bool {
        let mut state = self.lock();
        if state.ops.is_empty() && !state.rung {
            state.sleeping = true;
            state = match timeout {
                None => self.bell.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(timeout) => {
                    let waited = self.bell.wait_timeout(state, timeout);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
            state.sleeping = false;
        }
        let nothing = state.ops.is_empty() && !state.rung;
        state.rung = false;
        nothing
    }

    /// Waits until the bell rings, whatever is queued, at most `timeout`. For a journal that cannot go on without help.
    pub(crate) fn wait_for_ring(&self, timeout: Duration) {
        let mut state = self.lock();
        if !state.rung {
            let waited = self.bell.wait_timeout(state, timeout);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.rung = false;
    }

    /// Waits for more entries of a group: for `pause`, unless `bytes_max` are there already or there is nothing that would
    /// have to wait. Being woken at every push would cost more than it gains, so it simply sleeps once.
    pub(crate) fn linger(&self, pause: Duration, bytes_max: usize) {
        let state = self.lock();
        if state.count == 0 || state.bytes >= bytes_max || state.closed.is_some() {
            return;
        }
        drop(state);
        pharos_runtime::sync::thread::sleep(pause);
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
