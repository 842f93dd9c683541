//! Bundles that go to another broker that is named, without a moment in which a client could find none.
//!
//! ```text
//! loadbalance/handover/<tenant>/<namespace>/<bundle>    ephemeral, of the one who gives: the id of the one who takes
//!
//!   gives    puts the note ─ deletes its key ─ sees the other's key ─ closes the topics: clients hear where ─ deletes the note
//!   takes        sees the note ────────── puts its key ───────────── logs wait ─────────────────────────────── opens them
//! ```
//! While there is a note no third broker takes the bundle. What waits for the end of it waits a bounded time: then a log is opened
//! all the same, which fences the last owner, as when a broker dies. A broker that dies takes its notes with it.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use pharos_metadata::{Expect, SessionWriteError, Version, WriteError};
use pharos_runtime::many;
use pharos_types::TopicName;

use crate::assign::Placing;
use crate::bundles::PREFIX;
use crate::keys::Keys;
use crate::{BundleOwnership, Owner, OwnershipError};

/// Below it are the notes.
pub(crate) const NOTES: &str = "loadbalance/handover/";

/// Time limit for a broker to put its key, besides its other work.
pub(crate) const TAKEN_MAX: Duration = Duration::from_secs(3);

/// Time limit for the last owner to close its topics.
const CLOSED_MAX: Duration = Duration::from_secs(5);

/// Reason why a bundle was not transferred to another broker.
#[derive(Debug, Clone, thiserror::Error)]
pub enum HandoverError {
    /// There is no other broker.
    #[error("there is no other broker")]
    Alone,
    /// This broker does not own the bundle.
    #[error("this broker does not own the bundle")]
    NotOurs,
    /// No broker is registered under that id.
    #[error("no broker is registered as {0}")]
    NoSuchBroker(String),
    /// The named broker already owns it.
    #[error("{0} has the bundle")]
    HasIt(String),
    /// The bundle is already being transferred to another broker.
    #[error("the bundle is being handed over")]
    UnderWay,
    /// The other broker did not take it in time. It has no owner now, and the next lookup gives it one.
    #[error("{0} has not taken the bundle")]
    NotTaken(String),
    /// The metadata store.
    #[error(transparent)]
    Store(#[from] OwnershipError),
}

/// Bundles on their way between brokers that are named.
pub(crate) struct Handover<'a>(pub(crate) &'a BundleOwnership);

