//! Namespaces: their policies, and what of them Pulsar keeps for each cluster by itself.

use bytes::Bytes;
use pharos_metadata::{Expect, Fault, Item, ReadError, Version, Versioned, WriteError};
use serde_json::{Map, Value, json};

use super::{PulsarFacts, as_found, check, conflict, unread};
use crate::keys;

type PolicyMembers = Map<String, Value>;

/// PolicyMembers of the policies that stand among the local ones: their names here, and there.
const LOCAL: [(&str, &str); 2] = [
    ("anti_affinity_group", "namespaceAntiAffinityGroup"),
    ("bookieAffinityGroup", "bookieAffinityGroup"),
];
/// Stands at both places; the local one counts.
const BUNDLES: &str = "bundles";

/// Both values of a namespace.
struct StoredNamespace {
    policies: Option<Versioned>,
    local: Option<Versioned>,
}

impl StoredNamespace {
    /// `None` when there is no such namespace.
    fn version(&self) -> Option<Version> {
        let policies = self.policies.as_ref()?.version;
        Some(
            self.local
                .as_ref()
                .map_or(policies, |local| policies.max(local.version)),
        )
    }
}

/// The members of a value; one that is no object is left to the catalog, which says what is wrong with it.
fn members(value: &Bytes) -> Option<PolicyMembers> {
    serde_json::from_slice(value).ok()
}

/// The policies with the local ones in their place.
pub(super) fn merged(policies: &Bytes, local: Option<&Bytes>) -> Bytes {
    let Some(local) = local else {
        return policies.clone();
    };
    let (Some(mut all), Some(mut local)) = (members(policies), members(local)) else {
        return policies.clone();
    };
    let here_and_there = LOCAL.into_iter().chain([(BUNDLES, BUNDLES)]);
    for (here, there) in here_and_there {
        match local.remove(there) {
            Some(value) if !value.is_null() => _ = all.insert(here.to_owned(), value),
            _ => {}
        }
    }
    serde_json::to_vec(&all).map_or_else(|_| policies.clone(), Bytes::from)
}

/// The reverse: the policies without what is local, and the local ones with it.
fn split(mut all: PolicyMembers, mut local: PolicyMembers) -> (PolicyMembers, PolicyMembers) {
    for (here, there) in LOCAL {
        match all.remove(here) {
            Some(value) if !value.is_null() => _ = local.insert(there.to_owned(), value),
            _ => _ = local.remove(there),
        }
    }
    if let Some(bundles) = all.get(BUNDLES) {
        local.insert(BUNDLES.to_owned(), bundles.clone());
    }
    local.entry("migrated").or_insert(json!(false));
    (all, local)
}

fn encode(key: &str, members: &PolicyMembers) -> Result<Bytes, WriteError> {
    let bytes = serde_json::to_vec(members).map_err(|error| not_an_object(key, &error))?;
    Ok(bytes.into())
}

fn not_an_object(key: &str, cause: &impl ToString) -> WriteError {
    let cause = format!("{key}: {}", cause.to_string());
    WriteError::Fault(Fault::new("write policies of a namespace", cause))
}

impl PulsarFacts {
    async fn stored(&self, path: &str) -> Result<StoredNamespace, ReadError> {
        let get = async |tree: &str| {
            let found = self.store.get(&format!("{tree}{path}")).await?;
            Ok::<_, ReadError>(found.filter(|found| !found.value.is_empty()))
        };
        Ok(StoredNamespace {
            policies: get(keys::POLICIES).await?,
            local: get(keys::PULSAR_LOCAL_POLICIES).await?,
        })
    }

    pub(super) async fn namespace(&self, path: &str) -> Result<Option<Versioned>, ReadError> {
        let stored = self.stored(path).await?;
        let version = stored.version();
        let StoredNamespace { policies, local } = stored;
        Ok(policies.zip(version).map(|(policies, version)| Versioned {
            value: merged(&policies.value, local.as_ref().map(|local| &local.value)),
            version,
        }))
    }

    pub(super) async fn scan_namespaces(&self) -> Result<Vec<Item>, ReadError> {
        let local = self.store.scan(keys::PULSAR_LOCAL_POLICIES).await?;
        let local_of = |path: &str| {
            let key = format!("{}{path}", keys::PULSAR_LOCAL_POLICIES);
            let at = local.binary_search_by(|item| item.key.as_str().cmp(&key)).ok()?;
            local.get(at).filter(|item| !item.value.is_empty())
        };
        let found = self.store.scan(keys::POLICIES).await?;
        let namespaces = found.into_iter().filter_map(|item| {
            let path = item.key.strip_prefix(keys::POLICIES)?;
            if item.value.is_empty() || path.split('/').count() != 2 {
                return None;
            }
            let local = local_of(path);
            let version = local.map_or(item.version, |local| item.version.max(local.version));
            Some(Item {
                value: merged(&item.value, local.map(|local| &local.value)),
                version,
                key: item.key,
            })
        });
        Ok(namespaces.collect())
    }

    /// The local ones are written first: where only they have arrived, their bundles count.
    pub(super) async fn put_namespace(
        &self,
        path: &str,
        value: &Bytes,
        expect: Expect,
    ) -> Result<Version, WriteError> {
        let key = format!("{}{path}", keys::POLICIES);
        let local_key = format!("{}{path}", keys::PULSAR_LOCAL_POLICIES);
        let stored = self.stored(path).await.map_err(unread)?;
        check(&key, expect, stored.version())?;
        let all = serde_json::from_slice(value).map_err(|error| not_an_object(&key, &error))?;
        let local = stored.local.as_ref().and_then(|local| members(&local.value));
        let before = local.unwrap_or_default();
        let (policies, local) = split(all, before.clone());
        let mut version = Version(0);
        if local != before {
            let expect = as_found(stored.local.as_ref().map(|local| local.version));
            let written = self
                .store
                .put(&local_key, encode(&local_key, &local)?, expect)
                .await;
            version = written.map_err(|error| renamed(error, &key))?;
        }
        let known = stored.policies.as_ref().and_then(|known| members(&known.value));
        if known.as_ref() == Some(&policies) && version != Version(0) {
            return Ok(version);
        }
        let expect = as_found(stored.policies.as_ref().map(|policies| policies.version));
        let written = self.store.put(&key, encode(&key, &policies)?, expect).await;
        Ok(written.map_err(|error| renamed(error, &key))?.max(version))
    }

    pub(super) async fn delete_namespace(&self, path: &str, expect: Expect) -> Result<bool, WriteError> {
        let key = format!("{}{path}", keys::POLICIES);
        let stored = self.stored(path).await.map_err(unread)?;
        check(&key, expect, stored.version())?;
        let was_there = self.store.delete(&key, Expect::Any).await?;
        let local_key = format!("{}{path}", keys::PULSAR_LOCAL_POLICIES);
        self.store.delete(&local_key, Expect::Any).await?;
        self.delete_bells(path).await?;
        Ok(was_there)
    }
}

/// A conflict under the name that the caller knows.
fn renamed(error: WriteError, key: &str) -> WriteError {
    match error {
        // Of the two versions that make up the caller's, which one it is would mislead.
        WriteError::Conflict { .. } => conflict(key, None),
        error => error,
    }
}
