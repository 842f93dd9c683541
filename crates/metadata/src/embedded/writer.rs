//! The one who writes: drains the queue, decides, makes one group durable, answers all.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use pharos_runtime::fs::FsLock;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot, watch};

use super::Shared;
use super::copy::{NewGroup, new_group_bytes};
use super::format::{Record, push_record, record_bytes, record_crc};
use super::log::{Failure, Log, Reserve};
use super::state::State;
use super::witness::Witness;
use crate::watch::Watchers;
use crate::{Event, Expect, Version, WriteError};

/// Most changes of one group, so that the first in it does not wait for ever.
const GROUP_MAX: usize = 2_048;
/// Most bytes of a group with more than one change.
const GROUP_BYTES_MAX: u64 = 1 << 20;

/// One queued change.
pub(super) struct Write {
    pub(super) key: String,
    /// `None`: it is deleted.
    pub(super) value: Option<Bytes>,
    pub(super) expect: Expect,
    pub(super) answer: oneshot::Sender<Answer>,
    /// Its share of the queue's bytes, given back when it is answered.
    pub(super) _permit: OwnedSemaphorePermit,
}

/// The version after a put, and whether the key was there.
pub(super) type Answer = Result<(Version, bool), WriteError>;

/// What a round did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Worked,
    Idle,
    /// The queue is closed and everything in it is answered.
    Ended,
}

pub(super) struct Writer {
    queue: mpsc::Receiver<Write>,
    /// Taken from the queue, not answered yet.
    waiting: VecDeque<Write>,
    watchers: Arc<Watchers>,
    shared: Arc<Shared>,
    log: Log,
    /// `None`: there are no ledgers to tell, or it could not be written.
    witness: Option<Witness>,
    /// Nobody else opens the store before this is dropped.
    _lock: Box<dyn FsLock>,
    /// Dropped last: tells who waits for the end.
    _ended: watch::Sender<()>,
}

/// What becomes of some of the changes that wait.
struct Plan {
    /// One for each, the first ones that wait.
    answers: Vec<Answer>,
    records: Vec<Record>,
    /// The records as they are written.
    bytes: Vec<u8>,
    revision: u64,
    /// Bytes of all records of the store after these.
    state_bytes: u64,
}

impl Writer {
    pub(super) fn new(
        queue: mpsc::Receiver<Write>,
        watchers: Arc<Watchers>,
        shared: Arc<Shared>,
        log: Log,
        witness: Option<Witness>,
        lock: Box<dyn FsLock>,
        ended: watch::Sender<()>,
    ) -> Self {
        Self {
            queue,
            waiting: VecDeque::new(),
            watchers,
            shared,
            log,
            witness,
            _lock: lock,
            _ended: ended,
        }
    }

    /// Runs until the queue is closed and empty.
    pub(super) fn run(mut self) {
        loop {
            match self.step() {
                Step::Worked => {}
                Step::Ended => return,
                // `None`: closed, which the next round sees.
                Step::Idle => self.waiting.extend(self.queue.blocking_recv()),
            }
        }
    }

    /// At most one group.
    pub(super) fn step(&mut self) -> Step {
        let mut closed = false;
        while self.waiting.len() < GROUP_MAX {
            match self.queue.try_recv() {
                Ok(next) => self.waiting.push_back(next),
                Err(mpsc::error::TryRecvError::Empty) => break,
                Err(mpsc::error::TryRecvError::Disconnected) => {
                    closed = true;
                    break;
                }
            }
        }
        if self.waiting.is_empty() {
            if closed {
                self.close();
                return Step::Ended;
            }
            return Step::Idle;
        }
        self.on_group();
        self.tell_witness(false);
        Step::Worked
    }

    fn close(&mut self) {
        if self.shared.fault().is_some() {
            return;
        }
        if let Err(error) = self.log.close(&self.shared.read()) {
            tracing::warn!(%error, "the metadata store was not closed properly; nothing is lost by that");
        }
        self.tell_witness(true);
    }

    /// Brings the witness up to date, now and then.
    fn tell_witness(&mut self, now: bool) {
        let number = self.shared.read().number;
        let Some(witness) = self
            .witness
            .as_mut()
            .filter(|witness| now || witness.is_behind(number))
        else {
            return;
        };
        if let Err(error) = witness.say(self.log.epoch, number) {
            // The other place in it still counts, and stays as it is until the next start.
            tracing::warn!(%error, "the ledgers are not told how far the metadata is; nothing is lost by that");
            self.witness = None;
        }
    }

    fn on_group(&mut self) {
        if let Some(fault) = self.shared.fault() {
            for write in self.waiting.drain(..) {
                let _ = write.answer.send(Err(WriteError::Fault(Arc::clone(&fault))));
            }
            return;
        }
        match self.commit() {
            Ok(answers) => {
                for answer in answers {
                    let Some(write) = self.waiting.pop_front() else {
                        break;
                    };
                    self.tell(&write, &answer);
                    // The asker may have gone; the change stands.
                    let _ = write.answer.send(answer);
                }
            }
            Err((failure, count)) => self.on_failure(&failure, count),
        }
    }

