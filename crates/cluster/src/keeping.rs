//! The session of a broker: opened, renewed, lost; and the key by which other brokers know that it is there.
//!
//! ```text
//! loadbalance/brokers/<host:port>    ephemeral: the addresses of a broker
//!
//!            the servers say so, or another broker has a key ──► everything is lost at once, topics are closed
//!  live ─────┤
//!            no word from the servers for the time-out ──► lapsed: what is loaded is served on, nothing more is opened or taken
//!                                                            │ the store answers, or it takes too long
//!                                                            ▼
//!                                                          everything is lost, topics are closed; then a new session
//! ```
//! Why a lapsed session closes nothing (`docs/adr/0010-fences-not-clocks.md`): no clock can tell an outage of the store, in which no
//! broker takes anything, from a network that parts this broker from it. What is acknowledged is safe in both: the next owner fences
//! the ledgers before it serves, and from then on no write is acknowledged here.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use pharos_metadata::{
    Expect, Fault, Session, SessionEnd, SessionError, SessionId, SessionWriteError, WriteError,
};
use pharos_runtime::clock;

use crate::keys::forget_earlier_life;
use crate::reports::look_at_broker;
use crate::{BundleOwnership, OwnershipError};

/// Below it brokers are registered.
pub(crate) const REGISTRY: &str = "loadbalance/brokers/";

/// Number of attempts to register while an earlier run of this broker is still registered.
const TRIES: usize = 3;

/// The session of this broker, by which others know that it is there.
pub(crate) struct Keeping<'a>(pub(crate) &'a BundleOwnership);

