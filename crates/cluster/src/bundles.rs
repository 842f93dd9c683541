//! Ownership of bundles by ephemeral keys.
//!
//! ```text
//! namespace/<tenant>/<namespace>/<0xlow_0xhigh>    ephemeral, of the owner's session: BrokerAddresses
//! ```
//! A broker that is asked for a topic whose bundle has no key puts the key, if it is still absent; exactly one of several that
//! try at once succeeds. When the owner's session ends, its keys go and the next broker that is asked takes the bundle. The session
//! is kept by [`keeping`](crate::keeping), the keys are put and looked at by [`keys`](crate::keys).
//!
//! What is known: `ours` is exact, changed after the store has answered by the one who holds `turn`, and emptied when the
//! session is lost; `others` follows the store's watch, so it may be a moment old. A key with our own addresses that no session of
//! this process made is what an earlier life of this broker left: it is deleted when the bundle is asked for.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use pharos_metadata::{BoxFuture, Event, MetadataStore, Session, SessionError, Version};
use pharos_runtime::clock;
use pharos_types::TopicName;
use tokio::sync::{Notify, Semaphore, watch};

use crate::arriving::wait_while_taking;
use crate::assign::{ApartFrom, Assigned, CandidatesOf, Placing};
use crate::handover::{Handover, NOTES};
use crate::keeping::{Keeping, REGISTRY, ended};
use crate::keys::Keys;
use crate::leader::LEADER;
use crate::reports::{Loads, look_at_broker};
use crate::{BrokerAddresses, HandoverError, LoadReport, Owner, Ownership, OwnershipError};

/// Below it are the keys of bundles.
pub(crate) const PREFIX: &str = "namespace/";

/// Says in which bundle of its namespace a topic is, as `0x40000000_0x80000000`; it must not wait.
pub type BundleOf = Box<dyn Fn(&TopicName) -> Option<String> + Send + Sync>;

/// Session timeouts: of other brokers for this broker, and of this broker for the store.
#[derive(Clone, Copy, Debug)]
pub struct SessionOptions {
    /// After this time without a word from us others may take what we own.
    pub timeout: Duration,
    /// Maximum time that loaded topics are served while the metadata store cannot be reached; `None` is unlimited.
    pub outage_max: Option<Duration>,
}

/// The bundles that this broker and others own.
pub struct BundleOwnership {
    pub(crate) store: Arc<dyn MetadataStore>,
    bundle_of: BundleOf,
    pub(crate) options: SessionOptions,
    /// Our addresses as they are stored; empty until this broker serves.
    us: OnceLock<Bytes>,
    /// Brokers allowed for each namespace; without it any broker is.
    pub(crate) candidates: OnceLock<CandidatesOf>,
    /// Bundles that should be at different brokers; without it none.
    pub(crate) apart_from: OnceLock<ApartFrom>,
    /// The key under which we are registered.
    pub(crate) registration: OnceLock<String>,
    pub(crate) state: Mutex<OwnedBundles>,
    /// Permit to ask the store and to note its answer, one at a time.
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
    /// Time of the last renewal.
    pub(crate) renewed_at: clock::Nanos,
    /// Time since which the store cannot be reached and there is no session; loaded topics are still served.
    pub(crate) lapsed_at: Option<clock::Nanos>,
    pub(crate) ours: HashMap<String, Version>,
    pub(crate) others: HashMap<String, Arc<BrokerAddresses>>,
    /// The key that the store is asked for now.
    pub(crate) taking: Option<String>,
    /// Bundles that are given to other brokers, by their key.
    pub(crate) assigned: HashMap<String, Assigned>,
    /// Bundles that are handed over, by their key, and to whom.
    pub(crate) notes: HashMap<String, String>,
    /// Current leader.
    pub(crate) leader: Option<Arc<BrokerAddresses>>,
    /// The brokers that are registered.
    pub(crate) brokers: BTreeSet<String>,
    /// Load reports of the registered brokers.
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

