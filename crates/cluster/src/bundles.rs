//! Ownership of bundles by ephemeral keys.
//!
//! ```text
//! namespace/<tenant>/<namespace>/<0xlow_0xhigh>    ephemeral, of the owner's session: BrokerAddresses
//! ```
//! A broker that is asked for a topic whose bundle has no key puts the key, if it is still absent; exactly one of several that
//! try at once succeeds. When the owner's session ends, its keys go and the next broker that is asked takes the bundle.
//!
//! What is known: `ours` is exact, changed after the store has answered by the one who holds `turn`, and emptied when the
//! session ends; `others` follows the store's watch, so it may be a moment old. A key with our own addresses that no session of
//! this process made is what an earlier life of this broker left: it is deleted when the bundle is asked for.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use pharos_metadata::{
    BoxFuture, Event, Expect, MetadataStore, Session, SessionEnd, SessionError, SessionId, SessionWriteError,
    Version, Versioned, WriteError,
};
use pharos_runtime::clock;
use pharos_types::TopicName;
use tokio::sync::{Semaphore, watch};

use crate::{BrokerAddresses, Owner, Ownership, OwnershipError};

/// Below it are the keys of bundles.
const PREFIX: &str = "namespace/";

/// How often a bundle is tried for that another broker takes and leaves meanwhile.
const TRIES: usize = 5;

/// Says in which bundle of its namespace a topic is, as `0x40000000_0x80000000`; it must not wait.
pub type BundleOf = Box<dyn Fn(&TopicName) -> Option<String> + Send + Sync>;

/// The bundles that this broker and others own.
pub struct BundleOwnership {
    store: Arc<dyn MetadataStore>,
    bundle_of: BundleOf,
    /// After this time without a word from us others may take what we own.
    session_timeout: Duration,
    /// Our addresses as they are stored; empty until this broker serves.
    us: OnceLock<Bytes>,
    state: Mutex<OwnedBundles>,
    /// One at a time asks the store and notes what it says.
    turn: Semaphore,
    losses: watch::Sender<u64>,
}

#[derive(Default)]
struct OwnedBundles {
    /// The broker stops: nothing is taken any more.
    is_closed: bool,
    session: Option<Arc<dyn Session>>,
    /// When it was last renewed.
    renewed_at: clock::Nanos,
    ours: HashMap<String, Version>,
    others: HashMap<String, Arc<BrokerAddresses>>,
}

impl BundleOwnership {
    /// Owns nothing before [`serve`](Self::serve), and follows others while [`run`](Self::run) does.
    #[must_use]
    pub fn new(store: Arc<dyn MetadataStore>, session_timeout: Duration, bundle_of: BundleOf) -> Arc<Self> {
        Arc::new(Self {
            store,
            bundle_of,
            session_timeout,
            us: OnceLock::new(),
            state: Mutex::default(),
            turn: Semaphore::new(1),
            losses: watch::Sender::new(0),
        })
    }

    /// From now on bundles are taken for a broker that clients reach at `addresses`. Called once, when its listeners are open; a
    /// second call changes nothing.
    pub fn serve(&self, addresses: &BrokerAddresses) {
        let value = serde_json::to_vec(addresses).unwrap_or_default();
        let _ = self.us.set(Bytes::from(value));
    }

