//! Failure domains: which brokers fail together. They are stored under their cluster, where Pulsar has them; nothing is dealt by them.

use std::collections::BTreeMap;

use pharos_admin_api::FailureDomain;
use pharos_metadata::Expect;
use pharos_types::NamespaceName;

use super::store::StoreError;
use super::{Catalog, Clusters, keys};

/// Failure domains of one cluster.
const DOMAINS_MAX: usize = 1000;

/// Failure of an operation on a failure domain.
#[derive(Clone, Debug, thiserror::Error)]
pub enum FailureDomainError {
    /// No such cluster.
    #[error("Cluster {0} does not exist.")]
    NoCluster(String),
    /// No such domain.
    #[error("Domain {0} for cluster {1} does not exist")]
    NotFound(String, String),
    /// A broker is in one domain.
    #[error("broker {broker} is in the domain {domain} already")]
    Taken {
        /// The broker.
        broker: String,
        /// Failure domain that contains the broker.
        domain: String,
    },
    /// The failure domain is invalid, for this reason.
    #[error("{0}")]
    Invalid(String),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The failure domains.
#[derive(Clone, Copy)]
pub struct FailureDomains<'a> {
    pub(super) catalog: &'a Catalog,
}

impl<'a> Clusters<'a> {
    /// Their failure domains.
    #[must_use]
    pub fn failure_domains(self) -> FailureDomains<'a> {
        FailureDomains {
            catalog: self.catalog,
        }
    }
}

impl FailureDomains<'_> {
    /// Returns the failure domains of a cluster, by name.
    #[must_use]
    pub fn of(self, cluster: &str) -> BTreeMap<String, FailureDomain> {
        let state = self.catalog.inner.known.read();
        let all = state.failure_domains.iter();
        let of = all.filter(|((of, _), _)| of == cluster);
        of.map(|((_, name), record)| (name.clone(), (*record.value).clone()))
            .collect()
    }

    /// Sets one.
    ///
    /// # Errors
    /// `NoCluster`, `Taken`, `Invalid`, `Store`.
    pub async fn set(
        self,
        cluster: &str,
        name: &str,
        domain: FailureDomain,
    ) -> Result<(), FailureDomainError> {
        if NamespaceName::new(name, "x").is_err() {
            let reason = format!("'{name}' is no name of a failure domain: letters, digits and -=:._ are");
            return Err(FailureDomainError::Invalid(reason));
        }
        let inner = &self.catalog.inner;
        let _guard = inner.facts.names.take(keys::cluster(cluster)).await;
        if self.catalog.clusters().get(cluster).is_none() {
            return Err(FailureDomainError::NoCluster(cluster.to_owned()));
        }
        let mut others = self.of(cluster);
        others.remove(name);
        if others.len() >= DOMAINS_MAX {
            let reason = format!("a cluster has at most {DOMAINS_MAX} failure domains");
            return Err(FailureDomainError::Invalid(reason));
        }
        for (other, has) in &others {
            if let Some(broker) = has.brokers.intersection(&domain.brokers).next() {
                return Err(FailureDomainError::Taken {
                    broker: broker.clone(),
                    domain: other.clone(),
                });
            }
        }
        let key = keys::failure_domain(cluster, name);
        let record = inner.facts.put(&key, domain, Expect::Any).await?;
        let mut state = inner.known.write();
        let key = (cluster.to_owned(), name.to_owned());
        state.failure_domains.insert(key, record);
        Ok(())
    }

    /// Removes one.
    ///
    /// # Errors
    /// `NoCluster`, `NotFound`, `Store`.
    pub async fn remove(self, cluster: &str, name: &str) -> Result<(), FailureDomainError> {
        let inner = &self.catalog.inner;
        let _guard = inner.facts.names.take(keys::cluster(cluster)).await;
        if self.catalog.clusters().get(cluster).is_none() {
            return Err(FailureDomainError::NoCluster(cluster.to_owned()));
        }
        let key = (cluster.to_owned(), name.to_owned());
        if !inner.known.read().failure_domains.contains_key(&key) {
            return Err(FailureDomainError::NotFound(key.1, key.0));
        }
        inner.facts.delete(&keys::failure_domain(cluster, name)).await?;
        inner.known.write().failure_domains.remove(&key);
        Ok(())
    }

    /// Removes all, with their cluster, whose name is taken.
    pub(super) async fn remove_all(self, cluster: &str) -> Result<(), StoreError> {
        let inner = &self.catalog.inner;
        for name in self.of(cluster).into_keys() {
            inner.facts.delete(&keys::failure_domain(cluster, &name)).await?;
            let key = (cluster.to_owned(), name);
            inner.known.write().failure_domains.remove(&key);
        }
        Ok(())
    }
}
