//! Tenants: who may administer and on which clusters.

use pharos_admin_api::TenantInfo;
use pharos_types::NamespaceName;

use super::store::{Created, StoreError};
use super::{Catalog, keys};

/// Failure of an operation on a tenant.
#[derive(Clone, Debug, thiserror::Error)]
pub enum TenantError {
    /// No such tenant.
    #[error("Tenant does not exist")]
    NotFound,
    /// There is one of that name.
    #[error("Tenant already exist")]
    AlreadyExists,
    /// The name has a foreign character.
    #[error("Tenant name is not valid")]
    InvalidName,
    /// The tenant names an unknown cluster.
    #[error("Clusters do not exist: {0}")]
    UnknownCluster(String),
    /// The tenant still has namespaces.
    #[error("The tenant still has active namespaces")]
    NotEmpty,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The tenants.
#[derive(Clone, Copy)]
pub struct Tenants<'a> {
    pub(super) catalog: &'a Catalog,
}

impl Tenants<'_> {
    /// Names of all tenants, sorted.
    #[must_use]
    pub fn names(self) -> Vec<String> {
        self.catalog.inner.known.read().tenants.keys().cloned().collect()
    }

    /// A tenant.
    #[must_use]
    pub fn get(self, name: &str) -> Option<TenantInfo> {
        let state = self.catalog.inner.known.read();
        state.tenants.get(name).map(|record| (*record.value).clone())
    }

    /// True if the role is an administrator of an existing tenant.
    #[must_use]
    pub fn is_admin(self, tenant: &str, role: &str) -> bool {
        let state = self.catalog.inner.known.read();
        let known = state.tenants.get(tenant);
        known.is_some_and(|record| record.value.admin_roles.iter().any(|admin| admin == role))
    }

    /// Makes a tenant. Its allowed clusters must be known.
    ///
    /// # Errors
    /// `InvalidName`, `UnknownCluster`, `AlreadyExists`, `Store`.
    pub async fn create(self, name: &str, info: TenantInfo) -> Result<(), TenantError> {
        if NamespaceName::new(name, "x").is_err() {
            return Err(TenantError::InvalidName);
        }
        let key = keys::tenant(name);
        let _guard = self.catalog.inner.facts.names.take(key.clone()).await;
        if self.catalog.inner.known.read().tenants.contains_key(name) {
            return Err(TenantError::AlreadyExists);
        }
        self.check_clusters(&info)?;
        let (record, outcome) = match self.catalog.inner.facts.create(&key, info).await? {
            Created::New(record) => (record, Ok(())),
            Created::Found(record) => (record, Err(TenantError::AlreadyExists)),
        };
        self.catalog
            .inner
            .known
            .write()
            .tenants
            .insert(name.to_owned(), record);
        outcome
    }

    /// Replaces both lists of a tenant.
    ///
    /// # Errors
    /// `NotFound`, `UnknownCluster`, `Store`.
    pub async fn update(self, name: &str, info: TenantInfo) -> Result<(), TenantError> {
        let key = keys::tenant(name);
        let _guard = self.catalog.inner.facts.names.take(key.clone()).await;
        let known = self.catalog.inner.known.read().tenants.get(name).cloned();
        let known = known.ok_or(TenantError::NotFound)?;
        self.check_clusters(&info)?;
        let missing = || TenantError::NotFound;
        let record = self
            .catalog
            .inner
            .facts
            .update(&key, known, missing, |_| Ok::<_, TenantError>(info.clone()))
            .await?;
        self.catalog
            .inner
            .known
            .write()
            .tenants
            .insert(name.to_owned(), record);
        Ok(())
    }

    /// Deletes a tenant that has no namespaces. A forced delete removes the namespaces first.
    ///
    /// # Errors
    /// `NotFound`, `NotEmpty`, `Store`.
    pub async fn delete(self, name: &str) -> Result<(), TenantError> {
        let key = keys::tenant(name);
        // Creating a namespace takes this name as well, so none can appear between the look and the deletion.
        let _guard = self.catalog.inner.facts.names.take(key.clone()).await;
        if !self.catalog.inner.known.read().tenants.contains_key(name) {
            return Err(TenantError::NotFound);
        }
        if !self.catalog.namespaces().of(name).is_empty() {
            return Err(TenantError::NotEmpty);
        }
        self.catalog.inner.facts.delete(&key).await?;
        self.catalog.inner.known.write().tenants.remove(name);
        Ok(())
    }

    fn check_clusters(self, info: &TenantInfo) -> Result<(), TenantError> {
        let state = self.catalog.inner.known.read();
        let mut clusters = info.allowed_clusters.iter();
        match clusters.find(|cluster| !state.clusters.contains_key(*cluster)) {
            Some(unknown) => Err(TenantError::UnknownCluster(unknown.clone())),
            None => Ok(()),
        }
    }
}