    /// Returns the broker's id, once it serves.
    pub(crate) fn id(&self) -> Option<&str> {
        self.registration.get()?.strip_prefix(REGISTRY)
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
        Keys(&self).look_again().await;
        Keeping(&self).look_at_brokers().await;
        Handover(&self).look_at_notes().await;
        self.look_at_leader().await;
        let mut keeping = tokio::time::interval((self.options.timeout / 3).max(Duration::from_millis(1)));
        keeping.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            Placing(&self).note_assigned().await;
            let session = self.lock().session.clone();
            tokio::select! {
                event = bundles.next() => match event {
                    None => return self.lose_all("the metadata store was shut down"),
                    Some(Event::Lagged) => Keys(&self).look_again().await,
                    Some(Event::Put { key, .. } | Event::Deleted { key }) => Keys(&self).on_change(&key).await,
                },
                event = brokers.next() => match event {
                    None => return self.lose_all("the metadata store was shut down"),
                    Some(Event::Put { key, .. }) => look_at_broker(&self, &key).await,
                    Some(Event::Deleted { .. } | Event::Lagged) => Keeping(&self).look_at_brokers().await,
                },
                event = notes.next() => match event {
                    None => return self.lose_all("the metadata store was shut down"),
                    Some(_) => Handover(&self).look_at_notes().await,
                },
                event = leader.next() => match event {
                    None => return self.lose_all("the metadata store was shut down"),
                    Some(_) => self.look_at_leader().await,
                },
                (id, why) = ended(session) => {
                    Keeping(&self).on_end(id, why);
                    Keeping(&self).keep().await;
                    self.look_at_leader().await;
                }
                _ = keeping.tick() => {
                    Keeping(&self).keep().await;
                    self.look_at_leader().await;
                }
                () = self.wanted.notified() => {
                    Keeping(&self).keep().await;
                    self.look_at_leader().await;
                }
            }
        }
    }

    /// From now on no bundle is taken and no topic is opened. What is owned stays so until [`close`](Self::close).
    pub fn begin_close(&self) {
        self.lock().is_closing = true;
    }

    /// Gives every bundle to one of the other brokers, in turn, for a broker that is about to stop: its clients are told where to go when
    /// their topics are closed. What cannot be given has no owner when this broker is gone.
    pub async fn give_all(&self) {
        Handover(self).give_all().await;
    }

    /// From now on bundles without an owner go to brokers that `candidates` names. A second call changes nothing.
    pub fn restrict(&self, candidates: CandidatesOf) {
        let _ = self.candidates.set(candidates);
    }

    /// From now on a bundle goes to a broker that has none of those from which it is to be apart, where there is one. A second call
    /// changes nothing.
    pub fn keep_apart(&self, apart_from: ApartFrom) {
        let _ = self.apart_from.set(apart_from);
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

    /// True if other brokers know of this one: it serves and has a session.
    #[must_use]
    pub fn is_registered(&self) -> bool {
        self.lock().session.is_some()
    }

    /// Returns the time for which the metadata store has been unreachable and this broker has had no session; `None`
    /// while it has one.
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

    async fn take(&self, topic: &TopicName) -> Result<Owner, OwnershipError> {
        let no_bundle = || OwnershipError::NoBundle(topic.clone());
        Placing(self)
            .place(self.key_of(topic).ok_or_else(no_bundle)?)
            .await
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
        Keeping(self).renew(&session).await.map_err(|error| match error {
            SessionError::Ended(why) => OwnershipError::SessionEnded(why),
            SessionError::Fault(_) => OwnershipError::NotReady("the metadata store does not answer"),
        })?;
        if self.owner_of(topic) == Owner::Us {
            Handover(self).wait_for_last_owner(topic).await;
        }
        Ok(self.owner_of(topic) == Owner::Us)
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
            Placing(self).place_apart(key, turn).await
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
        Box::pin(async move { Placing(self).place_bundle(format!("{PREFIX}{bundle}")).await })
    }

    fn bundles(&self) -> BTreeSet<String> {
        let state = self.lock();
        let names = state.ours.keys().filter_map(|key| key.strip_prefix(PREFIX));
        names.map(str::to_owned).collect()
    }

    fn release<'a>(&'a self, topic: &'a TopicName) -> BoxFuture<'a, Result<(), OwnershipError>> {
        Box::pin(async move { Keys(self).release(topic).await })
    }

    fn leader(&self) -> Option<Arc<BrokerAddresses>> {
        self.lock().leader.clone()
    }

    fn hand_over<'a>(&'a self, bundle: &'a str, to: &'a str) -> BoxFuture<'a, Result<(), HandoverError>> {
        Box::pin(async move { Handover(self).give(bundle, to).await })
    }

    fn end_handover<'a>(&'a self, bundle: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(async move { Handover(self).end(bundle).await })
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
