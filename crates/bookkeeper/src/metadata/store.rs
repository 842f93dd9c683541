//! Storage of ledger metadata: one key per ledger in a [`MetadataStore`], in the layout of BookKeeper's hierarchical
//! ledger manager, so that bookies and other clients find it.
//!
//! ```text
//!  ledgers/00/0000/L0042                   ledger 42; 10 digits while the id is below 2^31 − 1
//!  ledgers/000/0000/0214/7483/L6470        19 digits from there on
//!  ledgers/idgen/ID-                       the sequence that ids come from
//! ```

use std::sync::Arc;

use pharos_metadata::{Expect, MetadataStore, ReadError, Version, WriteError};
use pharos_types::LedgerId;

use super::LedgerMetadata;
use super::format::{FormatError, decode, encode};

/// The first id that has the long form.
const LONG_FROM: u64 = i32::MAX as u64;

/// Failure to read or write the metadata of a ledger.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// The metadata store cannot be read now.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The write did not happen, or may not have.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The stored metadata is invalid.
    #[error("metadata of ledger {ledger}")]
    Format {
        /// The ledger.
        ledger: LedgerId,
        /// Error in the metadata.
        #[source]
        error: FormatError,
    },
}

/// The metadata of all ledgers of a cluster. Cheap to clone.
#[derive(Clone)]
pub struct LedgerStore {
    store: Arc<dyn MetadataStore>,
    /// Without slashes around, such as `ledgers`.
    root: Arc<str>,
}

impl std::fmt::Debug for LedgerStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LedgerStore")
            .field("root", &self.root)
            .finish_non_exhaustive()
    }
}

impl LedgerStore {
    /// Ledgers below the key `root` (usually `ledgers`) of `store`.
    #[must_use]
    pub fn new(store: Arc<dyn MetadataStore>, root: &str) -> Self {
        Self {
            store,
            root: root.trim_matches('/').into(),
        }
    }

