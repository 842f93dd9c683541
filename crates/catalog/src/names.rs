//! Lock for one writer per name; writers of other names do not wait.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::OwnedMutexGuard;

type NameMutex = Arc<tokio::sync::Mutex<()>>;

/// The names being written. Entries come and go with their holders, so the map is as long as there are writes.
#[derive(Default)]
pub(super) struct NameLocks {
    /// Held for a few lines; the mutexes inside are what is held over a write.
    held: Arc<Mutex<HashMap<String, NameMutex>>>,
}

/// The right to write one name, until dropped.
pub(super) struct NameGuard {
    held: Arc<Mutex<HashMap<String, NameMutex>>>,
    name: String,
    /// `None` only while dropping.
    guard: Option<OwnedMutexGuard<()>>,
}

impl NameLocks {
    /// Waits until no other caller writes `name` (a store key), then takes it.
    ///
    /// Cancel safety: a dropped future takes nothing.
    pub(super) async fn take(&self, name: String) -> NameGuard {
        let mutex = {
            let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
            NameMutex::clone(held.entry(name.clone()).or_default())
        };
        let waiting = Waiting {
            held: &self.held,
            name: &name,
        };
        let guard = mutex.lock_owned().await;
        std::mem::forget(waiting);
        NameGuard {
            held: Arc::clone(&self.held),
            name,
            guard: Some(guard),
        }
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.held.lock().map_or(0, |held| held.len())
    }
}

/// Cleans up when a waiter gives up.
struct Waiting<'a> {
    held: &'a Mutex<HashMap<String, NameMutex>>,
    name: &'a str,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        forget_if_idle(self.held, self.name);
    }
}

impl Drop for NameGuard {
    fn drop(&mut self) {
        // The guard goes first: it holds the mutex in an `Arc` that would count as another user.
        self.guard = None;
        forget_if_idle(&self.held, &self.name);
    }
}

fn forget_if_idle(held: &Mutex<HashMap<String, NameMutex>>, name: &str) {
    let mut held = held.lock().unwrap_or_else(PoisonError::into_inner);
    // Users clone the mutex under this lock only, so a count of one means that no user holds or awaits it.
    if held.get(name).is_some_and(|mutex| Arc::strong_count(mutex) == 1) {
        held.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_name_has_one_holder_and_leaves_nothing_behind() {
        let locks = NameLocks::default();
        let first = locks.take("a".into()).await;
        let other = locks.take("b".into()).await;
        {
            let mut second = Box::pin(locks.take("a".into()));
            assert!(futures_ready(second.as_mut()).await.is_none());
            drop(first);
            assert!(futures_ready(second.as_mut()).await.is_some());
        }
        let held = locks.take("a".into()).await;
        let mut gives_up = Box::pin(locks.take("a".into()));
        assert!(futures_ready(gives_up.as_mut()).await.is_none());
        drop(held);
        drop(gives_up);
        drop(other);
        assert_eq!(locks.len(), 0);
    }

    /// Polls once.
    async fn futures_ready<F: Future + Unpin>(mut future: F) -> Option<F::Output> {
        std::future::poll_fn(|context| {
            let polled = std::pin::Pin::new(&mut future).poll(context);
            std::task::Poll::Ready(match polled {
                std::task::Poll::Ready(value) => Some(value),
                std::task::Poll::Pending => None,
            })
        })
        .await
    }
}
