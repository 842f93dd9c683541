//! The bookies that ledgers are on, and what operators write down of where they stand.
//!
//! Racks are in one key of the metadata beside the ledgers, as Pulsar's brokers and BookKeeper's tools have it:
//! `{group: {bookie: {"rack": "/region/rack", "hostname": "…"}}}`. What else is in it is left as it is.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use pharos_admin_api::{BookieAffinityGroupData, BookieInfo, PersistencePolicies};
use pharos_catalog::policy::affinity_of;
use pharos_metadata::{Expect, MetadataStore, Version, WriteError};
use serde::Deserialize as _;
use serde_json::{Map, Value};

use crate::brokers::Stores;
use crate::error::AdminError;

/// Number of attempts for a change while others change the same.
const TRIES: usize = 5;

/// The largest name of a bookie or a group, and the largest rack.
const NAME_BYTES_MAX: usize = 256;

/// Rack assignments: bookies by group.
pub type Racks = BTreeMap<String, Map<String, Value>>;

/// Bookies that take writes now, by name.
pub type WritableBookies = Box<dyn Fn() -> Vec<String> + Send + Sync>;

/// Access to the bookies that store ledgers.
pub struct BookieStore {
    /// Returns the bookies that take writes now, without waiting.
    pub writable: WritableBookies,
    /// Metadata store in which they are registered.
    pub metadata: Arc<dyn MetadataStore>,
    /// The key of what is written down of racks.
    pub racks_key: String,
}

/// The bookies. What is always true of such types: [the crate](crate).
#[derive(Clone)]
pub struct BookieAdmin {
    stores: Option<Arc<Stores>>,
}

impl BookieAdmin {
    pub(crate) fn new(stores: Option<Arc<Stores>>) -> Self {
        Self { stores }
    }

    fn store(&self) -> Result<&BookieStore, AdminError> {
        let no_bookies = "ledgers are on this machine: there are no bookies";
        let stores = self.stores.as_deref();
        stores
            .and_then(|stores| stores.bookies.as_ref())
            .ok_or_else(|| AdminError::NotImplemented(no_bookies.to_owned()))
    }

    /// Returns the number of bookies that take writes; `None`: ledgers are on this machine.
    #[must_use]
    pub fn count(&self) -> Option<usize> {
        let store = self.store().ok()?;
        Some((store.writable)().len())
    }

    /// Checks that the copies of a policy `persistence` can be stored now.
    ///
    /// # Errors
    /// `Precondition`: fewer bookies take writes than the ensemble requires; `Invalid`: the policy cannot be parsed.
    pub fn check_persistence(&self, policy: &Value) -> Result<(), AdminError> {
        let Some(bookies) = self.count().filter(|_| !policy.is_null()) else {
            return Ok(());
        };
        let wanted = PersistencePolicies::deserialize(policy);
        let wanted = wanted.map_err(|error| AdminError::Invalid(error.to_string()))?;
        let ensemble = usize::try_from(wanted.bookkeeper_ensemble).unwrap_or(0);
        if ensemble <= bookies {
            return Ok(());
        }
        Err(AdminError::Precondition(format!(
            "bookkeeperEnsemble is {ensemble}, and {bookies} bookies take writes"
        )))
    }

    /// Checks that the groups in a policy `bookieAffinityGroup` exist.
    ///
    /// # Errors
    /// As [`racks`](Self::racks); `Precondition`: a group does not exist; `Invalid`: the policy cannot be parsed.
    pub async fn check_groups(&self, policy: &Value) -> Result<(), AdminError> {
        let wanted = BookieAffinityGroupData::deserialize(policy);
        let wanted = wanted.map_err(|error| AdminError::Invalid(error.to_string()))?;
        let racks = self.racks().await?;
        let wanted = affinity_of(&wanted).unwrap_or_default();
        let mut groups = wanted.primary.iter().chain(&wanted.secondary);
        match groups.find(|group| !racks.contains_key(*group)) {
            Some(group) => Err(AdminError::Precondition(format!(
                "no bookie is in the group {group}"
            ))),
            None => Ok(()),
        }
    }

