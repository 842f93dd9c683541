//! Sessions: each a session of ZooKeeper with a client of its own, which keeps it alive by itself.
//!
//! A holder that does not renew is to lose its session although its process lives. So a task closes the session when its time is over.
//! A process that is stopped or cut off renews nothing at the servers either; they end the session, and its client finds out.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use pharos_metadata::key::check_write;
use pharos_metadata::{
    BoxFuture, Expect, Fault, Session, SessionEnd, SessionError, SessionId, SessionWriteError, Version,
    WriteError,
};
use pharos_runtime::{Nanos, clock, spawn_local};
use tokio::sync::{Notify, watch};
use zookeeper_client::{Client, CreateMode, Error};

use crate::options::Acl;
use crate::store::Inner;
use crate::tree;

#[derive(Debug)]
struct Shared {
    id: SessionId,
    timeout: Duration,
    acl: Acl,
    /// Time of the last renewal.
    renewed: Mutex<Nanos>,
    /// `None` once it is ending.
    client: Mutex<Option<Client>>,
    /// Its holder is done with it.
    close: Notify,
    end: watch::Sender<Option<SessionEnd>>,
}

struct Handle {
    shared: Arc<Shared>,
    inner: Arc<Inner>,
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.shared.fmt(f)
    }
}

/// Opens a session; on the store's thread.
pub(crate) async fn open(inner: Arc<Inner>, timeout: Duration) -> Result<Arc<dyn Session>, SessionError> {
    let opened = inner.new_client(timeout).await;
    let client = opened.map_err(|error| SessionError::Fault(tree::fault("open a session", &error)))?;
    let shared = Arc::new(Shared {
        id: SessionId(client.session_id().0.cast_unsigned()),
        timeout: client.session_timeout(),
        acl: inner.options.acl,
        renewed: Mutex::new(clock::now()),
        client: Mutex::new(Some(client)),
        close: Notify::new(),
        end: watch::channel(None).0,
    });
    inner.remember(shared.end.subscribe());
    let watched = (Arc::clone(&shared), Arc::clone(&inner));
    spawn_local(async move { watched.0.live(&watched.1).await });
    Ok(Arc::new(Handle { shared, inner }))
}

impl Shared {
    fn client(&self) -> Option<Client> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn renew(&self, asked_at: Nanos) {
        let mut renewed = self.renewed.lock().unwrap_or_else(PoisonError::into_inner);
        *renewed = asked_at.max(*renewed);
    }

    /// Time left until the session expires, if it is not renewed.
    fn left(&self) -> Duration {
        let renewed = *self.renewed.lock().unwrap_or_else(PoisonError::into_inner);
        self.timeout
            .saturating_sub(Duration::from_nanos(clock::now().since(renewed)))
    }

    /// The session's task: waits for its end, then sees to it that its keys are gone before it tells.
    async fn live(&self, inner: &Inner) {
        let Some(mut state) = self.client().map(|client| client.state_watcher()) else {
            return;
        };
        let mut store = inner.ended();
        let mut is_gone = false;
        let why = loop {
            if self.left().is_zero() {
                break SessionEnd::Expired;
            }
            tokio::select! {
                () = self.close.notified() => break SessionEnd::Closed,
                _ = store.wait_for(|ended| *ended) => break SessionEnd::StoreEnded,
                state = state.changed() => {
                    if state.is_terminated() {
                        is_gone = true;
                        break SessionEnd::Expired;
                    }
                }
                () = tokio::time::sleep(self.left()) => {}
            }
        };
        // The last one to hold it closes it at the servers; those that cannot be reached end it when its time is over there.
        drop(self.client.lock().unwrap_or_else(PoisonError::into_inner).take());
        let closed = async { while !is_gone && !state.changed().await.is_terminated() {} };
        let _ = tokio::time::timeout(self.timeout, closed).await;
        if let Ok(client) = inner.client() {
            // Not to see less than the servers that ended it.
            let _ = client.sync("/").await;
        }
        inner.flush().await;
        self.end.send_replace(Some(why));
    }

