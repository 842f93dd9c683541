//! The one who writes: drains the queue, decides, makes one group durable, answers all. Ends sessions that are due, which writes
//! nothing.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use bytes::Bytes;
use pharos_runtime::fs::FsLock;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot, watch};

use super::Shared;
use super::copy::{NewGroup, new_group_bytes};
use super::format::{Record, push_record, record_bytes, record_crc};
use super::log::{Failure, Log, Reserve};
use super::state::{Contents, Stored};
use super::witness::Witness;
use crate::session::Sessions;
use crate::watch::Watchers;
use crate::{Event, Expect, SessionId, SessionWriteError, Version, WriteError};

/// Most changes of one group, so that the first in it does not wait for ever.
const GROUP_MAX: usize = 2_048;
/// Most bytes of a group with more than one change.
const GROUP_BYTES_MAX: u64 = 1 << 20;

/// Queued change.
pub(super) struct Write {
    pub(super) key: String,
    /// `None`: it is deleted.
    pub(super) value: Option<Bytes>,
    pub(super) expect: Expect,
    /// Session of the key, if it is ephemeral.
    pub(super) session: Option<SessionId>,
    pub(super) answer: oneshot::Sender<Answer>,
    /// Its share of the queue's bytes, given back when it is answered.
    pub(super) _permit: OwnedSemaphorePermit,
}

/// The version after a put, and whether the key was there.
pub(super) type Answer = Result<(Version, bool), SessionWriteError>;

/// Result of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Worked,
    Idle,
    /// The queue is closed and everything in it is answered.
    Ended,
}

pub(super) struct Writer {
    parts: Parts,
    /// Taken from the queue, not answered yet.
    waiting: VecDeque<Write>,
}

/// Parts of a writer.
pub(super) struct Parts {
    pub(super) queue: mpsc::Receiver<Write>,
    pub(super) sessions: Arc<Sessions>,
    pub(super) watchers: Arc<Watchers>,
    pub(super) shared: Arc<Shared>,
    pub(super) log: Log,
    /// `None`: there are no ledgers to tell, or it could not be written.
    pub(super) witness: Option<Witness>,
    /// The store is not opened a second time before this is dropped.
    pub(super) _lock: Box<dyn FsLock>,
    /// Dropped last: tells who waits for the end.
    pub(super) _ended: watch::Sender<()>,
}

/// Outcome planned for the first waiting changes.
struct WritePlan {
    /// Answers, one for each of the first waiting changes.
    answers: Vec<Answer>,
    /// Changes, with the session of an ephemeral key.
    changes: Vec<(Record, Option<SessionId>)>,
    /// The records as they are written, and how many: those of ephemeral keys are not.
    bytes: Vec<u8>,
    records: u32,
    revision: u64,
    /// Bytes of all records of the store after these.
    state_bytes: u64,
}

/// However it ends, its sessions end with it.
impl Drop for Writer {
    fn drop(&mut self) {
        self.parts.sessions.end_all();
        self.end_due_sessions();
    }
}

