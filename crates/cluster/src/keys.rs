//! Keys of bundles: what the store says of them, and how they are put and deleted.
//!
//! Always true: `ours` is changed by the one who has the turn, after the store has answered.

use std::sync::Arc;

use pharos_metadata::{Expect, MetadataStore, Session, SessionWriteError, Version, Versioned, WriteError};
use pharos_types::TopicName;

use crate::arriving::Taking;
use crate::bundles::PREFIX;
use crate::handover::Handover;
use crate::keeping::Keeping;
use crate::{BrokerAddresses, BundleOwnership, Owner, OwnershipError};

/// Number of attempts to take a bundle that another broker takes and releases meanwhile.
const TRIES: usize = 5;

/// The keys of the bundles, as this broker knows and changes them.
pub(crate) struct Keys<'a>(pub(crate) &'a BundleOwnership);

impl Keys<'_> {
    /// A key changed: what it is now is what counts.
    pub(crate) async fn on_change(&self, key: &str) {
        {
            let Ok(_turn) = self.0.turn.acquire().await else {
                return;
            };
            if let Err(error) = self.look_at(key).await {
                tracing::warn!(key, %error, "who owns a bundle is not known");
            }
        }
        Handover(self.0).receive(key).await;
    }

    /// Looks at every key: at the start, and when changes were missed.
    pub(crate) async fn look_again(&self) {
        let Ok(_turn) = self.0.turn.acquire().await else {
            return;
        };
        let mut keys = match self.0.store.list(PREFIX).await {
            Ok(keys) => keys,
            Err(error) => {
                tracing::warn!(%error, "the owners of bundles are not known");
                return;
            }
        };
        {
            let state = self.0.lock();
            keys.extend(state.ours.keys().chain(state.others.keys()).cloned());
        }
        keys.sort_unstable();
        keys.dedup();
        for key in keys {
            if let Err(error) = self.look_at(&key).await {
                tracing::warn!(key, %error, "who owns a bundle is not known");
            }
        }
    }

    /// Reads a key and notes whose it is. Says its version if an earlier life of this broker left it. The caller has the turn.
    async fn look_at(&self, key: &str) -> Result<Option<Version>, OwnershipError> {
        let found = self.0.store.get(key).await?;
        let (lost, left) = self.note(key, found);
        if lost {
            self.0.tell_loss();
        }
        self.0.tell_change();
        Ok(left)
    }

    /// Notes what is stored. Says whether it was ours and is no more, and the version of what an earlier life left.
    fn note(&self, key: &str, found: Option<Versioned>) -> (bool, Option<Version>) {
        let mut state = self.0.lock();
        // A node above the bundles of a namespace.
        let found = found.filter(|found| !found.value.is_empty());
        let version = found.as_ref().map(|found| found.version);
        let ours = state.ours.get(key).copied();
        if ours.is_some() && ours == version {
            state.others.remove(key);
            return (false, None);
        }
        state.ours.remove(key);
        let Some(found) = found else {
            state.others.remove(key);
            return (ours.is_some(), None);
        };
        if self.0.us() == Some(&found.value) {
            state.others.remove(key);
            return (ours.is_some(), Some(found.version));
        }
        let addresses: BrokerAddresses = serde_json::from_slice(&found.value).unwrap_or_else(|error| {
            tracing::warn!(key, %error, "the owner of a bundle says no addresses");
            BrokerAddresses::default()
        });
        state.others.insert(key.to_owned(), Arc::new(addresses));
        (ours.is_some(), None)
    }

    /// Puts our key, unless another broker has it or is to have it. Says whose the bundle is now.
    ///
    /// # Errors
    /// [`OwnershipError`]; it may have no owner then.
    pub(crate) async fn take(&self, key: String) -> Result<Owner, OwnershipError> {
        let value = self.0.us().ok_or(OwnershipError::NotReady("it is starting"))?;
        let closed = |_| OwnershipError::NotReady("it is stopping");
        let _turn = self.0.turn.acquire().await.map_err(closed)?;
        for _ in 0..TRIES {
            match self.0.owner_of_key(&key) {
                Owner::Unowned => {}
                owner => return Ok(owner),
            }
            if Handover(self.0).is_promised(&key).await? {
                return Err(OwnershipError::NotReady("the bundle goes to another one"));
            }
            let session = Keeping(self.0).session().await?;
            let _taking = Taking::begin(self.0, &key);
            match session.put(&key, value.clone(), Expect::Absent).await {
                Ok(version) => return self.note_taken(&*session, key, version),
                Err(SessionWriteError::Write(WriteError::Conflict { .. })) => {
                    if let Some(left) = self.look_at(&key).await? {
                        forget_earlier_life(&*self.0.store, &key, left).await?;
                    }
                }
                Err(SessionWriteError::Ended(why)) => {
                    Keeping(self.0).on_end(session.id(), why);
                    return Err(OwnershipError::SessionEnded(why));
                }
                Err(SessionWriteError::Write(error)) => return Err(error.into()),
            }
        }
        Err(OwnershipError::NotReady("others take and leave the bundle"))
    }

    /// Deletes our key of a topic's bundle.
    pub(crate) async fn release(&self, topic: &TopicName) -> Result<(), OwnershipError> {
        let Some(key) = self.0.key_of(topic) else {
            return Ok(());
        };
        {
            let stopping = |_| OwnershipError::NotReady("it is stopping");
            let _turn = self.0.turn.acquire().await.map_err(stopping)?;
            let Some(version) = self.0.lock().ours.remove(&key) else {
                return Ok(());
            };
            forget_earlier_life(&*self.0.store, &key, version).await?;
        }
        // What came to be loaded meanwhile is closed.
        self.0.tell_loss();
        self.0.tell_change();
        Ok(())
    }

    /// The key is put: it is ours, unless the session was lost meanwhile.
    fn note_taken(
        &self,
        session: &dyn Session,
        key: String,
        version: Version,
    ) -> Result<Owner, OwnershipError> {
        let mut state = self.0.lock();
        let current = state.session.as_ref().map(|session| session.id());
        if current != Some(session.id()) {
            return Err(OwnershipError::NotReady("its session ended a moment ago"));
        }
        state.others.remove(&key);
        state.ours.insert(key, version);
        Ok(Owner::Us)
    }
}

/// Deletes the key that an earlier life of this broker left, unless it was changed.
pub(crate) async fn forget_earlier_life(
    store: &dyn MetadataStore,
    key: &str,
    version: Version,
) -> Result<(), OwnershipError> {
    match store.delete(key, Expect::Version(version)).await {
        Ok(_) | Err(WriteError::Conflict { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