    /// Waits until the session ends, and returns the reason.
    async fn over(&self) -> SessionEnd {
        let mut end = self.end.subscribe();
        let told = end.wait_for(Option::is_some).await;
        told.ok().and_then(|end| *end).unwrap_or(SessionEnd::StoreEnded)
    }

    async fn put(&self, key: &str, value: &[u8], expect: Expect) -> Result<Version, SessionWriteError> {
        check_write(key, value)?;
        let path = tree::path_of(key);
        loop {
            let Some(client) = self.client().filter(|_| !self.left().is_zero()) else {
                return Err(SessionWriteError::Ended(self.over().await));
            };
            let put = self.try_put(&client, key, &path, value, expect).await;
            drop(client);
            match put {
                Ok(Some(version)) => return Ok(version),
                // It is not as it was found.
                Ok(None) => {}
                Err(SessionWriteError::Write(WriteError::Fault(_))) if self.client().is_none() => {
                    return Err(SessionWriteError::Ended(self.over().await));
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn try_put(
        &self,
        client: &Client,
        key: &str,
        path: &str,
        value: &[u8],
        expect: Expect,
    ) -> Result<Option<Version>, SessionWriteError> {
        let found = tree::stat(client, path).await.map_err(tree::write_fault)?;
        let is_others = found
            .as_ref()
            .is_some_and(|stat| stat.ephemeral_owner.cast_unsigned() != self.id.0);
        if is_others || !expect.holds(found.as_ref().map(tree::version_of)) {
            return Err(tree::conflict(key, found.as_ref()).into());
        }
        let written = match &found {
            None => tree::create(client, self.acl, path, value, CreateMode::Ephemeral).await,
            Some(stat) => client.set_data(path, value, Some(stat.version)).await,
        };
        match written {
            Ok(stat) => Ok(Some(tree::version_of(&stat))),
            Err(Error::NodeExists | Error::NoNode | Error::BadVersion) => Ok(None),
            Err(error) => Err(tree::write_fault(error).into()),
        }
    }
}

impl Session for Handle {
    fn id(&self) -> SessionId {
        self.shared.id
    }

    fn timeout(&self) -> Duration {
        self.shared.timeout
    }

    fn put(
        &self,
        key: &str,
        value: Bytes,
        expect: Expect,
    ) -> BoxFuture<'_, Result<Version, SessionWriteError>> {
        let key = key.to_owned();
        Box::pin(async move {
            let version = self.shared.put(&key, &value, expect).await?;
            self.inner.flush_after_others().await;
            Ok(version)
        })
    }

    fn renew(&self) -> BoxFuture<'_, Result<(), SessionError>> {
        Box::pin(async move {
            let client = self.shared.client().filter(|_| !self.shared.left().is_zero());
            let Some(client) = client else {
                return Err(SessionError::Ended(self.shared.over().await));
            };
            // The servers reckon from when they hear of it. The leader is asked, because a server that was parted from the others
            // answers reads of a session that they have ended.
            let asked_at = clock::now();
            let asked = tokio::time::timeout(self.shared.left(), client.sync("/")).await;
            let is_over = client.state().is_terminated();
            drop(client);
            match asked {
                Ok(Ok(())) => {
                    self.shared.renew(asked_at);
                    Ok(())
                }
                _ if is_over || self.shared.left().is_zero() => {
                    Err(SessionError::Ended(self.shared.over().await))
                }
                Ok(Err(error)) => Err(SessionError::Fault(tree::fault("renew a session", &error))),
                Err(_) => Err(SessionError::Fault(Fault::new(
                    "renew a session",
                    "ZooKeeper does not answer",
                ))),
            }
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.shared.close.notify_one();
            self.shared.over().await;
        })
    }

    fn ended(&self) -> BoxFuture<'_, SessionEnd> {
        Box::pin(async move { self.shared.over().await })
    }
}
