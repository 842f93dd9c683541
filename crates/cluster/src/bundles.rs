//! Ownership of bundles by ephemeral keys.
//!
//! ```text
//! namespace/<tenant>/<namespace>/<0xlow_0xhigh>    ephemeral, of the owner's session: BrokerAddresses
//! ```
//! A broker that is asked for a topic whose bundle has no key puts the key, if it is still absent; exactly one of several that
//! try at once succeeds. When the owner's session ends, its keys go and the next broker that is asked takes the bundle. The session
//! is kept by [`keeping`](crate::keeping).
//!
//! What is known: `ours` is exact, changed after the store has answered by the one who holds `turn`, and emptied when the
//! session is lost; `others` follows the store's watch, so it may be a moment old. A key with our own addresses that no session of
//! this process made is what an earlier life of this broker left: it is deleted when the bundle is asked for.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use pharos_metadata::{
    BoxFuture, Event, Expect, MetadataStore, Session, SessionError, SessionWriteError, Version, Versioned,
    WriteError,
};
use pharos_runtime::clock;
use pharos_types::TopicName;
use tokio::sync::{Notify, Semaphore, watch};

use crate::arriving::{Taking, wait_while_taking};
use crate::assign::{ApartFrom, Assigned, CandidatesOf, note_assigned, place_apart};
use crate::handover::NOTES;
use crate::keeping::{REGISTRY, ended};
use crate::leader::LEADER;
use crate::reports::{Loads, look_at_broker};
use crate::{BrokerAddresses, HandoverError, LoadReport, Owner, Ownership, OwnershipError};

/// Below it are the keys of bundles.
pub(crate) const PREFIX: &str = "namespace/";

/// How often a bundle is tried for that another broker takes and leaves meanwhile.
const TRIES: usize = 5;

/// Says in which bundle of its namespace a topic is, as `0x40000000_0x80000000`; it must not wait.
pub type BundleOf = Box<dyn Fn(&TopicName) -> Option<String> + Send + Sync>;

/// How long others wait for a broker, and it for the store.
#[derive(Clone, Copy, Debug)]
pub struct SessionOptions {
    /// After this time without a word from us others may take what we own.
    pub timeout: Duration,
    /// How long what is loaded is served on while the metadata store cannot be reached; `None` for as long as it takes.
    pub outage_max: Option<Duration>,
}

/// The bundles that this broker and others own.
pub struct BundleOwnership {
    pub(crate) store: Arc<dyn MetadataStore>,
    bundle_of: BundleOf,
    pub(crate) options: SessionOptions,
    /// Our addresses as they are stored; empty until this broker serves.
    us: OnceLock<Bytes>,
    /// Which brokers may have what; without it any may.
    pub(crate) candidates: OnceLock<CandidatesOf>,
    /// Which bundles are to be at different brokers; without it none.
    pub(crate) apart_from: OnceLock<ApartFrom>,
    /// The key under which we are registered.
    pub(crate) registration: OnceLock<String>,
    pub(crate) state: Mutex<OwnedBundles>,
    /// One at a time asks the store and notes what it says.
    pub(crate) turn: Semaphore,
    losses: watch::Sender<u64>,
    /// Moves when what is known of others changes.
    pub(crate) changes: watch::Sender<u64>,
    /// A session is wanted now.
    pub(crate) wanted: Notify,
}

#[derive(Default)]
pub(crate) struct OwnedBundles {
    /// The broker stops: nothing is taken and no log opened any more.
    pub(crate) is_closing: bool,
    pub(crate) session: Option<Arc<dyn Session>>,
    /// When it was last renewed.
    pub(crate) renewed_at: clock::Nanos,
    /// Since when the store cannot be reached and there is no session; what is loaded is served on.
    pub(crate) lapsed_at: Option<clock::Nanos>,
    pub(crate) ours: HashMap<String, Version>,
    pub(crate) others: HashMap<String, Arc<BrokerAddresses>>,
    /// The key that the store is asked for now.
    pub(crate) taking: Option<String>,
    /// Bundles that are given to other brokers, by their key.
    pub(crate) assigned: HashMap<String, Assigned>,
    /// Bundles that are handed over, by their key, and to whom.
    pub(crate) notes: HashMap<String, String>,
    /// Who leads.
    pub(crate) leader: Option<Arc<BrokerAddresses>>,
    /// The brokers that are registered.
    pub(crate) brokers: BTreeSet<String>,
    /// What they say of their load.
    pub(crate) loads: Loads,
}

impl BundleOwnership {
    /// Owns nothing before [`serve`](Self::serve), and follows others while [`run`](Self::run) does.
    #[must_use]
    pub fn new(store: Arc<dyn MetadataStore>, options: SessionOptions, bundle_of: BundleOf) -> Arc<Self> {
        Arc::new(Self {
            store,
            bundle_of,
            options,
            us: OnceLock::new(),
            candidates: OnceLock::new(),
            apart_from: OnceLock::new(),
            registration: OnceLock::new(),
            state: Mutex::default(),
            turn: Semaphore::new(1),
            losses: watch::Sender::new(0),
            changes: watch::Sender::new(0),
            wanted: Notify::new(),
        })
    }