/// Wakes the thread that writes.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl Writer {
    pub(super) fn new(parts: Parts) -> Self {
        Self {
            parts,
            waiting: VecDeque::new(),
        }
    }

    /// Runs until the queue is closed and empty.
    pub(super) fn run(mut self) {
        let thread = std::thread::current();
        self.parts.sessions.set_reaper(thread.clone());
        let waker = Waker::from(Arc::new(Unpark(thread)));
        loop {
            match self.step() {
                Step::Worked => {}
                Step::Ended => return,
                Step::Idle => self.wait(&waker),
            }
        }
    }

    /// Waits until something is queued or a session may be due.
    fn wait(&mut self, waker: &Waker) {
        match self.parts.queue.poll_recv(&mut Context::from_waker(waker)) {
            // `None`: closed, which the next round sees.
            Poll::Ready(next) => self.waiting.extend(next),
            Poll::Pending => match self.parts.sessions.next_due() {
                Some(wait) => std::thread::park_timeout(wait),
                None => std::thread::park(),
            },
        }
    }

    /// At most one group.
    pub(super) fn step(&mut self) -> Step {
        let has_ended_sessions = self.end_due_sessions();
        let mut closed = false;
        while self.waiting.len() < GROUP_MAX {
            match self.parts.queue.try_recv() {
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
            return match has_ended_sessions {
                true => Step::Worked,
                false => Step::Idle,
            };
        }
        self.on_group();
        self.tell_witness(false);
        Step::Worked
    }

    /// Ends the sessions that are due: their keys go, then watches are told, then their holders. Says whether there were any.
    fn end_due_sessions(&mut self) -> bool {
        let due = self.parts.sessions.due();
        for session in &due {
            let keys = self.parts.shared.read().keys_of(*session);
            let mut state = self.parts.shared.write();
            for key in &keys {
                let gone = Record {
                    key: key.clone(),
                    value: None,
                    version: state.revision,
                    crc: 0,
                };
                state.change(gone, Some(*session));
            }
            drop(state);
            for key in keys {
                self.parts.watchers.tell(Event::Deleted { key: key.into() });
            }
            self.parts.sessions.finish(*session);
        }
        !due.is_empty()
    }

    fn close(&mut self) {
        if self.parts.shared.fault().is_some() {
            return;
        }
        if let Err(error) = self.parts.log.close(&self.parts.shared.read()) {
            tracing::warn!(%error, "the metadata store was not closed properly; nothing is lost by that");
        }
        self.tell_witness(true);
    }

    /// Brings the witness up to date, now and then.
    fn tell_witness(&mut self, now: bool) {
        let number = self.parts.shared.read().number;
        let Some(witness) = self
            .parts
            .witness
            .as_mut()
            .filter(|witness| now || witness.is_behind(number))
        else {
            return;
        };
        if let Err(error) = witness.say(self.parts.log.epoch, number) {
            // The other place in it still counts, and stays as it is until the next start.
            tracing::warn!(%error, "the ledgers are not told how far the metadata is; nothing is lost by that");
            self.parts.witness = None;
        }
    }

    fn on_group(&mut self) {
        if let Some(fault) = self.parts.shared.fault() {
            for write in self.waiting.drain(..) {
                let _ = write
                    .answer
                    .send(Err(WriteError::Fault(Arc::clone(&fault)).into()));
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
            self.parts.shared.fail(Arc::clone(fault));
        } else {
            tracing::warn!(%fault, changes = count, "metadata was not written");
        }
        for write in self.waiting.drain(..count) {
            let _ = write.answer.send(Err(write_error(failure).into()));
        }
    }

    /// Makes the first changes that wait durable, as many as fit into a group. An error means that none of so many counts.
    fn commit(&mut self) -> Result<Vec<Answer>, (Failure, usize)> {
        let (plan, number) = {
            let state = self.parts.shared.read();
            let plan = plan(
                &mut self.parts.log,
                &self.parts.sessions,
                &state,
                self.waiting.make_contiguous(),
            )?;
            let number = state.number + 1;
            if plan.records > 0 {
                let group = NewGroup {
                    number,
                    revision: plan.revision,
                    records: plan.records,
                    bytes: plan.bytes.clone(),
                };
                self.parts
                    .log
                    .append(&state, &group)
                    .map_err(|failure| (failure, plan.answers.len()))?;
            }
            (plan, number)
        };
        if !plan.changes.is_empty() {
            let mut state = self.parts.shared.write();
            for (record, session) in plan.changes {
                state.change(record, session);
            }
            if plan.records > 0 {
                state.number = number;
            }
            state.revision = plan.revision;
            debug_assert_eq!(state.bytes, plan.state_bytes);
        }
        Ok(plan.answers)
    }

    fn tell(&self, write: &Write, answer: &Answer) {
        let Ok((version, existed)) = *answer else { return };
        let key: Arc<str> = write.key.as_str().into();
        match write.value {
            Some(_) => self.parts.watchers.tell(Event::Put { key, version }),
            None if existed => self.parts.watchers.tell(Event::Deleted { key }),
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

/// State of a key when a change of it is decided.
#[derive(Clone, Copy, Debug)]
struct Current {
    version: u64,
    /// On the device.
    bytes: u64,
    session: Option<SessionId>,
}

impl Current {
    fn of(key: &str, stored: &Stored) -> Self {
        Self {
            version: stored.version,
            bytes: stored.record_bytes(key),
            session: stored.session,
        }
    }
}

/// Reason why a change is refused, regardless of space.
fn refusal(sessions: &Sessions, write: &Write, current: Option<Current>) -> Option<SessionWriteError> {
    if let Some(Err(ended)) = write.session.map(|session| sessions.check(session)) {
        return Some(SessionWriteError::Ended(ended));
    }
    let version = current.map(|current| Version(current.version));
    let is_others = match (write.session, current) {
        (Some(session), Some(current)) => current.session != Some(session),
        _ => false,
    };
    (is_others || !write.expect.holds(version)).then(|| {
        SessionWriteError::Write(WriteError::Conflict {
            key: write.key.clone(),
            current: version,
        })
    })
}

/// Decides the changes in order, each as if those before it had happened. Conflicts and what there is no room for are answers
/// of single changes. An error is that of so many of them.
fn plan(
    log: &mut Log,
    sessions: &Sessions,
    state: &Contents,
    writes: &[Write],
) -> Result<WritePlan, (Failure, usize)> {
    let mut plan = WritePlan {
        answers: Vec::new(),
        changes: Vec::new(),
        bytes: new_group_bytes(),
        records: 0,
        revision: state.revision,
        state_bytes: state.bytes,
    };
    // The keys that were changed by an earlier one of these; `None`: deleted.
    let mut changed: HashMap<&str, Option<Current>> = HashMap::new();
    let mut full: Option<Failure> = None;
    let group_bytes_max = log.group_bytes_max(state).min(GROUP_BYTES_MAX);
    for write in writes {
        let key = write.key.as_str();
        let stored = || state.get(key).map(|stored| Current::of(key, stored));
        let current = changed.get(key).copied().unwrap_or_else(stored);
        if let Some(refusal) = refusal(sessions, write, current) {
            plan.answers.push(Err(refusal));
            continue;
        }
        let value = write.value.as_deref();
        if value.is_none() && current.is_none() {
            plan.answers.push(Ok((Version(plan.revision), false)));
            continue;
        }
        // A key that is there stays whose it is.
        let session = current.map_or(write.session, |current| current.session);
        let bytes = match session {
            Some(_) => 0,
            None => record_bytes(key, value.unwrap_or_default()),
        };
        if plan.records > 0 && plan.bytes.len() as u64 + bytes > group_bytes_max {
            break;
        }
        let before = current.map_or(0, |current| current.bytes);
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
                    plan.answers.push(Err(write_error(&failure).into()));
                    continue;
                }
            }
        }
        plan.state_bytes = state_bytes;
        let version = plan.add(log.store_id, write, session);
        let new = Current {
            version,
            bytes,
            session,
        };
        changed.insert(key, value.map(|_| new));
        plan.answers.push(Ok((Version(version), current.is_some())));
    }
    Ok(plan)
}

impl WritePlan {
    /// The change happens. Says which version it makes.
    fn add(&mut self, store_id: u64, write: &Write, session: Option<SessionId>) -> u64 {
        self.revision += 1;
        let (key, value) = (write.key.as_str(), write.value.as_deref());
        let mut crc = 0;
        if session.is_none() {
            crc = record_crc(store_id, key, value, self.revision);
            push_record(&mut self.bytes, key, value, self.revision, crc);
            self.records += 1;
        }
        let record = Record {
            key: write.key.clone(),
            value: write.value.clone(),
            version: self.revision,
            crc,
        };
        self.changes.push((record, session));
        self.revision
    }
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