    /// The store behind it.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn MetadataStore> {
        &self.store
    }

    /// The key that all of it is below.
    #[must_use]
    pub fn root(&self) -> &str {
        &self.root
    }

    /// An id that no ledger ever had, from the sequence that all clients of the cluster use.
    ///
    /// # Errors
    /// [`StoreError::Write`].
    pub async fn next_id(&self) -> Result<LedgerId, StoreError> {
        let number = self.store.sequence(&format!("{}/idgen/ID-", self.root)).await?;
        Ok(LedgerId(number))
    }

    /// Stores the metadata of a ledger that is not there.
    ///
    /// # Errors
    /// [`StoreError::Write`], with a conflict when there is one of this id.
    pub async fn create(&self, ledger: LedgerId, metadata: &LedgerMetadata) -> Result<Version, StoreError> {
        let put = self
            .store
            .put(&self.key(ledger), encode(metadata), Expect::Absent);
        Ok(put.await?)
    }

    /// Returns the metadata of a ledger, and the version to expect when changing it. `None`: there is no such ledger.
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Format`].
    pub async fn read(&self, ledger: LedgerId) -> Result<Option<(LedgerMetadata, Version)>, StoreError> {
        let Some(found) = self.store.get(&self.key(ledger)).await? else {
            return Ok(None);
        };
        let metadata = decode(&found.value).map_err(|error| StoreError::Format { ledger, error })?;
        Ok(Some((metadata, found.version)))
    }

    /// Changes the metadata of a ledger that is still as `version` says.
    ///
    /// # Errors
    /// [`StoreError::Write`]: with a conflict another client changed or deleted it; otherwise whether it was written is unknown.
    pub async fn write(
        &self,
        ledger: LedgerId,
        metadata: &LedgerMetadata,
        version: Version,
    ) -> Result<Version, StoreError> {
        let put = self
            .store
            .put(&self.key(ledger), encode(metadata), Expect::Version(version));
        Ok(put.await?)
    }

    /// Forgets a ledger. Bookies drop its entries by themselves afterwards. Whether it was there.
    ///
    /// # Errors
    /// [`StoreError::Write`].
    pub async fn delete(&self, ledger: LedgerId) -> Result<bool, StoreError> {
        Ok(self.store.delete(&self.key(ledger), Expect::Any).await?)
    }

    /// All ledgers, rising.
    ///
    /// # Errors
    /// [`StoreError::Read`].
    pub async fn list(&self) -> Result<Vec<LedgerId>, StoreError> {
        let below = format!("{}/", self.root);
        let keys = self.store.list(&below).await?;
        let mut ledgers: Vec<_> = keys
            .iter()
            .filter_map(|key| ledger_of(key.strip_prefix(&below)?))
            .collect();
        ledgers.sort_unstable();
        Ok(ledgers)
    }

    fn key(&self, ledger: LedgerId) -> String {
        format!("{}/{}", self.root, path_of(ledger))
    }
}

/// The path of a ledger below the root.
fn path_of(ledger: LedgerId) -> String {
    let id = ledger.0;
    let four = |shift: u32| id / 10u64.pow(shift) % 10_000;
    if id < LONG_FROM {
        format!("{:02}/{:04}/L{:04}", id / 100_000_000, four(4), four(0))
    } else {
        let first = id / 10u64.pow(16);
        format!(
            "{first:03}/{:04}/{:04}/{:04}/L{:04}",
            four(12),
            four(8),
            four(4),
            four(0)
        )
    }
}

/// The ledger whose path this is, if it is one.
fn ledger_of(path: &str) -> Option<LedgerId> {
    let (parents, name) = path.rsplit_once('/')?;
    let digits: String = parents.split('/').chain([name.strip_prefix('L')?]).collect();
    if !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let ledger = LedgerId(digits.parse().ok()?);
    // Neither another number of digits nor anything else that happens to be digits.
    (path_of(ledger) == path).then_some(ledger)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use bytes::Bytes;
    use pharos_metadata::Memory;
    use pharos_types::EntryId;

    use super::*;
    use crate::metadata::{BookieId, Segment, State};
    use crate::{DigestType, Quorum};

    #[test]
    fn paths_are_those_of_the_hierarchical_ledger_manager() {
        for (id, path) in [
            (0, "00/0000/L0000"),
            (42, "00/0000/L0042"),
            (1_234_567_890, "12/3456/L7890"),
            (2_147_483_646, "21/4748/L3646"),
            (2_147_483_647, "000/0000/0021/4748/L3647"),
            (i64::MAX as u64, "922/3372/0368/5477/L5807"),
        ] {
            assert_eq!(path_of(LedgerId(id)), path);
            assert_eq!(ledger_of(path), Some(LedgerId(id)));
        }
        for other in [
            "available/127.0.0.1:3181",
            "idgen/ID-",
            "INSTANCEID",
            "00/0000/0042",
            "00/0000/L42",
            "000/0000/0000/0000/L0001",
            "+0/0000/L0001",
        ] {
            assert_eq!(ledger_of(other), None, "{other}");
        }
    }

    fn metadata() -> LedgerMetadata {
        LedgerMetadata {
            quorum: Quorum::new(1, 1, 1).unwrap(),
            state: State::Open,
            segments: vec![Segment {
                first: EntryId(0),
                ensemble: vec![BookieId::new("a:1")],
            }],
            digest: DigestType::Crc32c,
            password: Bytes::new(),
            created_ms: None,
            custom: BTreeMap::new(),
            token: None,
        }
    }

    #[test]
    fn a_change_insists_on_what_was_seen() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let store = LedgerStore::new(Arc::new(Memory::new()), "/ledgers");
            let (one, two) = (store.next_id().await.unwrap(), store.next_id().await.unwrap());
            assert!(two > one);
            assert!(store.read(two).await.unwrap().is_none());
            let first = store.create(two, &metadata()).await.unwrap();
            store.create(one, &metadata()).await.unwrap();
            let again = store.create(two, &metadata()).await;
            assert!(matches!(
                again,
                Err(StoreError::Write(WriteError::Conflict { .. }))
            ));
            let changed = metadata().with_state(State::InRecovery);
            let second = store.write(two, &changed, first).await.unwrap();
            assert_eq!(store.read(two).await.unwrap(), Some((changed.clone(), second)));
            let late = store.write(two, &metadata(), first).await;
            assert!(matches!(
                late,
                Err(StoreError::Write(WriteError::Conflict { .. }))
            ));
            assert_eq!(store.list().await.unwrap(), [one, two]);
            assert!(store.delete(two).await.unwrap());
            assert_eq!(store.list().await.unwrap(), [one]);
            let foreign = Bytes::from_static(b"what");
            store
                .store
                .put(&store.key(one), foreign, Expect::Any)
                .await
                .unwrap();
            assert!(matches!(store.read(one).await, Err(StoreError::Format { ledger, .. }) if ledger == one));
        });
    }
}
