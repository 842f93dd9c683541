//! The schemas that topics have: adding under the rules, looking up, deleting.
//!
//! All partitions of a topic share one history, by schema id. Writes of one history go one after the other.
//!
//! A client that names NONE brings a schema like any other: it gets a version, and AVRO may not follow it. BYTES has no
//! number on the wire and is stored as NONE. Who brings nothing at all brings no schema. All as in Pulsar.

use std::sync::Arc;

use bytes::Bytes;
use pharos_metadata::{Expect, VALUE_BYTES_MAX, WriteError};
use pharos_types::TopicName;

use super::compat::{Incompatible, SchemaCompatibilityStrategy};
use super::history::{History, SchemaEntry};
use super::types::{SchemaInfo, SchemaType, SchemaVersion};
use super::validate::{InvalidSchema, check_size};
use crate::shadows::Shadows;
use crate::store::{StoreError, TRIES};
use crate::{Catalog, keys};

/// Rejection of a schema.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SchemaError {
    /// The definition does not fit its type (422 in REST).
    #[error(transparent)]
    Invalid(#[from] InvalidSchema),
    /// The schema is incompatible with the existing ones (409 in REST).
    #[error(transparent)]
    Incompatible(#[from] Incompatible),
    /// Its topic is being deleted; try again.
    #[error("Topic {0} is being deleted")]
    Deleting(TopicName),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Result of adding a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddedSchema {
    /// Its version.
    pub version: SchemaVersion,
    /// True if it was stored now; false if the same schema existed before.
    pub is_new: bool,
}

impl Catalog {
    /// The schemas of topics.
    #[must_use]
    pub fn schemas(&self) -> Schemas<'_> {
        Schemas { catalog: self }
    }
}

/// The schemas of topics.
#[derive(Clone, Copy)]
pub struct Schemas<'a> {
    pub(crate) catalog: &'a Catalog,
}

