//! The topics of a shard, by name and by id, and who waits for them.
//!
//! Always true: a name has at most one topic; while that is loaded, unloaded or deleted, each request for it waits.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use pharos_feed::ids::{IdMap, TopicId};
use pharos_requests::error::TopicError;
use pharos_topic::{Past, Staying, Topic};
use pharos_types::TopicName;
use tokio::sync::oneshot;

use super::failures::Failures;
use super::unload::Resting;

/// The topics whose home a shard is.
#[derive(Default)]
pub(crate) struct Topics {
    pub(super) by_name: RefCell<HashMap<TopicName, Place>>,
    by_id: RefCell<IdMap<TopicId, Rc<Topic>>>,
    /// Unloaded because they were not used.
    pub(super) resting: RefCell<Resting>,
    pub(super) failures: RefCell<Failures>,
    /// Counters of topics that are not loaded any more.
    pub(crate) past: RefCell<Past>,
}

pub(super) type Waiters = Vec<oneshot::Sender<Result<Rc<Topic>, TopicError>>>;

pub(super) enum Place {
    /// Being loaded, let go or deleted; these wait.
    Loading(Waiters),
    Loaded(Rc<Topic>),
}

pub(super) enum Joined {
    Here(Rc<Topic>),
    Later(oneshot::Receiver<Result<Rc<Topic>, TopicError>>),
}

impl Topics {
    pub(crate) fn by_id(&self, id: TopicId) -> Option<Rc<Topic>> {
        self.by_id.borrow().get(&id.itself()).cloned()
    }

    pub(crate) fn by_name(&self, name: &TopicName) -> Option<Rc<Topic>> {
        match self.by_name.borrow().get(name)? {
            Place::Loaded(topic) => Some(topic.clone()),
            Place::Loading(_) => None,
        }
    }

    /// A topic is loaded no longer; what it counted stays.
    pub(super) fn leave(&self, topic: &Topic) {
        if self.by_id.borrow_mut().remove(&topic.id()).is_some() {
            self.past.borrow_mut().add(topic);
        }
    }

    pub(crate) fn all(&self) -> Vec<Rc<Topic>> {
        self.by_id.borrow().values().cloned().collect()
    }

    /// Takes out this topic, and no other of its name.
    pub(super) fn remove(&self, topic: &Topic) {
        let mut by_name = self.by_name.borrow_mut();
        if matches!(by_name.get(topic.name()), Some(Place::Loaded(it)) if it.id() == topic.id()) {
            by_name.remove(topic.name());
        }
        self.leave(topic);
    }

    /// True if a topic is neither loaded nor being loaded.
    pub(super) fn is_nowhere(&self, name: &TopicName) -> bool {
        !self.by_name.borrow().contains_key(name)
    }

    /// From now on each request for the topic waits; `false` when it is not the one that is loaded.
    pub(super) fn begin_rest(&self, topic: &Rc<Topic>) -> bool {
        let mut by_name = self.by_name.borrow_mut();
        let place = by_name.get_mut(topic.name());
        let loaded = place.filter(|place| matches!(place, Place::Loaded(it) if Rc::ptr_eq(it, topic)));
        let Some(place) = loaded else { return false };
        *place = Place::Loading(Vec::new());
        true
    }

    /// The topic is gone; these want it.
    pub(super) fn end_rest(&self, topic: &Topic) -> Waiters {
        self.leave(topic);
        match self.by_name.borrow_mut().remove(topic.name()) {
            Some(Place::Loading(waiters)) => waiters,
            _ => Vec::new(),
        }
    }

    /// The names, loaded or on their way, that are asked for.
    pub(super) fn names(&self, is_wanted: impl Fn(&TopicName) -> bool) -> Vec<TopicName> {
        let by_name = self.by_name.borrow();
        let wanted = by_name.keys().filter(|name| is_wanted(name));
        wanted.cloned().collect()
    }

    /// A topic is loaded, or could not be; these want to know.
    pub(super) fn end_load(&self, name: &TopicName, loaded: Option<&Rc<Topic>>) -> Waiters {
        let mut by_name = self.by_name.borrow_mut();
        let waiters = match by_name.remove(name) {
            Some(Place::Loading(waiters)) => waiters,
            _ => Vec::new(),
        };
        if let Some(topic) = loaded {
            self.resting.borrow_mut().remove(name);
            by_name.insert(name.clone(), Place::Loaded(topic.clone()));
            self.by_id.borrow_mut().insert(topic.id(), topic.clone());
        }
        waiters
    }

    /// The topic, or a place among those who wait for it; `None` when the caller is the one to load it.
    pub(super) fn join(&self, name: &TopicName) -> Result<Option<Joined>, TopicError> {
        let mut by_name = self.by_name.borrow_mut();
        match by_name.get_mut(name) {
            Some(Place::Loaded(topic)) if Staying(topic).is_closing() => {
                Err(TopicError::Closing(name.to_string()))
            }
            Some(Place::Loaded(topic)) => {
                Staying(topic).touch();
                Ok(Some(Joined::Here(topic.clone())))
            }
            Some(Place::Loading(waiters)) => {
                let (sender, receiver) = oneshot::channel();
                waiters.push(sender);
                Ok(Some(Joined::Later(receiver)))
            }
            None => {
                by_name.insert(name.clone(), Place::Loading(Vec::new()));
                Ok(None)
            }
        }
    }
}
