//! Deleting a topic: marked durably first, forgotten last, and finished by the next start that finds the mark.
//!
//! ```text
//!   in use ──► asked ──► marked ──► (data, schemas, policies go) ──► record gone
//!                │          │
//!                │          └ a crash, an error: found by `Deletions::unfinished`, the deletion goes on
//!                ├ the mark was refused and taken back ──► in use
//!                └ neither is certain ──► in doubt: closed to every client until taking it back succeeds
//! ```
//!
//! From "asked" on the name is neither listed nor loaded nor created; a client that asks for it is told to try again. So
//! nothing can be acknowledged that the mark, once durable, condemns.
//!
//! A partitioned topic has one mark, in its metadata, that holds for its partitions.

use pharos_metadata::Expect;
use pharos_types::{Domain, TopicName};

use super::known::{KnownFacts, Namespace};
use super::store::StoreError;
use super::topics::TopicError;
use super::{Catalog, keys};

/// State of a deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deleting {
    /// The mark is being written.
    Asked,
    /// Unknown if the mark is stored.
    InDoubt,
    /// The mark is stored.
    Marked,
}

/// A deletion that is to be gone on with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unfinished {
    /// Deletion of a topic: its data, then its record.
    Topic(TopicName),
    /// Deletion of a partitioned topic: its partitions, then its metadata.
    Partitioned(TopicName),
    /// Unknown if the deletion was begun: see [`Deletions::settle`].
    InDoubt(TopicName),
}

impl Namespace {
    /// True if a topic, a partitioned topic, or the partitioned topic of a partition is being deleted.
    pub(super) fn is_deleting(&self, name: &TopicName) -> bool {
        // Most namespaces have none.
        !self.deletions.is_empty()
            && (self.deletions.contains_key(name)
                || (name.partition().is_some() && self.deletions.contains_key(&name.base())))
    }

    /// True if the deletion is certain.
    fn is_marked(&self, name: &TopicName) -> bool {
        let marked = |name: &TopicName| self.deletions.get(name) == Some(&Deleting::Marked);
        marked(name) || (name.partition().is_some() && marked(&name.base()))
    }
}

/// The deletions of topics.
#[derive(Clone, Copy)]
pub struct Deletions<'a> {
    pub(super) catalog: &'a Catalog,
}

