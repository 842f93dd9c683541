//! Translation of changes in Pulsar's tree into changes of the catalog.
//!
//! A version that the catalog cannot know (0) makes it read the fact again.

use std::sync::Arc;

use pharos_metadata::{Event, Version};

use crate::keys;
use crate::schema::SchemaVersion;

/// A change by the catalog's names; `None` when it is about nothing that the catalog has.
pub(super) fn translate(event: Event) -> Option<Event> {
    let (key, version) = match &event {
        Event::Put { key, version } => (Arc::clone(key), Some(*version)),
        Event::Deleted { key } => (Arc::clone(key), None),
        Event::Lagged => return Some(event),
    };
    let again = |key: String, version: Version| Event::Put {
        key: key.into(),
        version,
    };
    if let Some(key) = keys::moved(&key, keys::PULSAR_LOCAL_POLICIES, keys::POLICIES) {
        return Some(again(key, version.unwrap_or(Version(0))));
    }
    if let Some(topic) = keys::moved(&key, keys::PULSAR_TOPICS, keys::TOPICS) {
        // A cursor, or a node above topics.
        keys::topic_of(keys::TOPICS, &topic)?;
        return Some(match version {
            Some(_) => again(topic, super::topics::UNMARKED),
            None => Event::Deleted { key: topic.into() },
        });
    }
    if let Some(topic) = keys::moved(&key, keys::PULSAR_MARKS, keys::TOPICS) {
        return Some(again(topic, version.unwrap_or(super::topics::UNMARKED)));
    }
    if let Some(topic) = keys::moved(&key, keys::PULSAR_TOPIC_POLICIES, keys::TOPIC_POLICIES) {
        // The bell's own version says nothing of the policies'.
        return Some(again(topic, Version(1)));
    }
    if let Some(id) = key.strip_prefix(keys::PULSAR_SCHEMAS) {
        // The history is read as a whole, whichever version it is about.
        let first = keys::schema(id, SchemaVersion(0));
        return Some(again(first, version.unwrap_or(Version(1))));
    }
    let elsewhere = [keys::TOPICS, keys::TOPIC_POLICIES, keys::SCHEMAS];
    let is_same = !elsewhere.iter().any(|prefix| key.starts_with(prefix));
    is_same.then_some(event)
}
