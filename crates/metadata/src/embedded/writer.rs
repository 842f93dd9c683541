//! The write thread: drains its queue, writes one transaction, commits once, answers all.

use std::sync::Arc;

use bytes::Bytes;
use redb::{Database, ReadableTable, Table};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

use super::reader::version_of;
use super::{ITEMS, REVISION, STORE};
use crate::watch::Watchers;
use crate::{Event, Expect, Fault, Version, WriteError};

/// Most changes of one commit, so that the first in it does not wait for ever.
const GROUP_MAX: usize = 2_048;

/// One queued change.
pub(super) struct Write {
    pub(super) key: String,
    pub(super) change: Change,
    pub(super) expect: Expect,
    pub(super) answer: oneshot::Sender<Answer>,
    /// Its share of the queue's bytes, given back when it is answered.
    pub(super) _permit: OwnedSemaphorePermit,
}

pub(super) enum Change {
    Put(Bytes),
    Delete,
}

/// The version after a put, and whether the key was there.
type Answer = Result<(Version, bool), WriteError>;

pub(super) struct Writer {
    database: Arc<Database>,
    queue: mpsc::Receiver<Write>,
    watchers: Arc<Watchers>,
    /// Last version given out.
    revision: u64,
    /// The first failure; final, because what reached the device is then unknown.
    failed: Option<Arc<Fault>>,
}

impl Writer {
    pub(super) fn new(
        database: Arc<Database>,
        queue: mpsc::Receiver<Write>,
        watchers: Arc<Watchers>,
        revision: u64,
    ) -> Self {
        Self {
            database,
            queue,
            watchers,
            revision,
            failed: None,
        }
    }

    /// Runs until the queue is closed and empty.
    pub(super) fn run(mut self) {
        let mut group = Vec::new();
        while let Some(first) = self.queue.blocking_recv() {
            group.push(first);
            while group.len() < GROUP_MAX
                && let Ok(next) = self.queue.try_recv()
            {
                group.push(next);
            }
            self.on_group(&mut group);
        }
    }

    fn on_group(&mut self, group: &mut Vec<Write>) {
        let outcome = match &self.failed {
            Some(fault) => Err(Arc::clone(fault)),
            None => self
                .commit(group)
                .map_err(|error| Fault::new("commit metadata", error)),
        };
        match outcome {
            Ok(answers) => {
                for (write, answer) in group.drain(..).zip(answers) {
                    self.tell(&write, &answer);
                    // The asker may have gone; the change stands.
                    let _ = write.answer.send(answer);
                }
            }
            Err(fault) => {
                if self.failed.is_none() {
                    tracing::error!(%fault, "the metadata store no longer accepts writes");
                    self.failed = Some(Arc::clone(&fault));
                }
                for write in group.drain(..) {
                    let _ = write.answer.send(Err(WriteError::Fault(Arc::clone(&fault))));
                }
            }
        }
    }

    /// Applies the group in order. Conflicts are answers of single changes; an error means that nothing counts.
    fn commit(&mut self, group: &[Write]) -> Result<Vec<Answer>, redb::Error> {
        // Without redb's quick repair: it doubles the syncs of a commit, and a killed store of 10,000 topics
        // opens in 10 ms anyway.
        let transaction = self.database.begin_write()?;
        let mut revision = self.revision;
        let mut answers = Vec::with_capacity(group.len());
        {
            let mut items = transaction.open_table(ITEMS)?;
            for write in group {
                answers.push(apply(&mut items, write, &mut revision)?);
            }
            transaction.open_table(STORE)?.insert(REVISION, revision)?;
        }
        if revision == self.revision {
            // Nothing but conflicts: nothing to sync.
            transaction.abort()?;
        } else {
            transaction.commit()?;
            self.revision = revision;
        }
        Ok(answers)
    }

    fn tell(&self, write: &Write, answer: &Answer) {
        let Ok((version, existed)) = *answer else { return };
        let key: Arc<str> = write.key.as_str().into();
        match write.change {
            Change::Put(_) => self.watchers.tell(Event::Put { key, version }),
            Change::Delete if existed => self.watchers.tell(Event::Deleted { key }),
            Change::Delete => {}
        }
    }
}

fn apply(
    items: &mut Table<'_, &'static str, &'static [u8]>,
    write: &Write,
    revision: &mut u64,
) -> Result<Answer, redb::Error> {
    let key = write.key.as_str();
    let current = match items.get(key)? {
        Some(item) => Some(version_of(item.value())?),
        None => None,
    };
    if !write.expect.holds(current) {
        return Ok(Err(WriteError::Conflict {
            key: write.key.clone(),
            current,
        }));
    }
    match &write.change {
        Change::Put(value) => {
            *revision += 1;
            let mut item = Vec::with_capacity(8 + value.len());
            item.extend_from_slice(&revision.to_be_bytes());
            item.extend_from_slice(value);
            items.insert(key, item.as_slice())?;
        }
        Change::Delete if current.is_some() => {
            *revision += 1;
            items.remove(key)?;
        }
        Change::Delete => {}
    }
    Ok(Ok((Version(*revision), current.is_some())))
}
