//! Holding a topic's name: while it is held, the topic is not loaded and not reached, and each request for it waits.
//!
//! A topic is unloaded and deleted under a hold. Whether it may be is decided at one moment, the same from which
//! newcomers wait.

use std::rc::Rc;

use pharos_requests::error::TopicError;
use pharos_topic::{Staying, Topic};
use pharos_types::TopicName;
use tokio::sync::oneshot;

use super::Home;
use super::table::{Place, Topics, Waiters};

/// The right to a topic's name. Dropped, the topic is out of the tables and those who waited are told to try again.
pub(super) struct Held {
    home: Rc<Home>,
    name: TopicName,
    /// The topic, if it was loaded; it refuses every request.
    topic: Option<Rc<Topic>>,
    is_over: bool,
}

impl Home {
    /// Takes the name of a topic when no other caller has it. `may` is asked of a loaded topic.
    ///
    /// # Errors
    /// What `may` says; `Closing` of a topic that a stop is closing.
    ///
    /// Cancel safety: a dropped future holds nothing.
    pub(super) async fn hold(
        self: &Rc<Self>,
        name: &TopicName,
        may: impl Fn(Staying<'_>) -> Result<(), TopicError>,
    ) -> Result<Held, TopicError> {
        loop {
            let later = match self.topics.begin_hold(name, &may)? {
                Turn::Now(topic) => {
                    self.topics.resting.borrow_mut().remove(name);
                    return Ok(Held {
                        home: self.clone(),
                        name: name.clone(),
                        topic,
                        is_over: false,
                    });
                }
                Turn::Later(later) => later,
            };
            // Whatever came of that: it is over, and the next look says how things are.
            let _ = later.await;
        }
    }
}

/// Result of an attempt to hold a name.
enum Turn {
    Now(Option<Rc<Topic>>),
    Later(oneshot::Receiver<Result<Rc<Topic>, TopicError>>),
}

impl Topics {
    fn begin_hold(
        &self,
        name: &TopicName,
        may: impl Fn(Staying<'_>) -> Result<(), TopicError>,
    ) -> Result<Turn, TopicError> {
        let mut by_name = self.by_name.borrow_mut();
        let Some(place) = by_name.get_mut(name) else {
            by_name.insert(name.clone(), Place::Loading(Vec::new()));
            return Ok(Turn::Now(None));
        };
        let topic = match place {
            Place::Loading(waiters) => {
                let (sender, receiver) = oneshot::channel();
                waiters.push(sender);
                return Ok(Turn::Later(receiver));
            }
            Place::Loaded(topic) => topic.clone(),
        };
        if Staying(&topic).is_closing() {
            return Err(TopicError::Closing(name.to_string()));
        }
        may(Staying(&topic))?;
        Staying(&topic).begin_to_close();
        *place = Place::Loading(Vec::new());
        Ok(Turn::Now(Some(topic)))
    }

    /// Number of requests that wait for a name.
    #[cfg(test)]
    pub(crate) fn waiting(&self, name: &TopicName) -> usize {
        match self.by_name.borrow().get(name) {
            Some(Place::Loading(waiters)) => waiters.len(),
            Some(Place::Loaded(_)) | None => 0,
        }
    }

    /// Takes a held name out of the tables, or puts `topic` in its place.
    fn end_hold(&self, name: &TopicName, topic: Option<Rc<Topic>>) -> Waiters {
        let mut by_name = self.by_name.borrow_mut();
        let before = match topic {
            Some(topic) => by_name.insert(name.clone(), Place::Loaded(topic)),
            None => by_name.remove(name),
        };
        match before {
            Some(Place::Loading(waiters)) => waiters,
            _ => Vec::new(),
        }
    }
}

impl Held {
    pub(super) fn name(&self) -> &TopicName {
        &self.name
    }

    /// The topic, if it was loaded.
    pub(super) fn topic(&self) -> Option<&Rc<Topic>> {
        self.topic.as_ref()
    }

    /// Lets the name go; those who waited are the caller's to answer.
    pub(super) fn let_go(mut self) -> Waiters {
        self.end(None)
    }

    /// Nothing came of it: the topic is there as before.
    pub(super) fn reopen(mut self) {
        let Some(topic) = self.topic.take() else { return };
        Staying(&topic).reopen();
        for waiter in self.end(Some(topic.clone())) {
            // A caller that no longer waits does not mind.
            let _ = waiter.send(Ok(topic.clone()));
        }
    }

    fn end(&mut self, reopened: Option<Rc<Topic>>) -> Waiters {
        if std::mem::replace(&mut self.is_over, true) {
            return Vec::new();
        }
        if let Some(topic) = self.topic.take() {
            self.home.topics.leave(&topic);
        }
        self.home.topics.end_hold(&self.name, reopened)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        for waiter in self.end(None) {
            // A caller that no longer waits does not mind.
            let _ = waiter.send(Err(TopicError::Closing(self.name.to_string())));
        }
    }
}