    /// Returns the bookies that take writes.
    ///
    /// # Errors
    /// `NotImplemented`: ledgers are on this machine.
    pub fn writable(&self) -> Result<Vec<String>, AdminError> {
        Ok((self.store()?.writable)())
    }

    /// Returns the rack assignments: bookies by group.
    ///
    /// # Errors
    /// `NotImplemented`; `Unavailable`: the metadata cannot be read; `Internal`: the stored assignments are invalid.
    pub async fn racks(&self) -> Result<Racks, AdminError> {
        Ok(read(self.store()?).await?.0)
    }

    /// Returns the rack assignment of one bookie.
    ///
    /// # Errors
    /// As [`racks`](Self::racks); `NotFound`.
    pub async fn rack(&self, bookie: &str) -> Result<Value, AdminError> {
        let racks = self.racks().await?;
        let found = racks.values().find_map(|group| group.get(bookie));
        found.cloned().ok_or_else(|| not_found(bookie))
    }

    /// Writes down where a bookie stands; it is in no other group then.
    ///
    /// # Errors
    /// As [`racks`](Self::racks); `Precondition`: a name that is empty or too long.
    pub async fn set_rack(&self, bookie: &str, group: &str, info: &BookieInfo) -> Result<(), AdminError> {
        for (what, name) in [("bookie", bookie), ("group", group), ("rack", &info.rack)] {
            if name.is_empty() || name.len() > NAME_BYTES_MAX {
                let reason = format!("the name of the {what} has 1 to {NAME_BYTES_MAX} bytes");
                return Err(AdminError::Precondition(reason));
            }
        }
        let value = serde_json::to_value(info).map_err(|error| AdminError::Internal(error.to_string()))?;
        self.change(|racks| {
            take_out(racks, bookie);
            let members = racks.entry(group.to_owned()).or_default();
            members.insert(bookie.to_owned(), value.clone());
            true
        })
        .await
        .map(drop)
    }

    /// Forgets where a bookie stands.
    ///
    /// # Errors
    /// As [`racks`](Self::racks); `NotFound`.
    pub async fn remove_rack(&self, bookie: &str) -> Result<(), AdminError> {
        match self.change(|racks| take_out(racks, bookie)).await? {
            true => Ok(()),
            false => Err(not_found(bookie)),
        }
    }

    /// Applies `change` to the rack assignments and stores them if it returns true. Returns the same.
    async fn change(&self, change: impl Fn(&mut Racks) -> bool) -> Result<bool, AdminError> {
        let store = self.store()?;
        for _ in 0..TRIES {
            let (mut racks, version) = read(store).await?;
            if !change(&mut racks) {
                return Ok(false);
            }
            let expect = version.map_or(Expect::Absent, Expect::Version);
            let text = serde_json::to_vec(&racks).map_err(|error| AdminError::Internal(error.to_string()))?;
            let text = Bytes::from(text);
            match store.metadata.put(&store.racks_key, text, expect).await {
                Ok(_) => return Ok(true),
                Err(WriteError::Conflict { .. }) => {}
                Err(error) => return Err(AdminError::Unavailable(error.to_string())),
            }
        }
        Err(AdminError::Conflict(
            "others change the racks at the same time".to_owned(),
        ))
    }
}

fn not_found(bookie: &str) -> AdminError {
    AdminError::NotFound(format!("nothing is written down of bookie {bookie}"))
}

/// Removes the bookie, and a group without bookies. True if the bookie was in a group.
fn take_out(racks: &mut Racks, bookie: &str) -> bool {
    let mut was_there = false;
    racks.retain(|_, members| {
        let found = members.remove(bookie).is_some();
        was_there |= found;
        !(found && members.is_empty())
    });
    was_there
}

async fn read(store: &BookieStore) -> Result<(Racks, Option<Version>), AdminError> {
    let found = store.metadata.get(&store.racks_key).await;
    let found = found.map_err(|error| AdminError::Unavailable(error.to_string()))?;
    let Some(found) = found else {
        return Ok((Racks::new(), None));
    };
    let version = Some(found.version);
    if found.value.is_empty() {
        return Ok((Racks::new(), version));
    }
    let racks = serde_json::from_slice(&found.value);
    let racks = racks.map_err(|error| {
        AdminError::Internal(format!(
            "what is stored of racks in {} is not understood: {error}",
            store.racks_key
        ))
    })?;
    Ok((racks, version))
}

