//! The write cache: two halves, their size, and up to where each journal has filled them.
//!
//! The entries themselves stand in their ledgers (`LedgerState::chunks`). Here is what concerns all of them: which half is
//! filled (the *epoch* counts halves), how full it is, which ledgers are in it, and the mark of each journal.
//!
//! ```text
//!  journal:  reserve ─► write ─► sync ─► begin_publish (epoch) ─► ledgers ─► end_publish (mark)
//!  flusher:  swap: a new epoch; the old half with its marks ─► logs ─► release
//! ```
//! Always true: a swap's mark of a journal covers only groups all of whose entries were published in the epoch that it
//! ends or before, and whose facts have appeared when it returns. So what the old half and the ledgers say after a swap
//! is at least what the journals say up to the marks. (It may be more: replaying what is known already does nothing.)
//!
//! Lock order: a ledger's state before this lock.

use std::sync::{Arc, PoisonError};

use pharos_runtime::Nanos;
use pharos_runtime::sync::{Condvar, Mutex, MutexGuard};
use pharos_storage_format::checkpoint::Mark;

use crate::ledgers::Ledger;

/// Progress that a journal has reported to the cache.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct JournalProgress {
    pub(crate) mark: Mark,
    /// Bytes written to the journal up to the mark since the store was opened.
    pub(crate) written: u64,
}

#[derive(Debug, Default)]
struct Half {
    bytes: u64,
    touched: Vec<Arc<Ledger>>,
    /// Time of its first entry.
    since: Option<Nanos>,
    /// Time of its last entry.
    last: Nanos,
}

#[derive(Debug, Default)]
struct JournalState {
    published: JournalProgress,
    /// The end of the group that is being published, and the epoch it goes to.
    publishing: Option<(JournalProgress, u64)>,
}

#[derive(Debug, Default)]
struct Halves {
    epoch: u64,
    halves: [Half; 2],
    /// Room promised to groups that are being written.
    reserved: u64,
    journals: Vec<JournalState>,
    /// The other half is being flushed.
    flushing: bool,
}

/// Result of a swap, for the flusher.
#[derive(Debug)]
pub(crate) struct Swapped {
    pub(crate) epoch: u64,
    /// By journal.
    pub(crate) progress: Vec<JournalProgress>,
    pub(crate) touched: Vec<Arc<Ledger>>,
    pub(crate) bytes: u64,
    /// Time of its first entry.
    pub(crate) since: Option<Nanos>,
}

/// Fill level of the active half.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fill {
    pub(crate) bytes: u64,
    /// Time of its first entry.
    pub(crate) since: Option<Nanos>,
    /// Time of its last entry.
    pub(crate) last: Nanos,
    /// Bytes of the half that is being flushed.
    pub(crate) flushing_bytes: u64,
}

#[derive(Debug)]
pub(crate) struct Cache {
    state: Mutex<Halves>,
    /// Rung when a journal has published.
    published: Condvar,
    half_bytes: u64,
}

impl Cache {
    /// A cache of `bytes` bytes for journals that stand at these marks.
    pub(crate) fn new(bytes: u64, marks: &[Mark]) -> Self {
        let journal = |mark: &Mark| JournalState {
            published: JournalProgress {
                mark: *mark,
                written: 0,
            },
            publishing: None,
        };
        Self {
            state: Mutex::new(Halves {
                journals: marks.iter().map(journal).collect(),
                ..Halves::default()
            }),
            published: Condvar::new(),
            half_bytes: bytes / 2,
        }
    }

    /// Bytes that a group may bring now. An empty half takes any one entry.
    pub(crate) fn room(&self) -> u64 {
        let state = self.lock();
        let used = state.half().bytes + state.reserved;
        if used == 0 {
            u64::MAX
        } else {
            self.half_bytes.saturating_sub(used)
        }
    }

    /// True if the active half should be flushed before it is full.
    pub(crate) fn is_nearly_full(&self) -> bool {
        let state = self.lock();
        (state.half().bytes + state.reserved) >= self.half_bytes - self.half_bytes / 4
    }

    pub(crate) fn half_bytes(&self) -> u64 {
        self.half_bytes
    }

    /// Promises room to a group that is about to be written.
    pub(crate) fn reserve(&self, bytes: u64) {
        self.lock().reserved += bytes;
    }

    /// Takes back what was promised to a group that failed.
    pub(crate) fn cancel(&self, bytes: u64) {
        let mut state = self.lock();
        state.reserved = state.reserved.saturating_sub(bytes);
    }

    /// Effects of a group begin to appear; says in which epoch. `progress`: where the group ends, when nothing of it is
    /// left after this.
    pub(crate) fn begin_publish(&self, journal: usize, progress: Option<JournalProgress>) -> u64 {
        let mut state = self.lock();
        let epoch = state.epoch;
        if let Some(journal) = state.journals.get_mut(journal) {
            journal.publishing = Some((progress.unwrap_or(journal.published), epoch));
        }
        epoch
    }

