//! Following the topic list of a namespace: what came and what went since the last word.

use std::collections::{BTreeMap, BTreeSet};

use pharos_types::hash::topics_hash;
use pharos_types::{Domain, NamespaceName, TopicName};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};

use super::{Catalog, ListMode, PatternError, TopicEvent, TopicLists, TopicPattern};

/// Changes for WATCH_TOPIC_UPDATE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicListUpdate {
    /// Full names that came, sorted.
    pub new: Vec<String>,
    /// Full names that went, sorted.
    pub deleted: Vec<String>,
    /// The fingerprint of the list as it is now.
    pub hash: String,
}

/// Events since the last word to the client.
#[derive(Debug, Default)]
struct Heard {
    /// The last word on each name: whether it exists.
    changes: BTreeMap<TopicName, bool>,
    /// Some were missed.
    is_behind: bool,
}

/// Client's watch on the persistent topics of a namespace that match a pattern. System topics are never among them.
///
/// Changes that arrive together are reported together, so a burst of creations costs a few updates.
#[derive(Debug)]
pub struct TopicListWatcher {
    catalog: Catalog,
    namespace: NamespaceName,
    /// As the client sent it: what it compiles to is kept for all who ask for the same.
    pattern: Box<str>,
    /// Topics already reported to the client.
    listed: BTreeSet<TopicName>,
    events: Receiver<TopicEvent>,
    /// Changes that were received and not examined yet.
    heard: Heard,
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

    /// Waits until something changes that may concern it: [`update`](Self::update) says what.
    ///
    /// Costs a shard next to nothing.
    ///
    /// Cancel safety: nothing is lost when the future is dropped.
    pub async fn changed(&mut self) {
        while !self.heard.is_some() {
            match self.events.recv().await {
                Ok(event) => self.note(event),
                Err(RecvError::Lagged(_)) => self.heard.is_behind = true,
                // The catalog holds the sender and we hold the catalog.
                Err(RecvError::Closed) => std::future::pending().await,
            }
        }
    }

    /// What changed since the last word; `None` if nothing that concerns it did. Not for a shard: it matches names, and goes through the whole
    /// list.
    pub fn update(&mut self) -> Option<TopicListUpdate> {
        loop {
            match self.events.try_recv() {
                Ok(event) => self.note(event),
                Err(TryRecvError::Lagged(_)) => self.heard.is_behind = true,
                Err(TryRecvError::Empty | TryRecvError::Closed) => break,
            }
        }
        // It was compiled when the watch began, and compiles again.
        let pattern = self.catalog.topic_lists().pattern(&self.pattern).ok()?;
        if std::mem::take(&mut self.heard.is_behind) {
            self.compare(&pattern);
        }
        let changes = std::mem::take(&mut self.heard.changes);
        self.apply(&pattern, changes)
    }

    /// Keeps the last word on each name that may concern it.
    fn note(&mut self, event: TopicEvent) {
        let (topic, exists) = match event {
            TopicEvent::Created(name) => (name, true),
            TopicEvent::Deleted(name) => (name, false),
        };
        if topic.domain() == Domain::Persistent && topic.namespace() == &self.namespace && !topic.is_system()
        {
            self.heard.changes.insert(topic, exists);
        }
    }

    /// Some events were missed: the difference between what the client knows and what there is replaces all of them,
    /// the queued ones too. An event that comes twice, in the list and afterwards, changes nothing.
    fn compare(&mut self, pattern: &TopicPattern) {
        self.events = self.catalog.subscribe_topic_events();
        let now = self.list(pattern);
        let changes = &mut self.heard.changes;
        changes.clear();
        changes.extend(now.difference(&self.listed).cloned().map(|name| (name, true)));
        changes.extend(self.listed.difference(&now).cloned().map(|name| (name, false)));
    }

    fn apply(
        &mut self,
        pattern: &TopicPattern,
        changes: BTreeMap<TopicName, bool>,
    ) -> Option<TopicListUpdate> {
        let mut new = Vec::new();
        let mut deleted = Vec::new();
        for (topic, exists) in changes {
            if exists && !self.listed.contains(&topic) && pattern.matches(&topic) {
                new.push(topic.to_string());
                self.listed.insert(topic);
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

    fn list(&self, pattern: &TopicPattern) -> BTreeSet<TopicName> {
        let topics = self.catalog.topics(&self.namespace, ListMode::Persistent, false);
        let topics = topics.into_iter();
        topics.filter(|topic| pattern.matches(topic)).collect()
    }
}

impl Heard {
    fn is_some(&self) -> bool {
        self.is_behind || !self.changes.is_empty()
    }
}

impl TopicLists<'_> {
    /// Starts watching the topics of `namespace` that fit `pattern`; its list is as of now. Not for a shard, as
    /// [`pattern`](Self::pattern).
    ///
    /// # Errors
    /// [`PatternError`]: NotAllowedError on the wire, except `Invalid`, which is InvalidTopicName.
    pub fn watch(self, namespace: &NamespaceName, pattern: &str) -> Result<TopicListWatcher, PatternError> {
        let compiled = self.pattern(pattern)?;
        let mut watcher = TopicListWatcher {
            catalog: self.catalog.clone(),
            namespace: namespace.clone(),
            pattern: pattern.into(),
            listed: BTreeSet::new(),
            events: self.catalog.subscribe_topic_events(),
            heard: Heard::default(),
        };
        // After subscribing, so that nothing falls between.
        watcher.listed = watcher.list(&compiled);
        Ok(watcher)
    }
}