    /// Answers the changes of a group that failed.
    fn on_failure(&mut self, failure: &Failure, count: usize) {
        let fault = failure.fault();
        if let Failure::Final(_) = failure {
            tracing::error!(%fault, "the metadata store no longer accepts writes");
            self.shared.fail(Arc::clone(fault));
        } else {
            tracing::warn!(%fault, changes = count, "metadata was not written");
        }
        for write in self.waiting.drain(..count) {
            let _ = write.answer.send(Err(write_error(failure)));
        }
    }

    /// Makes the first changes that wait durable, as many as fit into a group. An error means that none of so many counts.
    fn commit(&mut self) -> Result<Vec<Answer>, (Failure, usize)> {
        let (plan, number) = {
            let state = self.shared.read();
            let plan = plan(&mut self.log, &state, self.waiting.make_contiguous())?;
            let number = state.number + 1;
            if !plan.records.is_empty() {
                let group = NewGroup {
                    number,
                    revision: plan.revision,
                    records: plan.records.len() as u32,
                    bytes: plan.bytes.clone(),
                };
                self.log
                    .append(&state, &group)
                    .map_err(|failure| (failure, plan.answers.len()))?;
            }
            (plan, number)
        };
        if !plan.records.is_empty() {
            let mut state = self.shared.write();
            plan.records.into_iter().for_each(|record| state.apply(record));
            (state.number, state.revision) = (number, plan.revision);
            debug_assert_eq!(state.bytes, plan.state_bytes);
        }
        Ok(plan.answers)
    }

    fn tell(&self, write: &Write, answer: &Answer) {
        let Ok((version, existed)) = *answer else { return };
        let key: Arc<str> = write.key.as_str().into();
        match write.value {
            Some(_) => self.watchers.tell(Event::Put { key, version }),
            None if existed => self.watchers.tell(Event::Deleted { key }),
            None => {}
        }
    }
}

fn write_error(failure: &Failure) -> WriteError {
    match failure {
        Failure::NoSpace(fault) => WriteError::NoSpace(Arc::clone(fault)),
        Failure::Failed(fault) | Failure::Final(fault) => WriteError::Fault(Arc::clone(fault)),
    }
}

/// Decides the changes in order, each as if those before it had happened. Conflicts and what there is no room for are answers
/// of single changes. An error is that of so many of them.
fn plan(log: &mut Log, state: &State, writes: &[Write]) -> Result<Plan, (Failure, usize)> {
    let mut plan = Plan {
        answers: Vec::new(),
        records: Vec::new(),
        bytes: new_group_bytes(),
        revision: state.revision,
        state_bytes: state.bytes,
    };
    // Version and bytes of the keys that were changed by an earlier one of these; `None`: deleted.
    let mut changed: HashMap<&str, Option<(u64, u64)>> = HashMap::new();
    let mut full: Option<Failure> = None;
    let group_bytes_max = log.group_bytes_max(state).min(GROUP_BYTES_MAX);
    for write in writes {
        let key = write.key.as_str();
        let stored = || {
            state
                .get(key)
                .map(|item| (item.version, record_bytes(key, &item.value)))
        };
        let current = changed.get(key).copied().unwrap_or_else(stored);
        if !write.expect.holds(current.map(|(version, _)| Version(version))) {
            plan.answers.push(Err(WriteError::Conflict {
                key: write.key.clone(),
                current: current.map(|(version, _)| Version(version)),
            }));
            continue;
        }
        if write.value.is_none() && current.is_none() {
            plan.answers.push(Ok((Version(plan.revision), false)));
            continue;
        }
        let value = write.value.as_deref();
        let bytes = record_bytes(key, value.unwrap_or_default());
        if !plan.records.is_empty() && plan.bytes.len() as u64 + bytes > group_bytes_max {
            break;
        }
        let before = current.map_or(0, |(_, bytes)| bytes);
        let state_bytes = plan.state_bytes - before + value.map_or(0, |_| bytes);
        if state_bytes > plan.state_bytes {
            let may_use = if current.is_some() {
                Reserve::Most
            } else {
                Reserve::Half
            };
            match room(log, &mut full, state_bytes, may_use) {
                Ok(()) => {}
                Err(failure @ Failure::Final(_)) => return Err((failure, plan.answers.len() + 1)),
                Err(failure) => {
                    plan.answers.push(Err(write_error(&failure)));
                    continue;
                }
            }
        }
        plan.revision += 1;
        plan.state_bytes = state_bytes;
        let crc = record_crc(log.store_id, key, value, plan.revision);
        push_record(&mut plan.bytes, key, value, plan.revision, crc);
        changed.insert(key, value.map(|_| (plan.revision, bytes)));
        plan.records.push(Record {
            key: write.key.clone(),
            value: write.value.clone(),
            version: plan.revision,
            crc,
        });
        plan.answers.push(Ok((Version(plan.revision), current.is_some())));
    }
    Ok(plan)
}

/// Makes room. A device that was full for one change of a group is not asked again for the next.
fn room(
    log: &mut Log,
    full: &mut Option<Failure>,
    state_bytes: u64,
    may_use: Reserve,
) -> Result<(), Failure> {
    if let Some(failure) = full
        && may_use == Reserve::Half
    {
        return Err(failure.clone());
    }
    let made = log.make_room(state_bytes, may_use);
    if let Err(failure) = &made {
        *full = Some(failure.clone());
    }
    made
}
