//! Settings that were changed while brokers run: they hold for all brokers of a metadata store, in place of what each was started with,
//! until they are taken back.
//!
//! They stand under one key, by the names that administrators use, where Pulsar's brokers have theirs. What a name and a value mean the
//! broker's program says ([`ChangeableSettings`]); the catalog has what follows for policies ([`RuntimeSettings::policies`]).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::known::{PolicyEvent, Record};
use super::policy::BrokerPolicies;
use super::store::{Created, StoreError};
use super::{Catalog, CatalogOptions, keys};

/// Values by name, as they were given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ChangedSettings(pub BTreeMap<String, String>);

/// Knows the settings that can be changed while a broker runs.
pub trait ChangeableSettings: fmt::Debug + Send + Sync {
    /// The names by which they can be changed.
    fn names(&self) -> Vec<String>;

    /// Checks that a setting can be changed to this value.
    ///
    /// # Errors
    /// `Unknown`, `Value`.
    fn check(&self, name: &str, value: &str) -> Result<(), ChangeSettingError>;

    /// Returns the broker's level of policies with these changes. A change that is unknown or cannot be parsed is
    /// ignored.
    fn policies(&self, changed: &ChangedSettings) -> BrokerPolicies;
}

/// Failure to change a setting.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ChangeSettingError {
    /// There is no such setting, or it cannot be changed while brokers run.
    #[error("Can't update non-dynamic configuration: {0}")]
    Unknown(String),
    /// The setting does not accept this value.
    #[error("Invalid dynamic-config value: {0}")]
    Value(String),
    /// The change could not be stored.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Returns the broker's level of policies, with the changed settings.
pub(super) fn policies_with(
    options: &CatalogOptions,
    changed: Option<&Record<ChangedSettings>>,
) -> Arc<BrokerPolicies> {
    match (&options.changeable, changed) {
        (Some(settings), Some(changed)) if !changed.value.0.is_empty() => {
            Arc::new(settings.policies(&changed.value))
        }
        _ => Arc::new(options.policies.clone()),
    }
}

/// The settings that can be changed while brokers run.
#[derive(Clone, Copy)]
pub struct RuntimeSettings<'a> {
    catalog: &'a Catalog,
}

impl<'a> RuntimeSettings<'a> {
    /// Returns the settings of all brokers of a catalog.
    #[must_use]
    pub fn of(catalog: &'a Catalog) -> Self {
        Self { catalog }
    }

    /// Returns the broker's current level of policies.
    #[must_use]
    pub fn policies(self) -> Arc<BrokerPolicies> {
        self.catalog.inner.known.broker_policies()
    }

    /// The names by which they can be changed.
    #[must_use]
    pub fn names(self) -> Vec<String> {
        let settings = self.catalog.inner.options.changeable.as_ref();
        settings.map(|settings| settings.names()).unwrap_or_default()
    }

    /// Returns the changed settings.
    #[must_use]
    pub fn changed(self) -> BTreeMap<String, String> {
        let state = self.catalog.inner.known.read();
        let changed = state.changed_settings.as_ref();
        changed.map(|changed| changed.value.0.clone()).unwrap_or_default()
    }

    /// Changes a setting; `None` takes the change back.
    ///
    /// # Errors
    /// [`ChangeSettingError`].
    pub async fn change(self, name: &str, value: Option<&str>) -> Result<(), ChangeSettingError> {
        let unknown = || ChangeSettingError::Unknown(name.to_owned());
        let settings = self
            .catalog
            .inner
            .options
            .changeable
            .as_ref()
            .ok_or_else(unknown)?;
        match value {
            Some(value) => settings.check(name, value)?,
            None if settings.names().iter().any(|known| known == name) => {}
            None => return Err(unknown()),
        }
        let facts = &self.catalog.inner.facts;
        let _guard = facts.names.take(keys::CONFIGURATION.to_owned()).await;
        let known = self.catalog.inner.known.read().changed_settings.clone();
        let known = match known {
            Some(known) => known,
            None => match facts
                .create(keys::CONFIGURATION, ChangedSettings::default())
                .await?
            {
                Created::New(record) | Created::Found(record) => record,
            },
        };
        let change = |changed: &ChangedSettings| {
            let mut changed = changed.clone();
            match value {
                Some(value) => _ = changed.0.insert(name.to_owned(), value.to_owned()),
                None => _ = changed.0.remove(name),
            }
            Ok::<_, ChangeSettingError>(changed)
        };
        let record = facts.update(keys::CONFIGURATION, known, unknown, change).await?;
        self.put(Some(record));
        Ok(())
    }

    /// Puts what the store has into the copy.
    pub(super) fn put(self, record: Option<Record<ChangedSettings>>) {
        let inner = &self.catalog.inner;
        let policies = policies_with(&inner.options, record.as_ref());
        inner.known.write().changed_settings = record;
        inner.known.set_broker_policies(policies);
        inner.known.tell_policies(PolicyEvent::Broker);
    }
}