impl Handover<'_> {
    /// Returns the broker to which the bundle of a key is being transferred.
    pub(crate) fn handed_to(&self, key: &str) -> Option<String> {
        self.0.lock().notes.get(key).cloned()
    }

    /// True if the bundle is assigned to another broker. The store is asked: local knowledge of notes is a moment
    /// old.
    pub(crate) async fn is_promised(&self, key: &str) -> Result<bool, OwnershipError> {
        let Some(bundle) = key.strip_prefix(PREFIX) else {
            return Ok(false);
        };
        let note = self.0.store.get(&format!("{NOTES}{bundle}")).await?;
        Ok(note.is_some_and(|note| self.0.id().map(str::as_bytes) != Some(&*note.value)))
    }

    /// Hands the bundle `<tenant>/<namespace>/<range>` to the broker `to`, which has it when this returns. Its topics are to be closed
    /// then, and [`end`](Self::end) is to be called.
    pub(crate) async fn give(&self, bundle: &str, to: &str) -> Result<(), HandoverError> {
        let key = format!("{PREFIX}{bundle}");
        let (session, version) = {
            let state = self.0.lock();
            let version = *state.ours.get(&key).ok_or(HandoverError::NotOurs)?;
            if self.0.id() == Some(to) {
                return Err(HandoverError::HasIt(to.to_owned()));
            }
            if !state.brokers.contains(to) {
                return Err(HandoverError::NoSuchBroker(to.to_owned()));
            }
            (state.session.clone(), version)
        };
        let no_session = OwnershipError::NotReady("it has no session of the metadata store");
        let session = session.ok_or(no_session)?;
        let note = session.put(
            &format!("{NOTES}{bundle}"),
            Bytes::from(to.to_owned()),
            Expect::Absent,
        );
        match note.await {
            Ok(_) => {}
            Err(SessionWriteError::Write(WriteError::Conflict { .. })) => {
                return Err(HandoverError::UnderWay);
            }
            Err(SessionWriteError::Write(error)) => return Err(OwnershipError::from(error).into()),
            Err(SessionWriteError::Ended(why)) => return Err(OwnershipError::SessionEnded(why).into()),
        }
        let given = self.give_up(&key, version, to).await;
        if given.is_err() {
            // What is loaded of it is not certain to be ours any more.
            self.0.tell_loss();
            self.end(bundle).await;
        }
        given
    }

    /// Deletes our key and waits for that of the other broker.
    async fn give_up(&self, key: &str, version: Version, to: &str) -> Result<(), HandoverError> {
        let mut changes = self.0.changes.subscribe();
        {
            let stopping = |_| OwnershipError::NotReady("it is stopping");
            let _turn = self.0.turn.acquire().await.map_err(stopping)?;
            self.0.lock().ours.remove(key);
            match self.0.store.delete(key, Expect::Version(version)).await {
                Ok(_) | Err(WriteError::Conflict { .. }) => {}
                Err(error) => return Err(OwnershipError::from(error).into()),
            }
        }
        let taken = async {
            loop {
                changes.mark_unchanged();
                match self.0.owner_of_key(key) {
                    Owner::Other(owner) if owner.broker_id() == to => return true,
                    Owner::Other(_) | Owner::Us => return false,
                    Owner::Unowned => {}
                }
                if changes.changed().await.is_err() {
                    return false;
                }
            }
        };
        match tokio::time::timeout(TAKEN_MAX, taken).await {
            Ok(true) => Ok(()),
            Ok(false) | Err(_) => Err(HandoverError::NotTaken(to.to_owned())),
        }
    }

    /// The topics are closed: the next owner may open them.
    pub(crate) async fn end(&self, bundle: &str) {
        let note = format!("{NOTES}{bundle}");
        if let Err(error) = self.0.store.delete(&note, Expect::Any).await
            && !matches!(error, WriteError::Conflict { .. })
        {
            tracing::warn!(bundle, %error, "the next owner of a bundle waits for longer than it must");
        }
    }

    /// Gives every bundle to one of the other brokers, in turn.
    pub(crate) async fn give_all(&self) {
        let (mut bundles, others) = {
            let state = self.0.lock();
            let ours = state.ours.keys().filter_map(|key| key.strip_prefix(PREFIX));
            let others = state.brokers.iter().filter(|id| self.0.id() != Some(id));
            (
                ours.map(str::to_owned).collect::<Vec<_>>(),
                others.cloned().collect::<Vec<_>>(),
            )
        };
        if others.is_empty() {
            return;
        }
        bundles.sort_unstable();
        let next = |(turn, bundle): (usize, &String)| {
            let allowed = Placing(self.0).allowed(bundle, &others);
            let to = allowed.get(turn % allowed.len().max(1))?;
            Some((bundle.clone(), to.clone()))
        };
        let pairs = bundles.iter().enumerate().filter_map(next);
        let give = |(bundle, to): (String, String)| async move { (self.give(&bundle, &to).await, bundle) };
        let note = |(given, bundle): (Result<(), HandoverError>, String)| {
            if let Err(error) = given {
                tracing::info!(bundle, %error, "a bundle is left without an owner");
            }
            Ok::<(), ()>(())
        };
        // Longer than for one bundle, in case that one of the others is gone.
        let all = tokio::time::timeout(2 * TAKEN_MAX, many(pairs, give, note));
        if all.await.is_err() {
            tracing::info!("other brokers are slow to take bundles");
        }
    }

    /// Reads all notes, and takes what they promise us.
    pub(crate) async fn look_at_notes(&self) {
        let found = match self.0.store.list(NOTES).await {
            Ok(found) => found,
            Err(error) => {
                tracing::warn!(%error, "which bundles are handed over is not known");
                return;
            }
        };
        let mut notes = HashMap::new();
        for note in found {
            let Ok(Some(value)) = self.0.store.get(&note).await else {
                continue;
            };
            let to = String::from_utf8_lossy(&value.value).into_owned();
            // A node above the notes of a namespace is empty.
            if let Some(bundle) = note.strip_prefix(NOTES).filter(|_| !to.is_empty()) {
                notes.insert(format!("{PREFIX}{bundle}"), to);
            }
        }
        let promised: Vec<String> = {
            let mut state = self.0.lock();
            state.notes = notes;
            state.notes.keys().cloned().collect()
        };
        self.0.tell_change();
        for key in promised {
            self.receive(&key).await;
        }
    }

    /// Takes a bundle that is promised to us, once its last owner has let go.
    pub(crate) async fn receive(&self, key: &str) {
        let is_ours = self.handed_to(key).is_some_and(|to| self.0.id() == Some(&*to));
        if !is_ours || self.0.owner_of_key(key) != Owner::Unowned {
            return;
        }
        match Keys(self.0).take(key.to_owned()).await {
            Ok(_) => self.0.lock().loads.came(key),
            Err(error) => tracing::warn!(key, %error, "a bundle that is handed to this broker is not taken"),
        }
    }

    /// Waits until the last owner of the bundle has closed its topics.
    pub(crate) async fn wait_for_last_owner(&self, topic: &TopicName) {
        let Some(key) = self.0.key_of(topic) else { return };
        let mut changes = self.0.changes.subscribe();
        let closed = async { while self.handed_to(&key).is_some() && changes.changed().await.is_ok() {} };
        if tokio::time::timeout(CLOSED_MAX, closed).await.is_err() {
            tracing::warn!(%topic, "its last owner is slow to close it; its log is opened all the same");
        }
    }
}