impl Keeping<'_> {
    /// Renews the session; opens one if there is none and this broker serves.
    pub(crate) async fn keep(&self) {
        let (session, is_closing) = {
            let state = self.0.lock();
            (state.session.clone(), state.is_closing)
        };
        if let Some(session) = session {
            // A failure is noted there.
            let _ = self.renew(&session).await;
            return;
        }
        if self.0.us().is_none() || is_closing {
            return;
        }
        let opened = tokio::time::timeout(self.0.options.timeout, self.session()).await;
        match opened {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::warn!(%error, "this broker has no metadata session"),
            Err(_) => tracing::warn!("the metadata store does not answer"),
        }
        let outage = self.0.lapsed_for();
        if let (Some(outage), Some(outage_max)) = (outage, self.0.options.outage_max)
            && outage >= outage_max
        {
            self.0
                .lose_all("the metadata store was out of reach for too long");
        }
    }

    /// Asks the servers to keep the session, and notes what they say.
    pub(crate) async fn renew(&self, session: &Arc<dyn Session>) -> Result<(), SessionError> {
        // The servers reckon from when they hear of it, which is later.
        let asked_at = clock::now();
        let renewed = tokio::time::timeout(self.0.options.timeout / 3, session.renew()).await;
        let renewed = renewed.unwrap_or_else(|_| {
            Err(SessionError::Fault(Fault::new(
                "renew a session",
                "no answer in time",
            )))
        });
        match &renewed {
            Ok(()) => {
                let mut state = self.0.lock();
                if state.session.as_ref().map(|current| current.id()) == Some(session.id()) {
                    state.renewed_at = state.renewed_at.max(asked_at);
                }
            }
            Err(SessionError::Ended(why)) => self.on_end(session.id(), *why),
            Err(SessionError::Fault(_)) if self.is_overdue() => self.lapse(session.id()),
            Err(SessionError::Fault(_)) => {}
        }
        renewed
    }

    /// True if the servers may have expired the session.
    fn is_overdue(&self) -> bool {
        let state = self.0.lock();
        let session = state.session.as_ref();
        let timeout = session.map_or(self.0.options.timeout, |session| session.timeout());
        Duration::from_nanos(clock::now().since(state.renewed_at)) >= timeout
    }

    /// The session is over. When our own clock does not say so, the servers did, and others may own what was ours.
    pub(crate) fn on_end(&self, session: SessionId, why: SessionEnd) {
        let current = self.0.lock().session.as_ref().map(|current| current.id());
        if current != Some(session) {
            return;
        }
        if why == SessionEnd::Expired && self.is_overdue() {
            self.lapse(session);
        } else {
            self.0.lose_all(&format!("its metadata session ended: {why}"));
        }
        self.0.wanted.notify_one();
    }

    /// The store has not been reached for the time-out. What is loaded is served on, unless there is to be no outage.
    fn lapse(&self, session: SessionId) {
        {
            let mut state = self.0.lock();
            if state.session.as_ref().map(|current| current.id()) != Some(session) {
                return;
            }
            state.session = None;
            state.lapsed_at.get_or_insert(clock::now());
        }
        if self.0.options.outage_max == Some(Duration::ZERO) {
            self.0.lose_all("the metadata store cannot be reached");
        } else {
            tracing::warn!(
                "the metadata store cannot be reached; this broker serves on what it has loaded, and takes nothing"
            );
        }
    }

    /// The session, opened if there is none. What a lapsed one owned is lost then: others may have had it meanwhile.
    pub(crate) async fn session(&self) -> Result<Arc<dyn Session>, OwnershipError> {
        {
            let state = self.0.lock();
            if state.is_closing {
                return Err(OwnershipError::NotReady("it is stopping"));
            }
            if let Some(session) = &state.session {
                return Ok(session.clone());
            }
        }
        let asked_at = clock::now();
        let opened = self.0.store.open_session(self.0.options.timeout).await;
        let opened = opened.map_err(|error| match error {
            SessionError::Ended(why) => OwnershipError::SessionEnded(why),
            SessionError::Fault(_) => OwnershipError::NotReady("the metadata store gives no session"),
        })?;
        if let Err(error) = self.register(&*opened).await {
            opened.close().await;
            return Err(error);
        }
        if self.0.lock().lapsed_at.is_some() {
            self.0
                .lose_all("its metadata session had ended while the store could not be reached");
        }
        let (is_closing, current) = {
            let mut state = self.0.lock();
            if !state.is_closing && state.session.is_none() {
                state.renewed_at = asked_at;
                state.session = Some(opened.clone());
            }
            (state.is_closing, state.session.clone())
        };
        match current {
            Some(current) if current.id() == opened.id() => Ok(opened),
            // Another caller was faster.
            Some(current) if !is_closing => {
                opened.close().await;
                self.register(&*current).await?;
                Ok(current)
            }
            _ => {
                opened.close().await;
                Err(OwnershipError::NotReady("it is stopping"))
            }
        }
    }

    /// Puts the key by which others know this broker. What an earlier life left under it is taken away.
    async fn register(&self, session: &dyn Session) -> Result<(), OwnershipError> {
        let told = self.0.lock().loads.registered();
        let (Some(key), Some(value)) = (self.0.registration.get(), told.or_else(|| self.0.us().cloned()))
        else {
            return Ok(());
        };
        for _ in 0..TRIES {
            match session.put(key, value.clone(), Expect::Absent).await {
                Ok(_) => return Ok(()),
                Err(SessionWriteError::Write(WriteError::Conflict { .. })) => {}
                Err(SessionWriteError::Write(error)) => return Err(error.into()),
                Err(SessionWriteError::Ended(why)) => return Err(OwnershipError::SessionEnded(why)),
            }
            if let Some(left) = self.0.store.get(key).await? {
                tracing::info!(
                    key,
                    "a broker is registered under this one's address; it is taken for an earlier life of it"
                );
                forget_earlier_life(&*self.0.store, key, left.version).await?;
            }
        }
        Err(OwnershipError::NotReady(
            "another broker registers under its address",
        ))
    }

    /// Reads the list of registered brokers.
    pub(crate) async fn look_at_brokers(&self) {
        match self.0.store.list(REGISTRY).await {
            Ok(keys) => {
                let ids = keys.iter().filter_map(|key| key.strip_prefix(REGISTRY));
                let brokers: BTreeSet<String> = ids.map(str::to_owned).collect();
                {
                    let mut state = self.0.lock();
                    state.loads.reports.retain(|id, _| brokers.contains(id));
                    state.brokers = brokers;
                }
                for key in keys {
                    look_at_broker(self.0, &key).await;
                }
            }
            Err(error) => tracing::warn!(%error, "which brokers there are is not known"),
        }
    }
}

pub(crate) async fn ended(session: Option<Arc<dyn Session>>) -> (SessionId, SessionEnd) {
    match session {
        Some(session) => (session.id(), session.ended().await),
        None => std::future::pending().await,
    }
}
