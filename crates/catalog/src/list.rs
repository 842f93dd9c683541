//! Topic lists: which names there are, narrowed by mode and pattern, and the fingerprint that saves sending them.

use std::ops::Bound;

use pharos_types::hash::topics_hash;
use pharos_types::{Domain, NamespaceName, TopicName};
use regex::{Regex, RegexBuilder};

use super::Catalog;
use super::clusters::Clusters;
use super::known::{Facts, Namespace};

/// The largest compiled pattern, in bytes. A short pattern can still describe a huge automaton (`(.{99}){99}`).
const PATTERN_BYTES_MAX: usize = 1 << 20;

/// Which topics a list has.
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

/// Why a pattern cannot be used here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// Patterns are switched off. Clients then filter themselves.
    #[error("topic patterns are not evaluated by this broker")]
    Disabled,
    /// Too long to be evaluated for every client.
    #[error("topic pattern of {length} characters is longer than {length_max}")]
    TooLong {
        /// Its length in UTF-16 code units.
        length: usize,
        /// `subscriptionPatternMaxLength`.
        length_max: usize,
    },
    /// No regular expression, or one with look-around, back references or an enormous size.
    #[error("topic pattern is not a supported regular expression")]
    Invalid,
}

/// A regular expression on whole names of the form `tenant/namespace/topic`: no scheme, no partition suffix.
#[derive(Clone, Debug)]
pub struct TopicPattern {
    regex: Regex,
}

impl TopicPattern {
    /// Compiles a pattern as clients send it; a scheme in front is dropped.
    ///
    /// # Errors
    /// `Invalid`.
    pub fn new(pattern: &str) -> Result<Self, PatternError> {
        let bare = pattern.split_once("://").map_or(pattern, |(_, bare)| bare);
        let regex = RegexBuilder::new(&format!("^(?:{bare})$"))
            .size_limit(PATTERN_BYTES_MAX)
            .dfa_size_limit(PATTERN_BYTES_MAX)
            .build()
            .map_err(|_| PatternError::Invalid)?;
        Ok(Self { regex })
    }

    /// Whether a topic, or the partitioned topic it is a partition of, fits.
    #[must_use]
    pub fn matches(&self, topic: &TopicName) -> bool {
        let base = topic.base();
        self.regex
            .is_match(&format!("{}/{}", base.namespace(), base.local()))
    }
}

/// The answer to a request for a namespace's topics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicListing {
    /// Full names, sorted; empty when nothing changed.
    pub topics: Vec<String>,
    /// Whether the pattern was applied; if not, the client must.
    pub filtered: bool,
    /// The fingerprint of the list.
    pub hash: String,
    /// False when the client's list has the same fingerprint.
    pub changed: bool,
}

impl Catalog {
    /// Topics of a namespace, partitions one by one, sorted; empty when there is no such namespace.
    #[must_use]
    pub fn topics(&self, namespace: &NamespaceName, mode: ListMode, include_system: bool) -> Vec<TopicName> {
        let state = self.inner.known.read();
        let Some(namespace) = state.namespaces.get(namespace) else {
            return Vec::new();
        };
        let persistent = namespace.topics.keys();
        let loaded = namespace.loaded.iter();
        persistent
            .chain(loaded)
            .filter(|topic| match mode {
                ListMode::Persistent => topic.domain() == Domain::Persistent,
                ListMode::NonPersistent => topic.domain() == Domain::NonPersistent,
                ListMode::All => true,
            })
            .filter(|topic| include_system || !topic.is_system())
            .filter(|topic| !namespace.is_deleting(topic))
            .cloned()
            .collect()
    }
}

/// The lists of topics that clients ask for.
#[derive(Clone, Copy)]
pub struct TopicLists<'a> {
    pub(super) catalog: &'a Catalog,
}

impl TopicLists<'_> {
    /// Of the next `count` persistent topics after `after`, by namespace and name, those that `is_wanted`; and the last one
    /// looked at, which is `None` when there are no more.
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

    /// The answer to GET_TOPICS_OF_NAMESPACE. A pattern that cannot be used is left to the client.
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

    /// Compiles a client's pattern if the options let the broker evaluate it.
    ///
    /// # Errors
    /// [`PatternError`].
    pub fn pattern(self, pattern: &str) -> Result<TopicPattern, PatternError> {
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
        TopicPattern::new(pattern)
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
