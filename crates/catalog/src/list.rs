//! Topic lists: which names there are, narrowed by mode and pattern, and the fingerprint that saves sending them.

use std::ops::Bound;

use pharos_types::hash::topics_hash;
use pharos_types::{NamespaceName, TopicName};

use super::Catalog;
use super::clusters::Clusters;
use super::known::{Facts, Namespace};
use super::pattern::{PatternError, TopicPattern};

/// Names that are copied before others may change the facts.
const NAMES_PER_LOOK: usize = 2048;

/// Topics to list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ListMode {
    /// Persistent ones.
    #[default]
    Persistent,
    /// Non-persistent ones that are loaded.
    NonPersistent,
    /// Both.
    All,
}

/// The answer to a request for a namespace's topics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicListing {
    /// Full names, sorted; empty when nothing changed.
    pub topics: Vec<String>,
    /// True if the pattern was applied; if not, the client must apply it.
    pub filtered: bool,
    /// The fingerprint of the list.
    pub hash: String,
    /// False when the client's list has the same fingerprint.
    pub changed: bool,
}

impl Catalog {
    /// Topics of a namespace, partitions one by one, sorted; empty when there is no such namespace.
    ///
    /// The facts are held for a few thousand names at a time, so that a large namespace delays no change. A topic that is created or deleted
    /// meanwhile may be in the list or not.
    #[must_use]
    pub fn topics(&self, namespace: &NamespaceName, mode: ListMode, include_system: bool) -> Vec<TopicName> {
        let mut topics = Vec::new();
        if mode != ListMode::NonPersistent {
            self.names_into(&mut topics, namespace, include_system, |of, from| {
                let range = of.topics.range::<TopicName, _>((from, Bound::Unbounded));
                range
                    .map(|(topic, _)| topic)
                    .take(NAMES_PER_LOOK)
                    .cloned()
                    .collect()
            });
        }
        if mode != ListMode::Persistent {
            self.names_into(&mut topics, namespace, include_system, |of, from| {
                let range = of.loaded.range::<TopicName, _>((from, Bound::Unbounded));
                range.take(NAMES_PER_LOOK).cloned().collect()
            });
        }
        topics
    }

    /// Adds all names of one of a namespace's sets, of which `next` gives the next ones.
    fn names_into(
        &self,
        names: &mut Vec<TopicName>,
        of: &NamespaceName,
        include_system: bool,
        next: impl Fn(&Namespace, Bound<&TopicName>) -> Vec<TopicName>,
    ) {
        let mut last: Option<TopicName> = None;
        loop {
            let looked = {
                let state = self.inner.known.read();
                let Some(namespace) = state.namespaces.get(of) else {
                    return;
                };
                let from = last.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
                let looked = next(namespace, from);
                let wanted = looked.iter().filter(|topic| include_system || !topic.is_system());
                names.extend(wanted.filter(|topic| !namespace.is_deleting(topic)).cloned());
                looked
            };
            if looked.len() < NAMES_PER_LOOK {
                return;
            }
            last = looked.into_iter().last();
        }
    }
}

/// The lists of topics that clients ask for.
#[derive(Clone, Copy)]
pub struct TopicLists<'a> {
    pub(super) catalog: &'a Catalog,
}

