//! The connections of a shard to other clusters: one to each broker over there that has one of its topics, shared by all of them, and one
//! bound on what is on its way to a cluster.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use pharos_admin_api::ClusterData;
use pharos_client::{Brokers, ClientError, Connection};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};

use crate::{RemoteCluster, ReplicationLimits, UnusableCluster};

/// The other clusters, as one shard knows them.
#[derive(Debug)]
pub struct RemoteLinks {
    local: Rc<str>,
    limits: Rc<ReplicationLimits>,
    known: RefCell<HashMap<Box<str>, Rc<RemoteLink>>>,
}

/// Link of one shard to another cluster.
#[derive(Debug)]
pub struct RemoteLink {
    /// This cluster.
    pub local: Rc<str>,
    /// Name of the remote cluster.
    pub remote: Box<str>,
    /// Limits of its replicators.
    pub limits: Rc<ReplicationLimits>,
    room: Arc<Semaphore>,
    brokers: Mutex<Option<(ClusterData, Brokers)>>,
}

/// Reason why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LinkError {
    #[error(transparent)]
    Unusable(#[from] UnusableCluster),
    #[error(transparent)]
    Client(#[from] ClientError),
}

impl RemoteLinks {
    /// `local`: this cluster.
    #[must_use]
    pub fn new(local: &str, limits: ReplicationLimits) -> Self {
        Self {
            local: local.into(),
            limits: Rc::new(limits),
            known: RefCell::default(),
        }
    }

    /// Returns the limits of replicators.
    #[must_use]
    pub fn limits(&self) -> &ReplicationLimits {
        &self.limits
    }

    /// The link to a cluster; made when it is asked for first.
    #[must_use]
    pub fn to(&self, remote: &str) -> Rc<RemoteLink> {
        if let Some(known) = self.known.borrow().get(remote) {
            return known.clone();
        }
        let link = Rc::new(RemoteLink {
            local: self.local.clone(),
            remote: remote.into(),
            limits: self.limits.clone(),
            room: Arc::new(Semaphore::new(
                self.limits.bytes_max.clamp(1, Semaphore::MAX_PERMITS),
            )),
            brokers: Mutex::default(),
        });
        self.known.borrow_mut().insert(remote.into(), link.clone());
        link
    }
}

impl RemoteLink {
    /// A connection to the broker over there that serves a topic now. `data`: what is stored of the cluster; when it says something
    /// else than before, connections are made anew.
    ///
    /// # Errors
    /// [`LinkError`].
    pub(crate) async fn serving(&self, data: &ClusterData, topic: &str) -> Result<Connection, LinkError> {
        let mut known = self.brokers.lock().await;
        if known.as_ref().is_none_or(|(of, _)| of != data) {
            let RemoteCluster { url, options } =
                RemoteCluster::of(&self.remote, data, &self.limits.defaults)?;
            *known = Some((data.clone(), Brokers::connect(&url, options).await?));
        }
        match &mut *known {
            Some((_, brokers)) => Ok(brokers.serving(topic).await?),
            None => Err(UnusableCluster("the cluster is not there".to_owned()).into()),
        }
    }

    /// Room for about `bytes` on their way, fewer where there is less in all; waits for it in turn.
    pub(crate) async fn room(&self, bytes: usize) -> OwnedSemaphorePermit {
        let all = self.limits.bytes_max.clamp(1, Semaphore::MAX_PERMITS);
        let wanted = u32::try_from(bytes.clamp(1, all)).unwrap_or(u32::MAX);
        match self.room.clone().acquire_many_owned(wanted).await {
            Ok(room) => room,
            // It is never closed.
            Err(_) => std::future::pending().await,
        }
    }

    /// Uses a connection no more on which an answer did not come.
    pub(crate) async fn discard(&self, connection: &Connection) {
        if let Some((_, brokers)) = &mut *self.brokers.lock().await {
            brokers.discard(connection);
        }
    }
}
