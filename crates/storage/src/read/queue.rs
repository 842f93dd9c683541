//! Reads that wait for a device: bounded, and one ledger after the other.
//!
//! A turn is one device read. A job that needs more goes to the end of its ledger, and its ledger to the end of the line,
//! so that a reader of one busy ledger waits for its own kind and no other reader for it. The ledgers that stand in line when a
//! round begins have their turns in the order in which they lie in the log: neighbours come one after the other, and what they
//! share is read once. Who comes later is in the next round, so no job waits for more than two.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use pharos_ledger::{ReadError, StorageFault};
use pharos_runtime::sync::{Condvar, Mutex, MutexGuard};
use pharos_types::LedgerId;

use super::job::{Found, ReadJob};

pub(crate) type Answer = Result<Found, ReadError>;

#[derive(Debug)]
pub(crate) struct Queued {
    pub(crate) job: ReadJob,
    pub(crate) answer: oneshot::Sender<Answer>,
    /// The place in the queue, given back when the read is done.
    _slot: OwnedSemaphorePermit,
}

/// Next action of a thread.
#[derive(Debug)]
pub(crate) enum Next {
    /// This.
    Job(Box<Queued>),
    /// Nothing waits.
    Nothing,
    /// The queue was stopped.
    Stopped,
}

#[derive(Debug, Default)]
struct QueuedReads {
    by_ledger: HashMap<LedgerId, VecDeque<Queued>>,
    /// Ledgers with a job that waits, the next one first.
    turns: VecDeque<LedgerId>,
    /// Number of ledgers at the front that are left of this round.
    round: usize,
    count: usize,
}

impl QueuedReads {
    fn push(&mut self, queued: Queued) {
        let ledger = queued.job.ledger;
        let jobs = self.by_ledger.entry(ledger).or_default();
        if jobs.is_empty() {
            self.turns.push_back(ledger);
        }
        jobs.push_back(queued);
        self.count += 1;
    }

    fn begin_round(&mut self) {
        let by_ledger = &self.by_ledger;
        let position = |ledger: &LedgerId| Some(by_ledger.get(ledger)?.front()?.job.position());
        self.turns.make_contiguous().sort_by_cached_key(position);
        self.round = self.turns.len();
    }

    fn pop(&mut self) -> Option<Queued> {
        if self.round == 0 {
            self.begin_round();
        }
        let ledger = self.turns.pop_front()?;
        self.round -= 1;
        let jobs = self.by_ledger.get_mut(&ledger)?;
        let queued = jobs.pop_front();
        if jobs.is_empty() {
            self.by_ledger.remove(&ledger);
        } else {
            self.turns.push_back(ledger);
        }
        self.count -= 1;
        queued
    }
}

/// The reads of one directory.
#[derive(Debug)]
pub(crate) struct ReadQueue {
    /// Its permits are what bounds the jobs.
    slots: Arc<Semaphore>,
    state: Mutex<QueuedReads>,
    bell: Condvar,
}

impl ReadQueue {
    pub(crate) fn new(slots: usize) -> Self {
        Self {
            slots: Arc::new(Semaphore::new(slots)),
            state: Mutex::default(),
            bell: Condvar::new(),
        }
    }

    /// Has a read done by the directory's thread.
    ///
    /// Cancel safety: dropping it drops the answer; the read may still happen.
    pub(crate) async fn submit(&self, job: ReadJob) -> Answer {
        let stopped = || ReadError::Fault(StorageFault::new("read", "storage was shut down"));
        let slot = Arc::clone(&self.slots)
            .acquire_owned()
            .await
            .map_err(|_| stopped())?;
        let (answer, answered) = oneshot::channel();
        let queued = Queued {
            job,
            answer,
            _slot: slot,
        };
        self.give_back(queued);
        answered.await.map_err(|_| stopped())?
    }

    /// Puts a job behind the others.
    pub(crate) fn give_back(&self, queued: Queued) {
        self.lock().push(queued);
        self.bell.notify_one();
    }

    /// Lets the thread end; what waits is answered with a fault.
    pub(crate) fn stop(&self) {
        self.slots.close();
        *self.lock() = QueuedReads::default();
        self.bell.notify_all();
    }

    /// The next job. Jobs that no caller waits for any more are dropped. Waits for one at most `patience`, or without an end.
    pub(crate) fn next(&self, patience: Option<Duration>) -> Next {
        let mut state = self.lock();
        loop {
            if self.slots.is_closed() {
                return Next::Stopped;
            }
            match state.pop() {
                Some(queued) if queued.answer.is_closed() => drop(queued),
                Some(queued) => return Next::Job(Box::new(queued)),
                None => match patience {
                    None => state = self.bell.wait(state).unwrap_or_else(PoisonError::into_inner),
                    Some(Duration::ZERO) => return Next::Nothing,
                    Some(patience) => {
                        let waited = self.bell.wait_timeout(state, patience);
                        let (woken, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
                        if timeout.timed_out() && woken.count == 0 {
                            return Next::Nothing;
                        }
                        state = woken;
                    }
                },
            }
        }
    }

    /// Jobs that wait.
    pub(crate) fn depth(&self) -> usize {
        self.lock().count
    }

    fn lock(&self) -> MutexGuard<'_, QueuedReads> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ledgers_take_turns() {
        let queue = ReadQueue::new(100);
        let mut answers = Vec::new();
        let mut push = |ledger: u64, first: u64| {
            let (answer, answered) = oneshot::channel();
            answers.push(answered);
            queue.give_back(Queued {
                job: ReadJob::empty(LedgerId(ledger), first),
                answer,
                _slot: Arc::clone(&queue.slots).try_acquire_owned().unwrap(),
            });
        };
        for first in 0..4 {
            push(1, first);
        }
        push(2, 10);
        push(3, 20);
        assert_eq!(queue.depth(), 6);
        let mut order = Vec::new();
        while queue.depth() > 0 {
            let Next::Job(queued) = queue.next(None) else {
                panic!("there are some");
            };
            order.push(queued.job.next);
        }
        for patience in [Duration::ZERO, Duration::from_millis(1)] {
            assert!(matches!(queue.next(Some(patience)), Next::Nothing));
        }
        assert_eq!(order, [0, 10, 20, 1, 2, 3]);
        queue.stop();
        assert!(matches!(queue.next(None), Next::Stopped));
    }
}
