//! The store without a thread: a test decides when a group is written, so that one seed gives one run.

use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use pharos_runtime::fs::Fs;

use super::writer::{Step, Writer};
use super::{Embedded, Options, Parts};
use crate::OpenError;

/// Rounds after which a call that should end is called stuck.
const ROUNDS_MAX: usize = 100_000;

/// A store whose writer runs only when told.
pub struct Manual {
    /// The store. Reads answer at once; writes wait for [`step`](Self::step).
    pub store: Arc<Embedded>,
    /// `None` when it has ended.
    writer: Option<Writer>,
}

impl std::fmt::Debug for Manual {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Manual").field("store", &self.store).finish()
    }
}

impl Manual {
    /// As [`Embedded::open_with`].
    ///
    /// # Errors
    /// As there.
    pub fn open(fs: &dyn Fs, dir: &Path, options: &Options) -> Result<Self, OpenError> {
        let Parts { store, writer } = Embedded::open_parts(fs, dir, options)?;
        Ok(Self {
            store: Arc::new(store),
            writer: Some(writer),
        })
    }

    /// At most one group. `true` when it did something.
    pub fn step(&mut self) -> bool {
        let step = self.writer.as_mut().map_or(Step::Ended, Writer::step);
        if step == Step::Ended {
            return self.writer.take().is_some();
        }
        step == Step::Worked
    }

    /// Runs a call to its end, stepping meanwhile.
    ///
    /// # Panics
    /// When it never ends.
    pub fn run<T>(&mut self, call: impl Future<Output = T>) -> T {
        let mut call = pin!(call);
        for _ in 0..ROUNDS_MAX {
            if let Poll::Ready(answer) = call.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                return answer;
            }
            self.step();
        }
        panic!("a call never ends");
    }
}