    /// From now on this broker is registered, and bundles are taken for it: clients reach it at `addresses`. Called once, when its
    /// listeners are open; a second call changes nothing.
    pub fn serve(&self, addresses: &BrokerAddresses) {
        let value = serde_json::to_vec(addresses).unwrap_or_default();
        let _ = self
            .registration
            .set(format!("{REGISTRY}{}", addresses.broker_id()));
        let _ = self.us.set(Bytes::from(value));
        self.wanted.notify_one();
    }

    /// Our addresses as they are stored, once we serve.
    pub(crate) fn us(&self) -> Option<&Bytes> {
        self.us.get()
    }

    /// Follows the store, keeps the session, and notices its end. Returns when the store is shut down.
    ///
    /// Cancel safety: dropped, the session is left to its time-out.
    pub async fn run(self: Arc<Self>) {
        let mut bundles = self.store.watch(PREFIX);
        let mut brokers = self.store.watch(REGISTRY);
        let mut notes = self.store.watch(NOTES);
        let mut leader = self.store.watch(LEADER);
        self.look_again().await;
        self.look_at_brokers().await;
        self.look_at_notes().await;
        self.look_at_leader().await;
        let mut keeping = tokio::time::interval((self.options.timeout / 3).max(Duration::from_millis(1)));
        keeping.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            note_assigned(&self).await;
            let session = self.lock().session.clone();
            tokio::select! {
                event = bundles.next() => match event {
                    None => return self.lose_all("the metadata store was shut down"),
                    Some(Event::Lagged) => self.look_again().await,
                    Some(Event::Put { key, .. } | Event::Deleted { key }) => self.on_key(&key).await,
                },
                event = brokers.next() => match event {
                    None => return self.lose_all("the metadata store was shut down"),
                    Some(Event::Put { key, .. }) => look_at_broker(&self, &key).await,
                    Some(Event::Deleted { .. } | Event::Lagged) => self.look_at_brokers().await,
                },
                event = notes.next() => match event {
                    None => return self.lose_all("the metadata store was shut down"),
                    Some(_) => self.look_at_notes().await,
                },
                event = leader.next() => match event {
                    None => return self.lose_all("the metadata store was shut down"),
                    Some(_) => self.look_at_leader().await,
                },
                (id, why) = ended(session) => {
                    self.on_session_end(id, why);
                    self.keep_session().await;
                    self.look_at_leader().await;
                }
                _ = keeping.tick() => {
                    self.keep_session().await;
                    self.look_at_leader().await;
                }
                () = self.wanted.notified() => {
                    self.keep_session().await;
                    self.look_at_leader().await;
                }
            }
        }
    }

    /// From now on no bundle is taken and no topic is opened. What is owned stays so until [`close`](Self::close).
    pub fn begin_close(&self) {
        self.lock().is_closing = true;
    }

    /// Lets go of everything, for a broker that stops: others need not wait for the time-out. Topics are closed by then.
    pub async fn close(&self) {
        let session = {
            let mut state = self.lock();
            state.is_closing = true;
            state.session.clone()
        };
        self.lose_all("this broker stops");
        if let Some(session) = session {
            session.close().await;
        }
    }

    /// Whether other brokers know of this one: it serves and has a session.
    #[must_use]
    pub fn is_registered(&self) -> bool {
        self.lock().session.is_some()
    }

    /// Since how long the metadata store cannot be reached and this broker has no session; `None` while it has one.
    #[must_use]
    pub fn lapsed_for(&self) -> Option<Duration> {
        let lapsed_at = self.lock().lapsed_at?;
        Some(Duration::from_nanos(clock::now().since(lapsed_at)))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, OwnedBundles> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn key_of(&self, topic: &TopicName) -> Option<String> {
        let bundle = (self.bundle_of)(topic)?;
        Some(format!("{PREFIX}{}/{bundle}", topic.namespace()))
    }

    pub(crate) fn owner_of_key(&self, key: &str) -> Owner {
        let state = self.lock();
        if state.ours.contains_key(key) {
            return Owner::Us;
        }
        match state.others.get(key) {
            Some(other) => Owner::Other(other.clone()),
            None => Owner::Unowned,
        }
    }

    /// Everything that we own is another's from now on, or may be.
    pub(crate) fn lose_all(&self, why: &str) {
        let lost = {
            let mut state = self.lock();
            state.session = None;
            state.lapsed_at = None;
            std::mem::take(&mut state.ours).len()
        };
        if lost > 0 {
            tracing::warn!(bundles = lost, why, "this broker owns no topics any more");
        }
        self.tell_loss();
    }

    pub(crate) fn tell_loss(&self) {
        self.losses.send_modify(|count| *count += 1);
    }

    pub(crate) fn tell_change(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    /// A key changed: what it is now is what counts.
    async fn on_key(&self, key: &str) {
        {
            let Ok(_turn) = self.turn.acquire().await else {
                return;
            };
            if let Err(error) = self.look_at(key).await {
                tracing::warn!(key, %error, "who owns a bundle is not known");
            }
        }
        self.receive(key).await;
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
        self.tell_change();
        Ok(left)
    }

    /// Notes what is stored. Says whether it was ours and is no more, and the version of what an earlier life left.
    fn note(&self, key: &str, found: Option<Versioned>) -> (bool, Option<Version>) {
        let mut state = self.lock();
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
        self.place(self.key_of(topic).ok_or_else(no_bundle)?).await
    }

    pub(crate) async fn take_key(&self, key: String) -> Result<Owner, OwnershipError> {
        let value = self.us.get().ok_or(OwnershipError::NotReady("it is starting"))?;
        let closed = |_| OwnershipError::NotReady("it is stopping");
        let _turn = self.turn.acquire().await.map_err(closed)?;
        for _ in 0..TRIES {
            match self.owner_of_key(&key) {
                Owner::Unowned => {}
                owner => return Ok(owner),
            }
            if self.is_promised(&key).await? {
                return Err(OwnershipError::NotReady("the bundle goes to another one"));
            }
            let session = self.session().await?;
            let _taking = Taking::begin(self, &key);
            match session.put(&key, value.clone(), Expect::Absent).await {
                Ok(version) => return self.note_taken(&*session, key, version),
                Err(SessionWriteError::Write(WriteError::Conflict { .. })) => {
                    if let Some(left) = self.look_at(&key).await? {
                        forget_earlier_life(&*self.store, &key, left).await?;
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

    /// Deletes our key of a topic's bundle.
    async fn let_go(&self, topic: &TopicName) -> Result<(), OwnershipError> {
        let Some(key) = self.key_of(topic) else {
            return Ok(());
        };
        {
            let stopping = |_| OwnershipError::NotReady("it is stopping");
            let _turn = self.turn.acquire().await.map_err(stopping)?;
            let Some(version) = self.lock().ours.remove(&key) else {
                return Ok(());
            };
            forget_earlier_life(&*self.store, &key, version).await?;
        }
        // What came to be loaded meanwhile is closed.
        self.tell_loss();
        self.tell_change();
        Ok(())
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

    /// The session is asked, not the table: while it lives, the keys that it put are there.
    async fn ask(&self, topic: &TopicName) -> Result<bool, OwnershipError> {
        let session = {
            let state = self.lock();
            if state.is_closing {
                return Err(OwnershipError::NotReady("it is stopping"));
            }
            state.session.clone()
        };
        let session = session.ok_or(OwnershipError::NotReady(
            "it has no session of the metadata store",
        ))?;
        self.renew(&session).await.map_err(|error| match error {
            SessionError::Ended(why) => OwnershipError::SessionEnded(why),
            SessionError::Fault(_) => OwnershipError::NotReady("the metadata store does not answer"),
        })?;
        if self.owner_of(topic) == Owner::Us {
            self.wait_for_last_owner(topic).await;
        }
        Ok(self.owner_of(topic) == Owner::Us)
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

    fn acquire_apart<'a>(
        &'a self,
        topic: &'a TopicName,
        turn: u32,
    ) -> BoxFuture<'a, Result<Owner, OwnershipError>> {
        Box::pin(async move {
            let key = self
                .key_of(topic)
                .ok_or_else(|| OwnershipError::NoBundle(topic.clone()))?;
            place_apart(self, key, turn).await
        })
    }

    fn confirm<'a>(&'a self, topic: &'a TopicName) -> BoxFuture<'a, Result<bool, OwnershipError>> {
        Box::pin(self.ask(topic))
    }

    fn settle<'a>(&'a self, topic: &'a TopicName) -> BoxFuture<'a, ()> {
        Box::pin(wait_while_taking(self, topic))
    }

    fn owner_of_bundle(&self, bundle: &str) -> Owner {
        self.owner_of_key(&format!("{PREFIX}{bundle}"))
    }

    fn take_bundle<'a>(&'a self, bundle: &'a str) -> BoxFuture<'a, Result<Owner, OwnershipError>> {
        Box::pin(self.place_bundle(format!("{PREFIX}{bundle}")))
    }

    fn bundles(&self) -> BTreeSet<String> {
        let state = self.lock();
        let names = state.ours.keys().filter_map(|key| key.strip_prefix(PREFIX));
        names.map(str::to_owned).collect()
    }

    fn release<'a>(&'a self, topic: &'a TopicName) -> BoxFuture<'a, Result<(), OwnershipError>> {
        Box::pin(self.let_go(topic))
    }

    fn leader(&self) -> Option<Arc<BrokerAddresses>> {
        self.lock().leader.clone()
    }

    fn hand_over<'a>(&'a self, bundle: &'a str, to: &'a str) -> BoxFuture<'a, Result<(), HandoverError>> {
        Box::pin(self.give(bundle, to))
    }

    fn end_handover<'a>(&'a self, bundle: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(Self::end_handover(self, bundle))
    }

    fn brokers(&self) -> Option<Vec<String>> {
        Some(self.lock().brokers.iter().cloned().collect())
    }

    fn load_report(&self) -> Option<LoadReport> {
        self.lock().loads.own().cloned()
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