#[cfg(test)]
mod tests {
    use pharos_metadata::Memory;
    use serde_json::json;

    use super::*;

    fn admin(metadata: &Arc<Memory>) -> BookieAdmin {
        BookieAdmin::new(Some(Arc::new(Stores {
            families: Box::new(Vec::new),
            health: Box::new(|| None),
            bookies: Some(BookieStore {
                writable: Box::new(|| vec!["a:1".to_owned()]),
                metadata: metadata.clone(),
                racks_key: "bookies".to_owned(),
            }),
        })))
    }

    fn at(rack: &str) -> BookieInfo {
        BookieInfo {
            rack: rack.to_owned(),
            hostname: None,
        }
    }

    #[tokio::test]
    async fn where_a_bookie_stands_is_written_down_and_forgotten() {
        let metadata = Arc::new(Memory::new());
        let bookies = admin(&metadata);
        assert!(matches!(bookies.rack("a:1").await, Err(AdminError::NotFound(_))));
        assert!(bookies.set_rack("a:1", "default", &at("/r/1")).await.is_ok());
        assert!(bookies.set_rack("b:1", "default", &at("/r/2")).await.is_ok());
        // Another group: it leaves the first one.
        assert!(bookies.set_rack("a:1", "fast", &at("/r/3")).await.is_ok());
        let racks = bookies
            .racks()
            .await
            .map(|racks| json!(racks))
            .unwrap_or_default();
        let expected = json!({"default": {"b:1": {"rack": "/r/2"}}, "fast": {"a:1": {"rack": "/r/3"}}});
        assert_eq!(racks, expected);
        assert!(bookies.remove_rack("a:1").await.is_ok());
        assert!(matches!(
            bookies.remove_rack("a:1").await,
            Err(AdminError::NotFound(_))
        ));
        let racks = bookies
            .racks()
            .await
            .map(|racks| json!(racks))
            .unwrap_or_default();
        assert_eq!(racks, json!({"default": {"b:1": {"rack": "/r/2"}}}));
        for (bookie, group, rack) in [("", "g", "/r"), ("a:1", "", "/r"), ("a:1", "g", "")] {
            let refused = bookies.set_rack(bookie, group, &at(rack)).await;
            assert!(matches!(refused, Err(AdminError::Precondition(_))), "{refused:?}");
        }
    }

    #[tokio::test]
    async fn a_policy_names_groups_that_are_there() {
        let bookies = admin(&Arc::new(Memory::new()));
        assert!(bookies.set_rack("a:1", "fast", &at("/r/1")).await.is_ok());
        let group = |primary: &str, secondary: &str| json!({"bookkeeperAffinityGroupPrimary": primary, "bookkeeperAffinityGroupSecondary": secondary});
        assert!(bookies.check_groups(&group("fast", "")).await.is_ok());
        for (primary, secondary) in [("slow", ""), ("fast, slow", ""), ("fast", "slow")] {
            let refused = bookies.check_groups(&group(primary, secondary)).await;
            let Err(AdminError::Precondition(reason)) = refused else {
                panic!("{primary} and {secondary}: {refused:?}")
            };
            assert_eq!(reason, "no bookie is in the group slow");
        }
    }

    #[tokio::test]
    async fn what_is_not_understood_is_left_alone() {
        for odd in ["[1]", r#"{"g": 1, "h": {"a:1": {"rack": "/r"}}}"#] {
            let metadata = Arc::new(Memory::new());
            let odd = Bytes::from_static(odd.as_bytes());
            assert!(metadata.put("bookies", odd.clone(), Expect::Absent).await.is_ok());
            let refused = admin(&metadata).set_rack("a:1", "g", &at("/r")).await;
            assert!(matches!(refused, Err(AdminError::Internal(_))), "{refused:?}");
            let left = metadata.get("bookies").await.ok().flatten();
            assert_eq!(left.map(|left| left.value), Some(odd));
        }
        let none = BookieAdmin::new(None);
        assert!(matches!(none.writable(), Err(AdminError::NotImplemented(_))));
    }
}
