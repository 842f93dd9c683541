//! Tenants: who may administer and on which clusters.

use pharos_admin_api::TenantInfo;
use pharos_types::NamespaceName;

use super::store::{Created, StoreError};
use super::{Catalog, keys};

/// Why something with a tenant was not done.
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
    /// It names a cluster that is not known.
    #[error("Clusters do not exist: {0}")]
    UnknownCluster(String),
    /// It still has namespaces.
    #[error("The tenant still has active namespaces")]
    NotEmpty,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Catalog {
    /// Names of all tenants, sorted.
    #[must_use]
    pub fn tenants(&self) -> Vec<String> {
        self.read().tenants.keys().cloned().collect()
    }

    /// A tenant.
    #[must_use]
    pub fn tenant(&self, name: &str) -> Option<TenantInfo> {
        let state = self.read();
        state.tenants.get(name).map(|record| (*record.value).clone())
    }

    /// Whether a role is among the administrators of a tenant that exists.
    #[must_use]
    pub fn is_tenant_admin(&self, tenant: &str, role: &str) -> bool {
        let state = self.read();
        let known = state.tenants.get(tenant);
        known.is_some_and(|record| record.value.admin_roles.iter().any(|admin| admin == role))
    }

    /// Makes a tenant. Its allowed clusters must be known.
    ///
    /// # Errors
    /// `InvalidName`, `UnknownCluster`, `AlreadyExists`, `Store`.
    pub async fn create_tenant(&self, name: &str, info: TenantInfo) -> Result<(), TenantError> {
        if NamespaceName::new(name, "x").is_err() {
            return Err(TenantError::InvalidName);
        }
        let key = keys::tenant(name);
        let _guard = self.inner.names.take(key.clone()).await;
        if self.read().tenants.contains_key(name) {
            return Err(TenantError::AlreadyExists);
        }
        self.check_clusters(&info)?;
        let (record, outcome) = match self.store_create(&key, info).await? {
            Created::New(record) => (record, Ok(())),
            Created::Found(record) => (record, Err(TenantError::AlreadyExists)),
        };
        self.write().tenants.insert(name.to_owned(), record);
        outcome
    }

    /// Replaces both lists of a tenant.
    ///
    /// # Errors
    /// `NotFound`, `UnknownCluster`, `Store`.
    pub async fn update_tenant(&self, name: &str, info: TenantInfo) -> Result<(), TenantError> {
        let key = keys::tenant(name);
        let _guard = self.inner.names.take(key.clone()).await;
        let known = self.read().tenants.get(name).cloned();
        let known = known.ok_or(TenantError::NotFound)?;
        self.check_clusters(&info)?;
        let missing = || TenantError::NotFound;
        let record = self
            .store_update(&key, known, missing, |_| Ok::<_, TenantError>(info.clone()))
            .await?;
        self.write().tenants.insert(name.to_owned(), record);
        Ok(())
    }

    /// Deletes a tenant that has no namespaces. A forced delete removes the namespaces first.
    ///
    /// # Errors
    /// `NotFound`, `NotEmpty`, `Store`.
    pub async fn delete_tenant(&self, name: &str) -> Result<(), TenantError> {
        let key = keys::tenant(name);
        // Creating a namespace takes this name as well, so none can appear between the look and the deletion.
        let _guard = self.inner.names.take(key.clone()).await;
        if !self.read().tenants.contains_key(name) {
            return Err(TenantError::NotFound);
        }
        if !self.namespaces_of(name).is_empty() {
            return Err(TenantError::NotEmpty);
        }
        self.store_delete(&key).await?;
        self.write().tenants.remove(name);
        Ok(())
    }

    fn check_clusters(&self, info: &TenantInfo) -> Result<(), TenantError> {
        let state = self.read();
        let mut clusters = info.allowed_clusters.iter();
        match clusters.find(|cluster| !state.clusters.contains_key(*cluster)) {
            Some(unknown) => Err(TenantError::UnknownCluster(unknown.clone())),
            None => Ok(()),
        }
    }
}
