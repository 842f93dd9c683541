//! The keeper: everything about segment files that nobody waits for.
//!
//! It prepares the next segment, writes side files, removes dead segments and empties mostly dead ones. One thread calls
//! [`Keeper::step`] in a loop ([`run`]); tests call it themselves. It never touches the segment being written.
//!
//! A dead segment may go when all of these hold; each line guards against a crash between two steps:
//! 1. nothing in it is needed (a deletion is needed as long as another segment has content of that ledger);
//! 2. a later segment has a durable header, which carries the next ledger id on;
//! 3. the segment before it has a durable side file, because this one's header says where that one ended;
//! 4. it has no damage that may hide the end of a ledger not yet recovered.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::shared::Shared;

mod compact;
mod prepare;
mod reclaim;
mod side;

pub(crate) use prepare::prepare_first;
pub(crate) use reclaim::{may_go, remove_files};
pub(crate) use side::write_side_file;

/// When to look again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// There may be more to do.
    Again,
    /// When the bell rings, or after this long.
    Wait(Option<Duration>),
    /// Never.
    Stopped,
}

/// How long the keeper waits before it tries again what the system refused.
const RETRY: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub(crate) struct Keeper {
    shared: Arc<Shared>,
    compaction: Option<compact::Compaction>,
    /// Files of dead segments, to be written again: path and length.
    spares: VecDeque<(PathBuf, u64)>,
    /// How often in a row a side file could not be written; after that it waits for the next start.
    side_failures: u32,
}

impl Keeper {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            compaction: None,
            spares: VecDeque::new(),
            side_failures: 0,
        }
    }

    /// Does one thing, the most urgent first.
    pub(crate) fn step(&mut self) -> Pace {
        if self.shared.is_stopping() {
            self.finish();
            return Pace::Stopped;
        }
        if self.shared.poison().is_some() {
            return Pace::Wait(None);
        }
        let mut wait = None;
        match self.prepare() {
            Pace::Again => return Pace::Again,
            Pace::Wait(retry) => wait = retry.or(wait),
            Pace::Stopped => {}
        }
        if self.write_one_side_file() || self.remove_one_dead() {
            return Pace::Again;
        }
        match self.compact() {
            Pace::Wait(later) => Pace::Wait(match (wait, later) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            }),
            pace => pace,
        }
    }

    /// The journal has stopped: leave the directory small and quick to open.
    fn finish(&mut self) {
        if self.shared.poison().is_none() {
            while self.write_one_side_file() {}
            self.trim_last();
            let prepared = self.shared.supply().prepared.take();
            let unused = prepared.map(|prepared| prepared.file.path.clone());
            let spares = self.spares.drain(..).map(|(path, _)| path);
            for path in spares.chain(unused) {
                if let Err(error) = self.shared.fs.remove(&path) {
                    tracing::debug!(%error, path = %path.display(), "cannot remove an unused segment");
                }
            }
        }
        self.shared.unlock_dir();
    }

    /// Gives back the room behind the last segment's data.
    fn trim_last(&self) {
        let last = {
            let segments = self.shared.segments();
            let last = segments.by_id.values().next_back();
            last.filter(|s| s.closed && s.indexed)
                .map(|s| (Arc::clone(&s.file), s.end))
        };
        if let Some((file, end)) = last
            && let Err(error) = file.file.set_len(end.next_multiple_of(4096))
        {
            tracing::debug!(%error, path = %file.path.display(), "cannot trim a segment");
        }
    }
}

/// The keeper's thread.
pub(crate) fn run(mut keeper: Keeper) {
    let shared = Arc::clone(&keeper.shared);
    loop {
        match keeper.step() {
            Pace::Again => {}
            Pace::Wait(timeout) => shared.keeper_bell.wait(timeout),
            Pace::Stopped => break,
        }
    }
}
