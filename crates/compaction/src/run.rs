//! Compaction run: reads the log up to the horizon twice and writes the remaining messages, a little at a time.

use pharos_managed_ledger::{
    CompactedEntry, CompactedView, CompactedWriter, CompactionError, Entry, ReadError,
};
use pharos_types::Ordinal;
use pharos_types::entry::EntryCodec;

use super::{KeySurvey, Options, TooManyKeys};

/// Bytes of one read.
const READ_BYTES: usize = 1 << 20;
/// Entries that are looked at before others have their turn, so that a shard is held up for a moment only.
const ENTRIES_A_STEP: usize = 64;

/// The log of a topic, as a run reads it.
pub trait ReadLog {
    /// Durable entries from `from` on and before `end`: at least one, then as many as fit in `bytes_max`.
    ///
    /// # Errors
    /// [`ReadError`].
    fn read(
        &self,
        from: Ordinal,
        end: Ordinal,
        bytes_max: usize,
    ) -> impl Future<Output = Result<Vec<Entry>, ReadError>>;

    /// True if an entry that fails with this error is skipped, as consumers are moved past it.
    fn skips(&self, error: &ReadError) -> bool;

    /// True if consumers skip an entry, so that it is not kept: its transaction was aborted.
    fn hides(&self, _entry: &Entry) -> bool {
        false
    }
}

/// Input of a compaction run.
pub struct CompactionRun<'a, L> {
    /// Previous compacted view.
    pub view: Option<CompactedView>,
    /// The log. From the horizon of `view` on, or from `from` without one, nothing of it goes while the run lasts.
    pub log: &'a L,
    /// Its first entry that is to be looked at.
    pub from: Ordinal,
    /// End of the range to compact, exclusive.
    pub horizon: Ordinal,
    /// Codec that reads the facts of entries.
    pub codec: &'a dyn EntryCodec,
    /// Settings.
    pub options: Options,
}

/// Result of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Messages that went.
    pub removed: u64,
    /// Payload bytes that were read, both times together.
    pub bytes_read: u64,
    /// Payload bytes that were written.
    pub bytes_written: u64,
}

/// Reason why a run ended without a compacted ledger.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RunError {
    /// The keys take too much memory.
    #[error(transparent)]
    TooManyKeys(#[from] TooManyKeys),
    /// The log or the compacted ledger cannot be read or written.
    #[error(transparent)]
    Compaction(#[from] CompactionError),
    /// An entry is not there, and no error says why. What was compacted without it would lose it for good.
    #[error("entry {0} is missing")]
    Missing(u64),
}

impl From<ReadError> for RunError {
    fn from(error: ReadError) -> Self {
        Self::Compaction(error.into())
    }
}

/// Compacts into `writer`, which the caller finishes or abandons. `step` is awaited often: it lets others have their turn, and ends
/// the run when it does not resolve any more.
///
/// # Errors
/// [`RunError`].
///
/// Cancel safety: dropping the future is fine, for a writer that is abandoned.
pub async fn run<L: ReadLog, S: Future<Output = ()>>(
    run: &CompactionRun<'_, L>,
    writer: &mut CompactedWriter,
    step: impl Fn() -> S,
) -> Result<Outcome, RunError> {
    let mut outcome = Outcome::default();
    let mut survey = KeySurvey::new(run.codec, run.options);
    let mut source = EntrySource::new(run);
    while let Some(entries) = source.next().await? {
        for some in entries.chunks(ENTRIES_A_STEP) {
            for entry in some {
                outcome.bytes_read += entry.payload.len() as u64;
                survey.look(entry.ordinal, &entry.payload)?;
            }
            step().await;
        }
    }
    let mut sieve = survey.into_sieve();
    let mut source = EntrySource::new(run);
    while let Some(entries) = source.next().await? {
        for some in entries.chunks(ENTRIES_A_STEP) {
            for entry in some {
                outcome.bytes_read += entry.payload.len() as u64;
                let Some(survivor) = sieve.pass(entry.ordinal, &entry.payload) else {
                    continue;
                };
                outcome.bytes_written += survivor.payload.len() as u64;
                let survivor = CompactedEntry {
                    ordinal: entry.ordinal,
                    position: entry.position,
                    last_index: survivor.last_index,
                    payload: survivor.payload,
                };
                writer.push(&survivor).await?;
            }
            step().await;
        }
    }
    outcome.removed = sieve.removed();
    Ok(outcome)
}

/// The entries of one phase: those of the compacted ledger, then those of the log.
struct EntrySource<'a, L> {
    run: &'a CompactionRun<'a, L>,
    /// Next entry of the compacted ledger; `None` after the last one.
    index: Option<u64>,
    /// Next entry of the log.
    next: Ordinal,
}

impl<'a, L: ReadLog> EntrySource<'a, L> {
    fn new(run: &'a CompactionRun<'a, L>) -> Self {
        let horizon = run.view.as_ref().map_or(Ordinal(0), CompactedView::horizon);
        Self {
            run,
            index: run.view.is_some().then_some(0),
            next: run.from.max(horizon),
        }
    }

    /// The next entries; `None` when there are no more.
    async fn next(&mut self) -> Result<Option<Vec<Entry>>, RunError> {
        if let (Some(index), Some(view)) = (self.index, &self.run.view) {
            let found = view.read(index, ENTRIES_A_STEP * 16, READ_BYTES).await?;
            if !found.is_empty() {
                self.index = Some(index + found.len() as u64);
                let entries = found.into_iter().map(|entry| Entry {
                    ordinal: entry.ordinal,
                    position: entry.position,
                    payload: entry.payload,
                });
                return Ok(Some(entries.collect()));
            }
            if index < view.entries() {
                return Err(RunError::Missing(index));
            }
            self.index = None;
        }
        while self.next < self.run.horizon {
            match self.run.log.read(self.next, self.run.horizon, READ_BYTES).await {
                Ok(mut entries) => {
                    entries.retain(|entry| entry.ordinal < self.run.horizon);
                    let places = (self.next.0..).zip(&entries);
                    if let Some((place, _)) = places.clone().find(|(place, entry)| entry.ordinal.0 != *place)
                    {
                        return Err(RunError::Missing(place));
                    }
                    let Some((last, _)) = places.last() else {
                        return Err(RunError::Missing(self.next.0));
                    };
                    self.next = Ordinal(last).next();
                    entries.retain(|entry| !self.run.log.hides(entry));
                    return Ok(Some(entries));
                }
                Err(error) if self.run.log.skips(&error) => self.next = self.next.next(),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(None)
    }
}
