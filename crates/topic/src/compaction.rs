//! Topic compaction of one topic: when it is begun, what it holds back, how it ends.
//!
//! A run is a task of the shard in small steps ([`pharos_compaction::run`]), one at a time for a topic and a bounded number for a
//! broker. What it leaves is durable and named in one step, or nothing changed; a run that a crash or an unload ends is begun anew.
//! What readers get of it: [`compacted`](super::compacted).
//!
//! Always true: the log is kept from the horizon on, from where a run under way reads, and, of a topic that is to be compacted and
//! was not, from where it was when that was first known.

use std::collections::VecDeque;
use std::time::Duration;

use pharos_compaction::{
    CompactionAskError, CompactionCounts, CompactionRun, CompactionStatus, Options, Outcome, ReadLog,
    RunError, run,
};
use pharos_managed_ledger::{CompactedLedgers, CompactedView, Entry, ReadError};
use pharos_requests::error::{CursorError, chain};
use pharos_runtime::{Nanos, clock, spawn_local};
use pharos_types::Ordinal;
use tokio::sync::oneshot;

use super::retire::bytes_after;
use super::{Stored, Topic};

/// Time that a closing topic waits for a compaction run that it cancelled.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// Compaction state of a topic.
pub(crate) struct Compaction {
    pub(super) view: Option<CompactedView>,
    /// Start of the log for the first compaction.
    awaited: Option<Ordinal>,
    /// Read position of a run under way.
    reading: Option<Ordinal>,
    /// Calls off what is under way when it is dropped.
    stop: Option<oneshot::Sender<()>>,
    pub(crate) status: CompactionStatus,
    pub(super) counts: CompactionCounts,
    /// Next entries of the positions in the compacted ledger that were read last, so that reading on needs no search.
    pub(super) found: VecDeque<(Ordinal, u64)>,
}

impl Compaction {
    /// Returns the compaction state of a topic that was just opened.
    pub(super) fn new(view: Option<CompactedView>) -> Self {
        Self {
            view,
            awaited: None,
            reading: None,
            stop: None,
            status: CompactionStatus::NotRun,
            counts: CompactionCounts::default(),
            found: VecDeque::new(),
        }
    }

    /// Nothing is trimmed from here on, whatever cursors say.
    pub(super) fn floor(&self) -> Option<Ordinal> {
        let horizon = self.view.as_ref().map(CompactedView::horizon);
        [horizon.or(self.awaited), self.reading]
            .into_iter()
            .flatten()
            .min()
    }

    /// True if a run is under way.
    pub(super) fn is_running(&self) -> bool {
        self.status == CompactionStatus::Running
    }
}

impl Stored {
    /// Sees to it that what is to be compacted stays, before anything else is trimmed.
    pub(super) fn await_compaction(&mut self) {
        let can_be = CompactedLedgers::of(&self.log.ledger).check().is_ok();
        let is_awaited = can_be && self.policies.compaction_threshold > 0;
        let first = self.log.ledger.first();
        self.compaction.awaited = is_awaited.then(|| self.compaction.awaited.unwrap_or(first));
    }

    /// True if so much was published since the last run that another is due.
    fn is_compaction_due(&self) -> bool {
        let threshold = self.policies.compaction_threshold;
        let horizon = self.compaction.view.as_ref().map(CompactedView::horizon);
        let from = horizon.unwrap_or_else(|| self.log.ledger.first());
        threshold > 0
            && !self.compaction.is_running()
            && from < self.log.readable_end()
            && bytes_after(self.log.ledger.ledgers(), from) > threshold
    }
}

/// The log of a topic, as a run reads it.
struct LogOf<'a>(&'a Topic);

impl ReadLog for LogOf<'_> {
    async fn read(&self, from: Ordinal, end: Ordinal, bytes_max: usize) -> Result<Vec<Entry>, ReadError> {
        self.0.reads().go_on(from, end, bytes_max).await
    }

    fn skips(&self, error: &ReadError) -> bool {
        self.0.cx.skips(error)
    }

    fn hides(&self, entry: &Entry) -> bool {
        let cx = &self.0.cx;
        cx.transactions.hides(cx.codec, &entry.payload)
    }
}

/// A run that is done: what is left, what it did, when it began.
type FinishedRun = ((CompactedView, Outcome), Nanos);

/// The runs of a topic.
pub(crate) struct Compacting<'a>(pub(crate) &'a Topic);