    /// Some entries of the group have appeared: `bytes` in the ledgers of `touched`, which had nothing in this epoch yet.
    /// `true`: they are the first ones, so from now on there is something whose age counts.
    pub(crate) fn add(
        &self,
        epoch: u64,
        reserved: u64,
        bytes: u64,
        touched: impl IntoIterator<Item = Arc<Ledger>>,
        now: Nanos,
    ) -> bool {
        let mut state = self.lock();
        state.reserved = state.reserved.saturating_sub(reserved);
        let half = &mut state.halves[(epoch & 1) as usize];
        half.bytes += bytes;
        half.last = now;
        half.touched.extend(touched);
        let first = half.bytes > 0 && half.since.is_none();
        if first {
            half.since = Some(now);
        }
        first
    }

    /// All effects of the group have appeared.
    pub(crate) fn end_publish(&self, journal: usize) {
        let mut state = self.lock();
        if let Some(journal) = state.journals.get_mut(journal)
            && let Some((progress, _)) = journal.publishing.take()
        {
            journal.published = progress;
        }
        drop(state);
        self.published.notify_all();
    }

    /// A journal will publish nothing more, perhaps in the middle of a group. The store was poisoned first, so no reader makes
    /// use of a mark behind that group.
    pub(crate) fn abandon(&self, journal: usize) {
        if let Some(journal) = self.lock().journals.get_mut(journal) {
            journal.publishing = None;
        }
        self.published.notify_all();
    }

    /// Begins a new epoch, waits until no journal publishes into the old one any more, and hands that over. `None` while the
    /// one before is not released.
    pub(crate) fn swap(&self) -> Option<Swapped> {
        let mut state = self.lock();
        if state.flushing {
            return None;
        }
        state.flushing = true;
        let epoch = state.epoch;
        state.epoch += 1;
        // A group that is being published into the old epoch belongs to it, so its end is the mark.
        let progress = state
            .journals
            .iter()
            .map(|journal| journal.publishing.map_or(journal.published, |(end, _)| end))
            .collect();
        while state
            .journals
            .iter()
            .any(|journal| journal.publishing.is_some_and(|(_, of)| of == epoch))
        {
            state = self.published.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let half = &mut state.halves[(epoch & 1) as usize];
        let since = half.since.take();
        let touched = std::mem::take(&mut half.touched);
        Some(Swapped {
            epoch,
            progress,
            touched,
            bytes: half.bytes,
            since,
        })
    }

    /// Entries of this epoch have left memory.
    pub(crate) fn release(&self, epoch: u64, bytes: u64) {
        let mut state = self.lock();
        let half = &mut state.halves[(epoch & 1) as usize];
        half.bytes = half.bytes.saturating_sub(bytes);
    }

    /// The old half is flushed; the next swap may come.
    pub(crate) fn finish_flush(&self) {
        self.lock().flushing = false;
    }

    pub(crate) fn fill(&self) -> Fill {
        let state = self.lock();
        let other = &state.halves[((state.epoch + 1) & 1) as usize];
        Fill {
            bytes: state.half().bytes,
            since: state.half().since,
            last: state.half().last,
            flushing_bytes: other.bytes,
        }
    }

    /// Returns the published progress of each journal.
    pub(crate) fn progress(&self) -> Vec<JournalProgress> {
        self.lock().journals.iter().map(|j| j.published).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Halves> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Halves {
    fn half(&self) -> &Half {
        &self.halves[(self.epoch & 1) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(sequence: u64) -> JournalProgress {
        JournalProgress {
            mark: Mark {
                sequence,
                ..Mark::default()
            },
            written: 0,
        }
    }

    #[test]
    fn a_swap_takes_the_group_that_is_being_published_with_it() {
        let cache = Arc::new(Cache::new(1000, &[Mark::default(); 2]));
        assert_eq!(cache.begin_publish(0, Some(progress(1))), 0);
        cache.add(0, 0, 100, [], Nanos(1));
        cache.end_publish(0);
        assert_eq!(cache.begin_publish(0, Some(progress(2))), 0);
        let other = Arc::clone(&cache);
        let swap = std::thread::spawn(move || other.swap().unwrap());
        // The swap waits for the group of journal 0; journal 1 publishes into the new epoch meanwhile.
        while cache.begin_publish(1, Some(progress(7))) == 0 {
            cache.end_publish(1);
            std::thread::yield_now();
        }
        cache.end_publish(1);
        cache.add(0, 0, 50, [], Nanos(2));
        cache.end_publish(0);
        let swapped = swap.join().unwrap();
        assert_eq!((swapped.epoch, swapped.bytes), (0, 150));
        assert_eq!(swapped.since, Some(Nanos(1)));
        assert_eq!(swapped.progress[0].mark.sequence, 2);
        assert!(cache.swap().is_none(), "one flush at a time");
        assert_eq!(cache.fill().flushing_bytes, 150);
        cache.release(0, 150);
        cache.finish_flush();
        assert_eq!(cache.swap().unwrap().epoch, 1);
    }

    #[test]
    fn an_empty_half_takes_any_entry_and_a_full_one_none() {
        let cache = Cache::new(200, &[Mark::default()]);
        assert_eq!(cache.room(), u64::MAX);
        cache.reserve(80);
        assert_eq!(cache.room(), 20);
        assert!(cache.is_nearly_full());
        cache.add(0, 80, 500, [], Nanos(1));
        assert_eq!(cache.room(), 0);
        assert_eq!(cache.fill().since, Some(Nanos(1)));
    }
}
