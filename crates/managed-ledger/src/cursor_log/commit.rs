//! Writing to one cursor ledger, and waiting for it.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use pharos_ledger::{AppendError, LedgerWriter, Tail};
use tokio::sync::{oneshot, watch};

use crate::error::CommitError;

/// A cursor ledger that is being written.
pub(super) struct Target {
    pub(super) writer: Arc<dyn LedgerWriter>,
    /// Entries that the engine has taken.
    appended: u64,
    /// Entries that it has not; bounded by `queue_bytes_max`.
    queue: VecDeque<Bytes>,
    pub(super) queued_bytes: usize,
    /// The engine has no room for the first of them.
    pub(super) is_short: bool,
    /// Bytes of all entries, queued ones included.
    pub(super) bytes: u64,
}

/// A place in a ledger to wait for.
pub(super) struct DurableAt {
    tail: watch::Receiver<Tail>,
    /// Entries that must be durable.
    count: u64,
}

/// A commit under way; see [`CommitTicket::durable`].
#[must_use]
pub struct CommitTicket(Result<PendingCommit, CommitError>);

struct PendingCommit {
    place: DurablePlace,
    /// The log's first failure; ends when the log is dropped.
    failure: watch::Receiver<Option<CommitError>>,
}

enum DurablePlace {
    /// In each of these ledgers.
    At(Vec<DurableAt>),
    /// The first ledger of this owner is yet to be named; it will say where to wait.
    Later(oneshot::Receiver<Result<DurableAt, CommitError>>),
}

impl CommitTicket {
    pub(super) fn failed(error: CommitError) -> Self {
        Self(Err(error))
    }

    pub(super) fn at(places: Vec<DurableAt>, failure: watch::Receiver<Option<CommitError>>) -> Self {
        Self(Ok(PendingCommit {
            place: DurablePlace::At(places),
            failure,
        }))
    }

    pub(super) fn later(
        place: oneshot::Receiver<Result<DurableAt, CommitError>>,
        failure: watch::Receiver<Option<CommitError>>,
    ) -> Self {
        Self(Ok(PendingCommit {
            place: DurablePlace::Later(place),
            failure,
        }))
    }

    /// Waits until everything queued before the commit is durable. Borrows nothing; the owner keeps running the log's steps
    /// meanwhile.
    ///
    /// # Errors
    /// [`CommitError`]: whether the records survive is unknown. Where that passes ([`CommitError::is_transient`]) the log goes on,
    /// and the records are stored when it can; otherwise reopen the topic.
    ///
    /// Cancel safety: dropping the future does not withdraw the records.
    pub async fn durable(self) -> Result<(), CommitError> {
        let PendingCommit { place, mut failure } = self.0?;
        tokio::select! {
            biased;
            durable = place.reached() => durable,
            failed = failure.wait_for(Option::is_some) => {
                Err(failed.ok().and_then(|failure| failure.clone()).unwrap_or(CommitError::Closed))
            }
        }
    }
}

impl DurablePlace {
    async fn reached(self) -> Result<(), CommitError> {
        let places = match self {
            Self::At(places) => places,
            Self::Later(place) => match place.await {
                Ok(place) => vec![place?],
                // The log failed or was dropped: the other branch says which.
                Err(_) => return std::future::pending().await,
            },
        };
        for place in places {
            place.reached().await?;
        }
        Ok(())
    }
}

impl DurableAt {
    /// The place after `count` entries of a ledger.
    pub(super) fn after(tail: watch::Receiver<Tail>, count: u64) -> Self {
        Self { tail, count }
    }

    /// Waits until the place is durable. Reads first: a ledger that has ended still says how far it came.
    pub(super) async fn reached(mut self) -> Result<(), CommitError> {
        loop {
            {
                let tail = self.tail.borrow_and_update();
                if tail.durable >= self.count {
                    return Ok(());
                }
                if let Some(fault) = &tail.failed {
                    return Err(CommitError::Failed(Arc::clone(fault)));
                }
            }
            self.tail.changed().await.map_err(|_| CommitError::Closed)?;
        }
    }
}

impl Target {
    pub(super) fn new(writer: Arc<dyn LedgerWriter>) -> Self {
        Self {
            writer,
            appended: 0,
            queue: VecDeque::new(),
            queued_bytes: 0,
            is_short: false,
            bytes: 0,
        }
    }

    pub(super) fn push(&mut self, entry: Bytes) {
        self.bytes += entry.len() as u64;
        self.queued_bytes += entry.len();
        self.queue.push_back(entry);
    }

    /// Gives the queue to the engine. What the engine cannot take at this moment stays.
    pub(super) fn flush(&mut self) -> Result<(), AppendError> {
        self.is_short = false;
        while let Some(entry) = self.queue.front() {
            match self.writer.append(entry.clone()) {
                Ok(id) => assert_eq!(id.0, self.appended, "the engine's entry ids are dense"),
                Err(AppendError::Overloaded { .. }) => return Ok(()),
                Err(AppendError::NoSpace { .. }) => {
                    self.is_short = true;
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
            self.appended += 1;
            self.queued_bytes -= entry.len();
            self.queue.pop_front();
        }
        Ok(())
    }

    /// The place after everything pushed so far.
    pub(super) fn all(&self) -> DurableAt {
        DurableAt {
            tail: self.writer.tail(),
            count: self.appended + self.queue.len() as u64,
        }
    }
}