impl Schemas<'_> {
    /// The schema id of a topic and all its partitions, which is also `Schema.name` on the wire. A shadow has its source's schema.
    #[must_use]
    pub fn id(self, topic: &TopicName) -> String {
        match Shadows::of(self.catalog).source_of(topic) {
            Some(source) => keys::schema_id(&source),
            None => keys::schema_id(topic),
        }
    }

    /// All versions of a topic's schema, as of now. Cheap.
    #[must_use]
    pub fn history(self, topic: &TopicName) -> Arc<History> {
        self.catalog.inner.schemas.of(&self.id(topic))
    }

    /// The schema of a topic; `None` when it has none.
    #[must_use]
    pub fn latest(self, topic: &TopicName) -> Option<Arc<SchemaEntry>> {
        self.history(topic).latest().map(Arc::clone)
    }

    /// Returns a version of it; none from before a deletion.
    #[must_use]
    pub fn get(self, topic: &TopicName, version: SchemaVersion) -> Option<Arc<SchemaEntry>> {
        self.history(topic).get(version).map(Arc::clone)
    }

    /// The version that says the same as `schema`, if there is one.
    ///
    /// # Errors
    /// `Invalid`.
    pub async fn find(
        self,
        topic: &TopicName,
        schema: &SchemaInfo,
    ) -> Result<Option<SchemaVersion>, SchemaError> {
        self.look_up(self.history(topic), schema).await
    }

    /// Compatibility strategy of the topic's schema: the topic's, else the namespace's, else the broker's. System
    /// topics accept any schema.
    #[must_use]
    pub fn strategy(self, topic: &TopicName) -> SchemaCompatibilityStrategy {
        self.catalog.levels(topic).schema_compatibility_strategy()
    }

    /// Adds a schema if it may follow the ones that are there, or finds the version that says the same. This is what
    /// REST does, and GET_OR_CREATE_SCHEMA.
    ///
    /// `user`: the role that brings it, empty without authentication.
    ///
    /// # Errors
    /// [`SchemaError`].
    ///
    /// Cancel safety: it may or may not have been stored then; asking again is fine.
    pub async fn add(
        self,
        topic: &TopicName,
        schema: SchemaInfo,
        user: &str,
    ) -> Result<AddedSchema, SchemaError> {
        let strategy = self.strategy(topic);
        self.add_under(topic, schema, user, strategy).await
    }

    /// As [`Schemas::add`], for a producer that brings `schema`; none is fine unless schemas are enforced and the
    /// topic has one. Where producers may not bring new schemas, it must be there already.
    ///
    /// Answers the version to put into PRODUCER_SUCCESS; `None` is "no schema", an empty byte string there.
    ///
    /// # Errors
    /// [`SchemaError`]; all but `Store` are IncompatibleSchema on the wire.
    pub async fn add_for_producer(
        self,
        topic: &TopicName,
        schema: Option<SchemaInfo>,
        user: &str,
    ) -> Result<Option<SchemaVersion>, SchemaError> {
        let Some(schema) = schema.map(SchemaInfo::as_stored) else {
            let enforced = self.catalog.levels(topic).schema_validation_enforced();
            return match enforced && self.latest(topic).is_some() {
                true => Err(refusal(
                    "Producers cannot connect or send message without a schema to topics with a schema",
                )),
                false => Ok(None),
            };
        };
        let may_add = self.catalog.levels(topic).allow_auto_update_schema();
        if may_add || topic.is_system() {
            let added = self.add(topic, schema, user).await?;
            return Ok(Some(added.version));
        }
        match self.find(topic, &schema).await? {
            Some(version) => Ok(Some(version)),
            None => Err(refusal("Schema not found and schema auto updating is disabled.")),
        }
    }

    /// Checks the schema that a consumer brings; on a topic that is not used yet it becomes the topic's.
    ///
    /// `is_idle`: the topic has no data, no producers and no consumers with a schema. AUTO_CONSUME is not checked.
    ///
    /// # Errors
    /// [`SchemaError`]; all but `Store` are IncompatibleSchema on the wire. Also when the topic is in use and has no
    /// schema.
    pub async fn check_for_consumer(
        self,
        topic: &TopicName,
        schema: SchemaInfo,
        user: &str,
        is_idle: bool,
    ) -> Result<(), SchemaError> {
        if schema.kind == SchemaType::AutoConsume {
            return Ok(());
        }
        let schema = schema.as_stored();
        let history = self.history(topic);
        if history.latest().is_none() && is_idle {
            self.add(topic, schema, user).await?;
            return Ok(());
        }
        if history.latest().is_none() {
            return Err(refusal("Topic does not have a schema to check"));
        }
        let strategy = self.strategy(topic).for_consumer();
        self.check_follows(history, &schema, strategy).await
    }

    /// Checks if `schema` would be accepted now, and returns the strategy applied. For REST.
    ///
    /// # Errors
    /// `Invalid`, `Incompatible`.
    pub async fn test(
        self,
        topic: &TopicName,
        schema: &SchemaInfo,
    ) -> Result<SchemaCompatibilityStrategy, SchemaError> {
        let strategy = self.strategy(topic);
        self.check_follows(self.history(topic), schema, strategy).await?;
        Ok(strategy)
    }

    /// Deletes the schema of a topic, of a shadow not its source's: a tombstone follows the versions so far, and they can no longer be fetched. Answers
    /// the tombstone's version, or `None` when there is nothing to delete.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn delete(self, topic: &TopicName, user: &str) -> Result<Option<SchemaVersion>, StoreError> {
        let id = keys::schema_id(topic);
        let _guard = self.catalog.inner.facts.names.take(keys::schemas(&id)).await;
        let history = self.catalog.inner.schemas.of(&id);
        if history.latest().is_none() {
            return Ok(None);
        }
        let nothing = SchemaInfo::new(SchemaType::None, "");
        let entry = entry_of(&history, nothing, user, true);
        let key = keys::schema(&id, entry.version);
        let bytes = entry.encode(&key)?;
        Ok(Some(self.append(&id, &key, entry, bytes).await?))
    }

    /// Forgets every version of a topic's schema, because the topic goes or an operator forces it.
    ///
    /// # Errors
    /// [`StoreError`]; some versions may be gone, calling again finishes.
    pub async fn delete_all(self, topic: &TopicName) -> Result<(), StoreError> {
        let id = keys::schema_id(topic);
        let _guard = self.catalog.inner.facts.names.take(keys::schemas(&id)).await;
        // Newest first, so that a crash in between leaves a history without holes.
        let own = self.catalog.inner.schemas.of(&id);
        let versions: Vec<SchemaVersion> = own.versions().collect();
        for version in versions.into_iter().rev() {
            self.catalog
                .inner
                .facts
                .delete(&keys::schema(&id, version))
                .await?;
        }
        self.catalog.inner.schemas.remove(&id);
        Ok(())
    }

    async fn add_under(
        self,
        topic: &TopicName,
        schema: SchemaInfo,
        user: &str,
        strategy: SchemaCompatibilityStrategy,
    ) -> Result<AddedSchema, SchemaError> {
        let schema = schema.as_stored();
        // Most producers bring what is there; they need no turn.
        let same = |version| AddedSchema {
            version,
            is_new: false,
        };
        let before = self.history(topic);
        if let Some(version) = self.look_up(Arc::clone(&before), &schema).await? {
            return Ok(same(version));
        }
        let id = self.id(topic);
        let _guard = self.catalog.inner.facts.names.take(keys::schemas(&id)).await;
        if self.catalog.deletions().has(topic) {
            // It would be taken away with the topic, or be left to a later one of the name.
            return Err(SchemaError::Deleting(topic.clone()));
        }
        for _ in 1..TRIES {
            match self
                .add_next(topic, &id, Some(&before), &schema, user, strategy)
                .await
            {
                // Another broker was faster; what it wrote has joined the history.
                Err(SchemaError::Store(StoreError::Write(WriteError::Conflict { .. }))) => {}
                outcome => return outcome,
            }
        }
        self.add_next(topic, &id, None, &schema, user, strategy).await
    }

    /// Adds a schema as the next version, unless the history has it. It was looked for in `looked_at`. The history is held by the
    /// caller.
    async fn add_next(
        self,
        topic: &TopicName,
        id: &str,
        looked_at: Option<&Arc<History>>,
        schema: &SchemaInfo,
        user: &str,
        strategy: SchemaCompatibilityStrategy,
    ) -> Result<AddedSchema, SchemaError> {
        let history = self.history(topic);
        if !looked_at.is_some_and(|before| Arc::ptr_eq(before, &history))
            && let Some(version) = self.look_up(Arc::clone(&history), schema).await?
        {
            return Ok(AddedSchema {
                version,
                is_new: false,
            });
        }
        self.check_follows(Arc::clone(&history), schema, strategy).await?;
        let entry = entry_of(&history, schema.clone(), user, false);
        let key = keys::schema(id, entry.version);
        let bytes = entry.encode(&key)?;
        // Properties may grow in the writing, by escapes.
        check_size(entry.schema.kind, bytes.len(), VALUE_BYTES_MAX)?;
        let version = self.append(id, &key, entry, bytes).await?;
        Ok(AddedSchema {
            version,
            is_new: true,
        })
    }

    /// Stores the next version (`bytes`: its value) and puts it into the copy. The history is held by the caller.
    async fn append(
        self,
        id: &str,
        key: &str,
        entry: SchemaEntry,
        bytes: Bytes,
    ) -> Result<SchemaVersion, StoreError> {
        let version = entry.version;
        if let Err(error) = self
            .catalog
            .inner
            .facts
            .store
            .put(key, bytes, Expect::Absent)
            .await
        {
            if matches!(error, WriteError::Conflict { .. }) {
                self.adopt(id, version, key).await?;
            }
            return Err(error.into());
        }
        self.catalog.inner.schemas.push(id, entry);
        Ok(version)
    }

    /// A version was in the store although not in the copy: its writer went away before it was told. It joins the
    /// history, and the caller may try again.
    async fn adopt(self, id: &str, version: SchemaVersion, key: &str) -> Result<(), StoreError> {
        if let Some(found) = self.catalog.inner.facts.store.get(key).await? {
            self.catalog
                .inner
                .schemas
                .push(id, SchemaEntry::decode(key, version, &found.value)?);
        }
        Ok(())
    }
}

/// The next version of a history, stamped now.
fn entry_of(history: &History, schema: SchemaInfo, user: &str, deleted: bool) -> SchemaEntry {
    SchemaEntry {
        version: history.next_version(),
        schema,
        timestamp_ms: pharos_runtime::clock::wall_ms(),
        user: user.to_owned(),
        deleted,
    }
}

pub(super) fn refusal(reason: &str) -> SchemaError {
    SchemaError::Incompatible(Incompatible {
        reason: reason.to_owned(),
    })
}