impl Deletions<'_> {
    /// True if a topic, or the partitioned topic it belongs to, is being deleted.
    #[must_use]
    pub fn has(self, name: &TopicName) -> bool {
        let state = self.catalog.inner.known.read();
        let namespace = state.namespaces.get(name.namespace());
        namespace.is_some_and(|namespace| namespace.is_deleting(name))
    }

    /// First step of deleting a topic: from here on it can be neither loaded nor made until it is gone. Repeatable.
    ///
    /// # Errors
    /// `TopicNotFound`; `NotAllowed` for a partitioned topic; `Store`, after which the topic is as it was, or
    /// [in doubt](Self::has).
    ///
    /// Cancel safety: it is in doubt then, and settled by the next round through [`unfinished`](Self::unfinished).
    pub async fn begin(self, name: &TopicName) -> Result<(), TopicError> {
        let key = keys::topic(name);
        let _guard = self.catalog.inner.facts.names.take(key.clone()).await;
        let known = {
            let mut state = self.catalog.inner.known.write();
            let namespace = state.namespace_mut(name)?;
            if namespace.partitioned.contains_key(name) {
                return Err(TopicError::NotAllowed(format!("{name} is a partitioned topic")));
            }
            if !namespace.has_record(name) {
                return Err(TopicError::TopicNotFound(name.clone()));
            }
            if namespace.is_marked(name) {
                return Ok(());
            }
            namespace.deletions.insert(name.clone(), Deleting::Asked);
            namespace.topics.get(name).cloned()
        };
        let asked = Asked {
            known: &self.catalog.inner.known,
            name,
        };
        // A topic that is not stored needs no mark: after a crash it is gone by itself.
        if let Some(known) = known {
            let missing = || TopicError::TopicNotFound(name.clone());
            let marked = self.catalog.inner.facts.update(&key, known, missing, |record| {
                let mut record = record.clone();
                record.deleting = true;
                Ok::<_, TopicError>(record)
            });
            match marked.await {
                Ok(record) => {
                    if let Some(known) = self.catalog.inner.known.write().topic_mut(name) {
                        *known = record;
                    }
                }
                Err(error) => {
                    drop(asked);
                    // What cannot be taken back now stays in doubt.
                    let _ = self.take_mark_back(name).await;
                    return Err(error);
                }
            }
        }
        self.catalog.inner.known.marked(name);
        std::mem::forget(asked);
        Ok(())
    }

    /// Puts an end to the doubt whether a deletion was begun: it was not.
    ///
    /// # Errors
    /// When the store cannot say so durably; the doubt stays.
    pub async fn settle(self, name: &TopicName) -> Result<(), StoreError> {
        let _guard = self.catalog.inner.facts.names.take(keys::topic(name)).await;
        let in_doubt = {
            let state = self.catalog.inner.known.read();
            let namespace = state.namespaces.get(name.namespace());
            namespace.and_then(|namespace| namespace.deletions.get(name)) == Some(&Deleting::InDoubt)
        };
        match in_doubt {
            true => self.take_mark_back(name).await,
            false => Ok(()),
        }
    }

    /// Writes the record without the mark, so that it is certain. The name is held by the caller.
    async fn take_mark_back(self, name: &TopicName) -> Result<(), StoreError> {
        if self.catalog.partitioned().get(name).is_some() {
            let key = keys::partitioned(name);
            if let Some(found) = self
                .catalog
                .inner
                .facts
                .get::<pharos_admin_api::PartitionedTopicMetadata>(&key)
                .await?
            {
                let mut whole = (*found.value).clone();
                whole.deleted = false;
                let record = self
                    .catalog
                    .inner
                    .facts
                    .put(&key, whole, Expect::Version(found.version))
                    .await?;
                self.catalog.inner.known.put_partitioned(name, record);
            }
        } else if name.domain() == Domain::Persistent {
            let key = keys::topic(name);
            if let Some(found) = self.catalog.inner.facts.get::<super::TopicRecord>(&key).await? {
                let mut record = (*found.value).clone();
                record.deleting = false;
                let record = self
                    .catalog
                    .inner
                    .facts
                    .put(&key, record, Expect::Version(found.version))
                    .await?;
                if let Some(known) = self.catalog.inner.known.write().topic_mut(name) {
                    *known = record;
                }
            }
        }
        self.catalog.inner.known.end_deletion(name);
        Ok(())
    }

    /// Takes the mark of a partitioned topic back after it was refused.
    pub(super) async fn unask(self, name: &TopicName, asked: Option<Asked<'_>>) {
        drop(asked);
        // What cannot be taken back now stays in doubt.
        let _ = self.take_mark_back(name).await;
    }

    /// Deletions that were begun, by this process or an earlier one, and are not at their end. Some may be under way.
    #[must_use]
    pub fn unfinished(self) -> Vec<Unfinished> {
        let state = self.catalog.inner.known.read();
        let mut unfinished = Vec::new();
        for namespace in state.namespaces.values() {
            for (name, deleting) in &namespace.deletions {
                unfinished.push(match deleting {
                    Deleting::Asked => continue,
                    Deleting::InDoubt => Unfinished::InDoubt(name.clone()),
                    Deleting::Marked if namespace.partitioned.contains_key(name) => {
                        Unfinished::Partitioned(name.clone())
                    }
                    Deleting::Marked => Unfinished::Topic(name.clone()),
                });
            }
        }
        unfinished
    }
}

/// The mark of a name is being written; dropped, it is in doubt.
pub(super) struct Asked<'a> {
    pub(super) known: &'a KnownFacts,
    pub(super) name: &'a TopicName,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        if let Some(namespace) = self.known.write().namespaces.get_mut(self.name.namespace()) {
            namespace.deletions.insert(self.name.clone(), Deleting::InDoubt);
        }
    }
}
