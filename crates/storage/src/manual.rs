//! The engine without threads: a test decides who does what when, so that one seed gives one run.

use std::path::Path;
use std::sync::Arc;

use futures_util::FutureExt;

use pharos_runtime::Nanos;
use pharos_runtime::fs::Fs;

use crate::journal::{Journal, Step};
use crate::keeper::{Keeper, Pace};
use crate::storage::Parts;
use crate::{OpenStoreError, Options, Storage};

/// A store whose journal and keeper run only when told.
#[derive(Debug)]
pub struct Manual {
    /// The engine. Reads run in their callers.
    pub storage: Arc<Storage>,
    journal: Journal,
    keeper: Keeper,
    now: Nanos,
}

/// Rounds after which something that should come to rest is called stuck.
const ROUNDS_MAX: usize = 100_000;

impl Manual {
    /// As [`Storage::open_with`].
    ///
    /// # Errors
    /// As there.
    pub fn open(fs: Arc<dyn Fs>, dir: &Path, options: Options) -> Result<Self, OpenStoreError> {
        let Parts {
            storage,
            journal,
            keeper,
        } = Storage::open_parts(fs, dir, options, true)?;
        Ok(Self {
            storage,
            journal,
            keeper,
            now: Nanos::default(),
        })
    }

    /// Lets time pass.
    pub fn pass(&mut self, nanos: u64) {
        self.now = Nanos(self.now.0 + nanos);
    }

    /// One round of the journal: at most one group. `true` when it did something.
    pub fn step_journal(&mut self) -> bool {
        self.journal.step(self.now) == Step::Worked
    }

    /// One round of the keeper. `true` when it did something.
    pub fn step_keeper(&mut self) -> bool {
        self.keeper.step() == Pace::Again
    }

    /// Until nobody has anything to do.
    ///
    /// # Panics
    /// When that never happens.
    pub fn settle(&mut self) {
        let mut quiet = 0;
        for _ in 0..ROUNDS_MAX {
            let worked = self.step_journal();
            // One may have queued work for the other, so both must be quiet twice.
            quiet = if self.step_keeper() || worked {
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
        for _ in 0..ROUNDS_MAX {
            if let Some(answer) = call.as_mut().now_or_never() {
                return answer;
            }
            self.step_journal();
            if let Some(answer) = call.as_mut().now_or_never() {
                return answer;
            }
            self.step_keeper();
        }
        panic!("a call never ends");
    }
}
