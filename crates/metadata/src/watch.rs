//! Watches: a bounded stream of changes per store, filtered where it is read.
//!
//! One ring serves all watches of a store, so a writer's cost does not grow with them and a watch that is not read
//! holds nothing back: it finds [`Event::Lagged`] and lists again.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::broadcast;

use crate::Version;

/// Changes that a watch may fall behind before it must list again.
const RING: usize = 1_024;

/// A change below a watched prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The key has a new value.
    Put {
        /// The key.
        key: Arc<str>,
        /// Its version after the change.
        version: Version,
    },
    /// The key is gone.
    Deleted {
        /// The key.
        key: Arc<str>,
    },
    /// Some changes were missed: list or scan the prefix again, then go on watching.
    Lagged,
}

/// Translation of a change to other key names; `None` drops the change.
pub type Translate = fn(Event) -> Option<Event>;

/// A stream of changes; see [`crate::MetadataStore::watch`].
#[derive(Debug)]
pub struct Watch {
    prefix: String,
    /// `None` once the store has ended.
    events: Option<broadcast::Receiver<Event>>,
    translate: Option<Translate>,
}

impl Watch {
    /// The next change, or `None` when the store was shut down.
    ///
    /// Cancel safety: nothing is lost when the future is dropped.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            let event = match self.events.as_mut()?.recv().await {
                Ok(event) => event,
                Err(broadcast::error::RecvError::Lagged(_)) => return Some(Event::Lagged),
                Err(broadcast::error::RecvError::Closed) => {
                    self.events = None;
                    return None;
                }
            };
            let event = match self.translate {
                Some(translate) => translate(event),
                None => Some(event),
            };
            if let Some(event) = event.filter(|event| self.concerns(event)) {
                return Some(event);
            }
        }
    }

    /// A watch of the same store by other names: each change as `translate` says it, of keys that begin with `prefix` there.
    #[must_use]
    pub fn translated(self, prefix: &str, translate: Translate) -> Self {
        Self {
            prefix: prefix.to_owned(),
            translate: Some(translate),
            ..self
        }
    }

    fn concerns(&self, event: &Event) -> bool {
        match event {
            Event::Put { key, .. } | Event::Deleted { key } => key.starts_with(&self.prefix),
            Event::Lagged => true,
        }
    }
}

/// The writing end, kept by a backend.
#[derive(Debug)]
pub struct Watchers {
    /// `None` after [`end`](Self::end). The lock is held for one send or subscribe only.
    ring: Mutex<Option<broadcast::Sender<Event>>>,
}

impl Default for Watchers {
    fn default() -> Self {
        Self::new()
    }
}

impl Watchers {
    /// Without watches.
    #[must_use]
    pub fn new() -> Self {
        Self {
            ring: Mutex::new(Some(broadcast::Sender::new(RING))),
        }
    }

    /// Tells all watches. Call it in the order of the changes, after they are durable.
    pub fn tell(&self, event: Event) {
        if let Some(ring) = &*self.ring.lock().unwrap_or_else(PoisonError::into_inner) {
            // An error only says that there is no watch.
            let _ = ring.send(event);
        }
    }

    /// A watch of what is told from now on, of keys that begin with `prefix`.
    pub fn watch(&self, prefix: &str) -> Watch {
        let ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        Watch {
            prefix: prefix.to_owned(),
            events: ring.as_ref().map(broadcast::Sender::subscribe),
            translate: None,
        }
    }

    /// Ends every watch once it has read what was told.
    pub fn end(&self) {
        *self.ring.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}
