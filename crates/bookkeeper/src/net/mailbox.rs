//! A queue between what happens and the task that deals with it.
//!
//! Putting something in never waits, so it can be done under a lock. Its users bound how many there are: each is the
//! answer to a request that was counted before, or work of a ledger that has one of it at a time.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use tokio::sync::Notify;

#[derive(Debug)]
pub(crate) struct Mailbox<T> {
    /// The lock is held for one push or pop.
    queue: Mutex<VecDeque<T>>,
    wake: Notify,
}

impl<T> Default for Mailbox<T> {
    fn default() -> Self {
        Self {
            queue: Mutex::new(VecDeque::new()),
            wake: Notify::new(),
        }
    }
}

impl<T> Mailbox<T> {
    pub(crate) fn put(&self, item: T) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.push_back(item);
        drop(queue);
        self.wake.notify_one();
    }

    /// The oldest item; waits for one. For one task at a time.
    ///
    /// Cancel safety: nothing is lost when the future is dropped.
    pub(crate) async fn take(&self) -> T {
        loop {
            let item = self
                .queue
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .pop_front();
            match item {
                Some(item) => return item,
                None => self.wake.notified().await,
            }
        }
    }
}
