//! The engine without threads: a test decides who does what when, so that one seed gives one run.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;

use pharos_runtime::Nanos;
use pharos_runtime::fs::Fs;

use crate::flush::Flusher;
use crate::journal::prepare::Preparer;
use crate::journal::{Journal, Step};
use crate::shared::Pace;
use crate::storage::Parts;
use crate::{OpenStoreError, Options, Storage};

/// A store whose parts run only when told.
#[derive(Debug)]
pub struct Manual {
    /// The engine. Reads run in their callers.
    pub storage: Arc<Storage>,
    journals: Vec<Journal>,
    preparers: Vec<Preparer>,
    flusher: Flusher,
    now: Nanos,
}

/// Rounds after which something that should come to rest is called stuck.
const ROUNDS_MAX: usize = 100_000;
/// Rounds of a call that has no answer after which a second passes.
const ROUNDS_A_SECOND: usize = 1000;

impl Manual {
    /// As [`Storage::open_with`].
    ///
    /// # Errors
    /// As there.
    pub fn open(fs: Arc<dyn Fs>, dir: &Path, options: Options) -> Result<Self, OpenStoreError> {
        let Parts {
            storage,
            journals,
            preparers,
            flusher,
        } = Storage::open_parts(fs, dir, options, true)?;
        Ok(Self {
            storage,
            journals,
            preparers,
            flusher,
            now: pharos_runtime::clock::now(),
        })
    }

    /// Lets time pass.
    pub fn pass(&mut self, nanos: u64) {
        self.now = Nanos(self.now.0 + nanos);
    }

    /// Returns the number of journals.
    #[must_use]
    pub fn journals(&self) -> usize {
        self.journals.len()
    }

    /// Runs a round of a journal: at most one group. `true` if it did something.
    pub fn step_journal(&mut self, number: usize) -> bool {
        let now = self.now;
        let journal = self.journals.get_mut(number);
        journal.is_some_and(|journal| journal.step(now) == Step::Worked)
    }

    /// Returns the time that a journal's thread would wait for more entries before its next group.
    #[must_use]
    pub fn pause(&self, number: usize) -> Duration {
        let journal = self.journals.get(number);
        journal.map_or(Duration::ZERO, |journal| journal.pause(self.now))
    }

    /// Runs a round of a preparer. `true` if it did something.
    pub fn step_preparer(&mut self, number: usize) -> bool {
        let now = self.now;
        let preparer = self.preparers.get_mut(number);
        preparer.is_some_and(|preparer| preparer.step(now) == Pace::Again)
    }

    /// Runs a round of the flusher. `true` if it did something.
    pub fn step_flusher(&mut self) -> bool {
        self.flusher.step(self.now) == Pace::Again
    }

    /// Runs a round of all threads but the flusher.
    fn step_others(&mut self) -> bool {
        let mut worked = false;
        for number in 0..self.journals.len() {
            worked |= self.step_journal(number);
            worked |= self.step_preparer(number);
        }
        worked
    }

    /// Runs until no thread has anything to do.
    ///
    /// # Panics
    /// If that never happens.
    pub fn settle(&mut self) {
        let mut quiet = 0;
        for _ in 0..ROUNDS_MAX {
            let worked = self.step_others();
            // One may have queued work for another, so all must be quiet twice.
            quiet = if self.step_flusher() || worked {
                0
            } else {
                quiet + 1
            };
            if quiet == 2 {
                return;
            }
        }
        panic!("the store does not come to rest");
    }

    /// Runs a call of the engine to its end, stepping everything meanwhile.
    ///
    /// # Panics
    /// When it never ends.
    pub fn run<T>(&mut self, call: impl Future<Output = T>) -> T {
        let mut call = std::pin::pin!(call);
        for round in 1..ROUNDS_MAX {
            if let Some(answer) = call.as_mut().now_or_never() {
                return answer;
            }
            if round.is_multiple_of(ROUNDS_A_SECOND) {
                // A thread that was refused something waits before it tries again.
                self.pass(1_000_000_000);
            }
            for number in 0..self.journals.len() {
                self.step_journal(number);
            }
            if let Some(answer) = call.as_mut().now_or_never() {
                return answer;
            }
            for number in 0..self.preparers.len() {
                self.step_preparer(number);
            }
            self.step_flusher();
        }
        panic!("a call never ends");
    }
}