    /// Follows the store, renews the session, and notices its end. Returns when the store is shut down.
    ///
    /// Cancel safety: dropped, the session is left to its time-out.
    pub async fn run(self: Arc<Self>) {
        let mut watch = self.store.watch(PREFIX);
        self.look_again().await;
        let mut renewal = tokio::time::interval((self.session_timeout / 3).max(Duration::from_millis(1)));
        renewal.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let session = self.lock().session.clone();
            tokio::select! {
                event = watch.next() => match event {
                    None => return self.lose_all(None),
                    Some(Event::Lagged) => self.look_again().await,
                    Some(Event::Put { key, .. } | Event::Deleted { key }) => self.on_key(&key).await,
                },
                (id, why) = ended(session) => self.on_session_end(id, why),
                _ = renewal.tick() => self.renew().await,
            }
        }
    }

    /// Lets go of everything, for a broker that stops: others need not wait for the time-out. Topics are closed by then.
    pub async fn close(&self) {
        let session = {
            let mut state = self.lock();
            state.is_closed = true;
            state.session.clone()
        };
        self.lose_all(None);
        if let Some(session) = session {
            session.close().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, OwnedBundles> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn key_of(&self, topic: &TopicName) -> Option<String> {
        let bundle = (self.bundle_of)(topic)?;
        Some(format!("{PREFIX}{}/{bundle}", topic.namespace()))
    }

    fn owner_of_key(&self, key: &str) -> Owner {
        let state = self.lock();
        if state.ours.contains_key(key) {
            return Owner::Us;
        }
        match state.others.get(key) {
            Some(other) => Owner::Other(other.clone()),
            None => Owner::Unowned,
        }
    }

    /// What `session`, or any, held is lost.
    fn lose_all(&self, session: Option<SessionId>) {
        {
            let mut state = self.lock();
            let current = state.session.as_ref().map(|session| session.id());
            if session.is_some() && session != current {
                return;
            }
            state.session = None;
            state.ours.clear();
        }
        self.tell_loss();
    }

    fn tell_loss(&self) {
        self.losses.send_modify(|count| *count += 1);
    }

    fn on_session_end(&self, session: SessionId, why: SessionEnd) {
        if why != SessionEnd::Closed {
            tracing::warn!(%session, %why, "this broker owns no topics any more: its metadata session ended");
        }
        self.lose_all(Some(session));
    }

    /// The session, opened if there is none.
    async fn session(&self) -> Result<Arc<dyn Session>, OwnershipError> {
        if let Some(session) = self.lock().session.clone() {
            return Ok(session);
        }
        let asked_at = clock::now();
        let opened = self.store.open_session(self.session_timeout).await;
        let opened = opened.map_err(|error| match error {
            SessionError::Ended(why) => OwnershipError::SessionEnded(why),
            SessionError::Fault(_) => OwnershipError::NotReady("the metadata store gives no session"),
        })?;
        let is_closed = {
            let mut state = self.lock();
            state.renewed_at = asked_at;
            state.session = (!state.is_closed).then(|| opened.clone());
            state.is_closed
        };
        if is_closed {
            opened.close().await;
            return Err(OwnershipError::NotReady("it is stopping"));
        }
        Ok(opened)
    }

    async fn renew(&self) {
        let Some(session) = self.lock().session.clone() else {
            return;
        };
        let asked_at = clock::now();
        let renewed = tokio::time::timeout(self.session_timeout / 3, session.renew()).await;
        match renewed {
            Ok(Ok(())) => self.lock().renewed_at = asked_at,
            Ok(Err(SessionError::Ended(why))) => self.on_session_end(session.id(), why),
            // It may live, but from the time-out on others may count on its end.
            Ok(Err(SessionError::Fault(_))) | Err(_) => {
                let since = clock::now().since(self.lock().renewed_at);
                if u128::from(since) >= self.session_timeout.as_nanos() {
                    tracing::warn!("this broker owns no topics any more: it cannot reach the metadata store");
                    self.lose_all(Some(session.id()));
                }
            }
        }
    }

    /// A key changed: what it is now is what counts.
    async fn on_key(&self, key: &str) {
        let Ok(_turn) = self.turn.acquire().await else {
            return;
        };
        if let Err(error) = self.look_at(key).await {
            tracing::warn!(key, %error, "who owns a bundle is not known");
        }
    }

    /// Looks at every key: at the start, and when changes were missed.
    async fn look_again(&self) {
        let Ok(_turn) = self.turn.acquire().await else {
            return;
        };
        let mut keys = match self.store.list(PREFIX).await {
            Ok(keys) => keys,
            Err(error) => {
                tracing::warn!(%error, "the owners of bundles are not known");
                return;
            }
        };
        {
            let state = self.lock();
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
        let found = self.store.get(key).await?;
        let (lost, left) = self.note(key, found);
        if lost {
            self.tell_loss();
        }
        Ok(left)
    }

    /// Notes what is stored. Says whether it was ours and is no more, and the version of what an earlier life left.
    fn note(&self, key: &str, found: Option<Versioned>) -> (bool, Option<Version>) {
        let mut state = self.lock();
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
        if self.us.get() == Some(&found.value) {
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

    async fn take(&self, topic: &TopicName) -> Result<Owner, OwnershipError> {
        let no_bundle = || OwnershipError::NoBundle(topic.clone());
        let key = self.key_of(topic).ok_or_else(no_bundle)?;
        let value = self.us.get().ok_or(OwnershipError::NotReady("it is starting"))?;
        let closed = |_| OwnershipError::NotReady("it is stopping");
        let _turn = self.turn.acquire().await.map_err(closed)?;
        for _ in 0..TRIES {
            match self.owner_of_key(&key) {
                Owner::Unowned => {}
                owner => return Ok(owner),
            }
            let session = self.session().await?;
            match session.put(&key, value.clone(), Expect::Absent).await {
                Ok(version) => return self.note_taken(&*session, key, version),
                Err(SessionWriteError::Write(WriteError::Conflict { .. })) => {
                    if let Some(left) = self.look_at(&key).await? {
                        self.forget_earlier_life(&key, left).await?;
                    }
                }
                Err(SessionWriteError::Ended(why)) => {
                    self.on_session_end(session.id(), why);
                    return Err(OwnershipError::SessionEnded(why));
                }
                Err(SessionWriteError::Write(error)) => return Err(error.into()),
            }
        }
        Err(OwnershipError::NotReady("others take and leave the bundle"))
    }

    /// The key is put: it is ours, unless the session was lost meanwhile.
    fn note_taken(
        &self,
        session: &dyn Session,
        key: String,
        version: Version,
    ) -> Result<Owner, OwnershipError> {
        let mut state = self.lock();
        let current = state.session.as_ref().map(|session| session.id());
        if current != Some(session.id()) {
            return Err(OwnershipError::NotReady("its session ended a moment ago"));
        }
        state.others.remove(&key);
        state.ours.insert(key, version);
        Ok(Owner::Us)
    }

    async fn forget_earlier_life(&self, key: &str, version: Version) -> Result<(), OwnershipError> {
        match self.store.delete(key, Expect::Version(version)).await {
            Ok(_) | Err(WriteError::Conflict { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

async fn ended(session: Option<Arc<dyn Session>>) -> (SessionId, SessionEnd) {
    match session {
        Some(session) => (session.id(), session.ended().await),
        None => std::future::pending().await,
    }
}

impl Ownership for BundleOwnership {
    fn owner_of(&self, topic: &TopicName) -> Owner {
        match self.key_of(topic) {
            Some(key) => self.owner_of_key(&key),
            None => Owner::Unowned,
        }
    }

    fn acquire<'a>(&'a self, topic: &'a TopicName) -> BoxFuture<'a, Result<Owner, OwnershipError>> {
        Box::pin(self.take(topic))
    }

    fn losses(&self) -> watch::Receiver<u64> {
        self.losses.subscribe()
    }
}

impl std::fmt::Debug for BundleOwnership {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BundleOwnership")
            .field("us", &self.us.get())
            .finish_non_exhaustive()
    }
}
