//! Following the topic list of a namespace: what came and what went since the last word.

use std::collections::{BTreeMap, BTreeSet};

use pharos_types::hash::topics_hash;
use pharos_types::{Domain, NamespaceName, TopicName};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};

use super::{Catalog, ListMode, PatternError, TopicEvent, TopicLists, TopicPattern};

/// What changed, for WATCH_TOPIC_UPDATE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicListUpdate {
    /// Full names that came, sorted.
    pub new: Vec<String>,
    /// Full names that went, sorted.
    pub deleted: Vec<String>,
    /// The fingerprint of the list as it is now.
    pub hash: String,
}

/// One client's watch on the persistent topics of a namespace that fit a pattern. System topics are never among them.
///
/// Changes that come together are reported together, so a burst of creations costs a few updates.
#[derive(Debug)]
pub struct TopicListWatcher {
    catalog: Catalog,
    namespace: NamespaceName,
    pattern: TopicPattern,
    /// What the client has been told.
    listed: BTreeSet<TopicName>,
    events: Receiver<TopicEvent>,
}

impl TopicListWatcher {
    /// The list as the client now knows it: full names, sorted. For WATCH_TOPIC_LIST_SUCCESS.
    #[must_use]
    pub fn topics(&self) -> Vec<String> {
        self.listed.iter().map(ToString::to_string).collect()
    }

    /// The fingerprint of that list.
    #[must_use]
    pub fn hash(&self) -> String {
        topics_hash(&self.topics())
    }

    /// Lists anew, for a client that asks again under the same watcher id. What changed meanwhile is in the new list and
    /// will not be reported.
    pub fn refresh(&mut self) {
        self.events = self.catalog.subscribe_topic_events();
        self.listed = self.list();
    }

    /// Waits for the next change.
    ///
    /// Cancel safety: nothing is lost when the future is dropped.
    pub async fn next(&mut self) -> TopicListUpdate {
        loop {
            let mut changes = BTreeMap::new();
            // The only await; from here on everything is done in one go.
            match self.events.recv().await {
                Ok(event) => note(&mut changes, event),
                Err(RecvError::Lagged(_)) => self.compare(&mut changes),
                // The catalog holds the sender and we hold the catalog.
                Err(RecvError::Closed) => std::future::pending().await,
            }
            self.drain(&mut changes);
            if let Some(update) = self.apply(changes) {
                return update;
            }
        }
    }

    fn drain(&mut self, changes: &mut BTreeMap<TopicName, bool>) {
        loop {
            match self.events.try_recv() {
                Ok(event) => note(changes, event),
                Err(TryRecvError::Lagged(_)) => self.compare(changes),
                Err(TryRecvError::Empty | TryRecvError::Closed) => return,
            }
        }
    }

    /// Some events were missed: the difference between what the client knows and what there is replaces all of them,
    /// the queued ones too. An event that comes twice, in the list and afterwards, changes nothing.
    fn compare(&mut self, changes: &mut BTreeMap<TopicName, bool>) {
        self.events = self.catalog.subscribe_topic_events();
        let now = self.list();
        changes.clear();
        changes.extend(now.difference(&self.listed).cloned().map(|name| (name, true)));
        changes.extend(self.listed.difference(&now).cloned().map(|name| (name, false)));
    }

    fn apply(&mut self, changes: BTreeMap<TopicName, bool>) -> Option<TopicListUpdate> {
        let mut new = Vec::new();
        let mut deleted = Vec::new();
        for (topic, exists) in changes {
            if !self.concerns(&topic) {
                continue;
            }
            if exists && self.listed.insert(topic.clone()) {
                new.push(topic.to_string());
            } else if !exists && self.listed.remove(&topic) {
                deleted.push(topic.to_string());
            }
        }
        if new.is_empty() && deleted.is_empty() {
            return None;
        }
        Some(TopicListUpdate {
            new,
            deleted,
            hash: self.hash(),
        })
    }

    fn concerns(&self, topic: &TopicName) -> bool {
        topic.domain() == Domain::Persistent
            && topic.namespace() == &self.namespace
            && !topic.is_system()
            && self.pattern.matches(topic)
    }

    fn list(&self) -> BTreeSet<TopicName> {
        let topics = self.catalog.topics(&self.namespace, ListMode::Persistent, false);
        let topics = topics.into_iter();
        topics.filter(|topic| self.pattern.matches(topic)).collect()
    }
}

/// Keeps the last word on each name.
fn note(changes: &mut BTreeMap<TopicName, bool>, event: TopicEvent) {
    match event {
        TopicEvent::Created(name) => changes.insert(name, true),
        TopicEvent::Deleted(name) => changes.insert(name, false),
    };
}

impl TopicLists<'_> {
    /// Starts watching the topics of `namespace` that fit `pattern`; its list is as of now.
    ///
    /// # Errors
    /// [`PatternError`]: NotAllowedError on the wire, except `Invalid`, which is InvalidTopicName.
    pub fn watch(self, namespace: &NamespaceName, pattern: &str) -> Result<TopicListWatcher, PatternError> {
        let mut watcher = TopicListWatcher {
            catalog: self.catalog.clone(),
            namespace: namespace.clone(),
            pattern: self.pattern(pattern)?,
            listed: BTreeSet::new(),
            events: self.catalog.subscribe_topic_events(),
        };
        // After subscribing, so that nothing falls between.
        watcher.listed = watcher.list();
        Ok(watcher)
    }
}