impl Compacting<'_> {
    /// Compacts the topic if so much was published since the last time.
    pub(super) fn compact_if_due(&self) {
        if self.0.state.borrow().stored.is_compaction_due()
            && let Err(error) = self.compact()
        {
            tracing::debug!(topic = %self.0.cx.name, %error, "the topic is not compacted");
        }
    }

    /// Begins to compact everything that is durable now; does not wait for it.
    ///
    /// # Errors
    /// [`CompactionAskError`].
    pub(crate) fn compact(&self) -> Result<(), CompactionAskError> {
        let Some(me) = self.0.cx.me() else {
            return Err(CompactionAskError::Closing);
        };
        let options = self.0.cx.options().compaction;
        let stopped = {
            let stored = &mut self.0.state.borrow_mut().stored;
            if stored.closing {
                return Err(CompactionAskError::Closing);
            }
            if stored.compaction.is_running() {
                return Err(CompactionAskError::Running);
            }
            CompactedLedgers::of(&stored.log.ledger)
                .check()
                .map_err(CompactionAskError::Refused)?;
            let (stop, stopped) = oneshot::channel();
            stored.compaction.stop = Some(stop);
            stored.compaction.status = CompactionStatus::Running;
            stopped
        };
        spawn_local(async move {
            let compactions = &me.cx.shard.shared.compactions;
            let work = async {
                // It is never closed.
                let _turn = compactions.acquire().await;
                let began = clock::now();
                Compacting(&me)
                    .compact_once(options)
                    .await
                    .map(|done| (done, began))
            };
            let done = tokio::select! {
                biased;
                _ = stopped => None,
                done = work => Some(done),
            };
            Compacting(&me).on_compacted(done);
        });
        Ok(())
    }

    /// Reads and writes; what it leaves is named when it resolves.
    async fn compact_once(&self, options: Options) -> Result<(CompactedView, Outcome), RunError> {
        let (view, from, horizon, begun) = {
            let stored = &mut self.0.state.borrow_mut().stored;
            let view = stored.compaction.view.clone();
            let horizon = view.as_ref().map(CompactedView::horizon);
            let from = stored.log.ledger.first().max(horizon.unwrap_or(Ordinal(0)));
            stored.compaction.reading = Some(from);
            (
                view,
                from,
                stored.log.readable_end(),
                CompactedLedgers::of(&stored.log.ledger).begin(),
            )
        };
        let mut writer = begun.await?;
        let task = CompactionRun {
            view,
            log: &LogOf(self.0),
            from,
            horizon,
            codec: self.0.cx.codec,
            options,
        };
        match run(&task, &mut writer, tokio::task::yield_now).await {
            Ok(outcome) => Ok((writer.finish(horizon, clock::wall_ms()).await?, outcome)),
            Err(error) => {
                writer.abandon().await;
                Err(error)
            }
        }
    }

    /// A run ended; `None`: it was called off.
    fn on_compacted(&self, done: Option<Result<FinishedRun, RunError>>) {
        let state = &mut *self.0.state.borrow_mut();
        let compaction = &mut state.stored.compaction;
        (compaction.reading, compaction.stop) = (None, None);
        let counts = &mut compaction.counts;
        compaction.status = match done {
            None => CompactionStatus::NotRun,
            Some(Ok(((view, outcome), began))) => {
                counts.succeeded += 1;
                counts.last_removed = outcome.removed;
                counts.removed += outcome.removed;
                counts.succeeded_ms = clock::wall_ms();
                counts.last_nanos = clock::now().since(began);
                (counts.last_read, counts.last_written) = (outcome.bytes_read, outcome.bytes_written);
                compaction.view = Some(view);
                compaction.found.clear();
                state.attached.links.compacted(&self.0.cx);
                CompactionStatus::Success
            }
            Some(Err(error)) => {
                counts.failed += 1;
                counts.failed_ms = clock::wall_ms();
                let why = chain(&error);
                tracing::warn!(topic = %self.0.cx.name, error = why, "the topic could not be compacted");
                CompactionStatus::Failed(why)
            }
        };
        if !state.stored.closing {
            state.stored.trim_soon(&self.0.cx);
        }
    }

    /// Calls off a run that is under way; resolves when it has ended.
    pub(super) async fn stop_compaction(&self) {
        self.0.state.borrow_mut().stored.compaction.stop = None;
        let ended = async {
            while self.0.state.borrow().stored.compaction.is_running() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        if tokio::time::timeout(STOP_TIMEOUT, ended).await.is_err() {
            tracing::warn!(topic = %self.0.cx.name, "a compaction under way did not end in time");
        }
    }

    /// Gives up what was compacted, and with it the messages that are nowhere else.
    ///
    /// # Errors
    /// `NoSubscription` when nothing was compacted; `Busy` while a run is under way; `Storage`.
    pub(crate) async fn forget_compacted(&self) -> Result<(), CursorError> {
        let forget = {
            let stored = &mut self.0.state.borrow_mut().stored;
            if stored.compaction.is_running() {
                return Err(CursorError::Busy(CompactionAskError::Running.to_string()));
            }
            if stored.compaction.view.is_none() {
                return Err(CursorError::NoSubscription("__compaction".to_owned()));
            }
            CompactedLedgers::of(&stored.log.ledger).forget()
        };
        forget
            .await
            .map_err(|error| CursorError::Storage(chain(&error)))?;
        let state = &mut *self.0.state.borrow_mut();
        state.stored.compaction.view = None;
        state.stored.compaction.found.clear();
        state.attached.links.compacted(&self.0.cx);
        state.stored.await_compaction();
        state.stored.trim_soon(&self.0.cx);
        Ok(())
    }
}
