//! The changes that wait for the one who writes, and the sessions that make some of them.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Semaphore, mpsc, oneshot};

use super::ended;
use super::writer::{Answer, Write};
use crate::key::check_write;
use crate::session::{Clock, Handle, Keeper, Sessions};
use crate::{BoxFuture, Expect, Session, SessionError, SessionId, SessionWriteError, Version, WriteError};

/// Changes that may wait for the thread that writes.
const QUEUE: usize = 4_096;
/// Bytes of keys and values that may wait for it.
const QUEUE_BYTES: usize = 16 << 20;

/// The way to the writer, shared by the store and its sessions.
#[derive(Debug)]
pub(super) struct Queue {
    /// `None` after shutdown. The lock is held to clone or take the sender only.
    writes: Mutex<Option<mpsc::Sender<Write>>>,
    /// Bounds the bytes that wait for the writer.
    write_bytes: Arc<Semaphore>,
    /// The writer ends those that are due.
    pub(super) sessions: Arc<Sessions>,
}

impl Queue {
    /// An open queue, and the writer's end of it.
    pub(super) fn new() -> (Self, mpsc::Receiver<Write>) {
        let (writes, queue) = mpsc::channel(QUEUE);
        let new = Self {
            writes: Mutex::new(Some(writes)),
            write_bytes: Arc::new(Semaphore::new(QUEUE_BYTES)),
            sessions: Arc::new(Sessions::new(Clock::Runtime)),
        };
        (new, queue)
    }

    pub(super) fn is_open(&self) -> bool {
        self.writes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .is_some()
    }

    /// The writer finishes what is queued and ends.
    pub(super) fn close(&self) {
        self.writes.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Queues one change and waits for its group.
    pub(super) async fn change(
        &self,
        key: String,
        value: Option<Bytes>,
        expect: Expect,
        session: Option<SessionId>,
    ) -> Answer {
        let value_bytes = value.as_deref().unwrap_or_default();
        check_write(&key, value_bytes)?;
        // Both bounds are far below u32 and below the semaphore's size.
        let weight = (key.len() + value_bytes.len() + 64) as u32;
        let permit = Arc::clone(&self.write_bytes).acquire_many_owned(weight).await;
        let permit = permit.map_err(|_| gone())?;
        let writes = self.sender().ok_or_else(gone)?;
        let (answer, answered) = oneshot::channel();
        let write = Write {
            key,
            value,
            expect,
            session,
            answer,
            _permit: permit,
        };
        writes.send(write).await.map_err(|_| gone())?;
        // Or the writer would never see the end of its queue.
        drop(writes);
        answered.await.map_err(|_| gone())?
    }

    fn sender(&self) -> Option<mpsc::Sender<Write>> {
        self.writes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn open_session(
        self: &Arc<Self>,
        timeout: Duration,
    ) -> Result<Arc<dyn Session>, SessionError> {
        Handle::open(self, timeout).ok_or_else(|| SessionError::Fault(ended()))
    }
}

fn gone() -> SessionWriteError {
    SessionWriteError::Write(WriteError::Fault(ended()))
}

/// Sessions of the process that has the store open. Their keys are in memory only; the thread that writes ends those that are due.
impl Keeper for Queue {
    fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    fn put(
        &self,
        id: SessionId,
        key: String,
        value: Bytes,
        expect: Expect,
    ) -> BoxFuture<'_, Result<Version, SessionWriteError>> {
        Box::pin(async move {
            let put = self.change(key, Some(value), expect, Some(id)).await;
            put.map(|(version, _)| version)
        })
    }
}