impl TopicLists<'_> {
    /// Returns those of the next `count` persistent topics after `after`, by namespace and name, that `is_wanted`;
    /// and the last topic examined, which is `None` if there are no more.
    pub fn after(
        self,
        after: Option<&TopicName>,
        count: usize,
        is_wanted: impl Fn(&TopicName) -> bool,
    ) -> (Vec<TopicName>, Option<TopicName>) {
        walk(
            &self.catalog.inner.known.read(),
            after,
            count,
            |_| true,
            |_, topic| is_wanted(topic),
        )
    }

    /// The answer to GET_TOPICS_OF_NAMESPACE. A pattern that cannot be used is left to the client. Not for a shard, as
    /// [`pattern`](Self::pattern).
    ///
    /// `known_hash`: the fingerprint of the list that the client has.
    #[must_use]
    pub fn answer(
        self,
        namespace: &NamespaceName,
        mode: ListMode,
        pattern: Option<&str>,
        known_hash: Option<&str>,
    ) -> TopicListing {
        let pattern = pattern.and_then(|pattern| self.pattern(pattern).ok());
        let topics = self.catalog.topics(namespace, mode, false);
        let fits = |topic: &TopicName| pattern.as_ref().is_none_or(|pattern| pattern.matches(topic));
        let topics: Vec<String> = topics
            .into_iter()
            .filter(fits)
            .map(|topic| topic.to_string())
            .collect();
        let hash = topics_hash(&topics);
        let changed = known_hash != Some(hash.as_str());
        TopicListing {
            topics: if changed { topics } else { Vec::new() },
            filtered: pattern.is_some(),
            hash,
            changed,
        }
    }

    /// Refuses a pattern that needs no look to be refused. Costs nothing, unlike [`pattern`](Self::pattern).
    ///
    /// # Errors
    /// `Disabled`, `TooLong`.
    pub fn check_pattern(self, pattern: &str) -> Result<(), PatternError> {
        let options = self.catalog.options();
        if !options.evaluate_patterns {
            return Err(PatternError::Disabled);
        }
        let length = pattern.encode_utf16().count();
        if length > options.pattern_max_length {
            return Err(PatternError::TooLong {
                length,
                length_max: options.pattern_max_length,
            });
        }
        Ok(())
    }

    /// Compiles a client's pattern if the options let the broker evaluate it, unless it was compiled lately. Not for a shard: it may take a
    /// millisecond, and matching may take as long for each topic.
    ///
    /// # Errors
    /// [`PatternError`].
    pub fn pattern(self, pattern: &str) -> Result<TopicPattern, PatternError> {
        self.check_pattern(pattern)?;
        let bytes_max = self.catalog.options().pattern_max_compiled_bytes;
        self.catalog.inner.patterns.get(pattern, bytes_max)
    }

    /// Patterns that were compiled since the start; those in use are compiled once.
    #[must_use]
    pub fn compiled_patterns(self) -> u64 {
        self.catalog.inner.patterns.compiled_count()
    }
}

impl Clusters<'_> {
    /// As [`TopicLists::after`], of those alone that are said to be on other clusters, and passing others fast.
    #[must_use]
    pub fn replicated_after(
        self,
        after: Option<&TopicName>,
        count: usize,
        is_wanted: impl Fn(&TopicName) -> bool,
    ) -> (Vec<TopicName>, Option<TopicName>) {
        let is_on_others = |namespace: &Namespace| namespace.policies.value.replication_clusters().len() > 1;
        let of_namespace = |namespace: &Namespace| {
            let mut topics = namespace.topic_policies.values();
            is_on_others(namespace) || topics.any(|record| record.value.replication_clusters().len() > 1)
        };
        let of_topic = |namespace: &Namespace, topic: &TopicName| {
            let own = namespace.topic_policies.get(&topic.base());
            is_wanted(topic)
                && (own.is_some_and(|record| record.value.replication_clusters().len() > 1)
                    || is_on_others(namespace))
        };
        walk(
            &self.catalog.inner.known.read(),
            after,
            count,
            of_namespace,
            of_topic,
        )
    }
}

/// The next `count` topics after `after` of the namespaces that are wanted, as [`TopicLists::after`] has it.
fn walk(
    state: &Facts,
    after: Option<&TopicName>,
    count: usize,
    of_namespace: impl Fn(&Namespace) -> bool,
    is_wanted: impl Fn(&Namespace, &TopicName) -> bool,
) -> (Vec<TopicName>, Option<TopicName>) {
    let from = after.map_or(Bound::Unbounded, |after| Bound::Included(after.namespace()));
    let of_namespaces = state
        .namespaces
        .range::<NamespaceName, _>((from, Bound::Unbounded));
    let mut looked = of_namespaces
        .filter(|(_, namespace)| of_namespace(namespace))
        .flat_map(|(name, namespace)| {
            let after = after.filter(|after| after.namespace() == name);
            let from = after.map_or(Bound::Unbounded, Bound::Excluded);
            let topics = namespace.topics.range::<TopicName, _>((from, Bound::Unbounded));
            topics.map(move |(topic, _)| (namespace, topic))
        })
        .take(count)
        .peekable();
    let (mut wanted, mut last) = (Vec::new(), None);
    while let Some((namespace, topic)) = looked.next() {
        wanted.extend(is_wanted(namespace, topic).then(|| topic.clone()));
        last = looked.peek().is_none().then(|| topic.clone());
    }
    (wanted, last)
}
