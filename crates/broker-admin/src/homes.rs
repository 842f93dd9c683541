//! The way of every verb to its topic: who serves it, whether it is there, and work beside it on its home shard.

use std::future::Future;

use pharos_broker::broker::Broker;
use pharos_broker::error::TopicError;
use pharos_broker::ids::ShardId;
use pharos_broker::placement::Placed;
use pharos_catalog::Catalog;
use pharos_topic::TopicHandle;
use pharos_types::{Domain, TopicName};

use crate::error::AdminError;

/// The home shards of a running broker's topics. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Homes {
    pub(crate) broker: Broker,
}

impl Homes {
    pub(crate) fn of(broker: Broker) -> Self {
        Self { broker }
    }

    /// The stored facts.
    pub(crate) fn catalog(&self) -> &Catalog {
        &self.broker.shared.catalog
    }

    /// Does something with a stored topic that exists, on its home shard; loads it first when it must.
    pub(crate) async fn at_home<R, W, F>(&self, name: TopicName, work: W) -> Result<R, AdminError>
    where
        R: Send + 'static,
        W: FnOnce(TopicHandle) -> F + Send + 'static,
        F: Future<Output = Result<R, AdminError>> + 'static,
    {
        check_stored(&name)?;
        self.at_any_home(name, work).await
    }

    /// As [`at_home`](Self::at_home), for what a non-persistent topic can do as well.
    pub(crate) async fn at_any_home<R, W, F>(&self, name: TopicName, work: W) -> Result<R, AdminError>
    where
        R: Send + 'static,
        W: FnOnce(TopicHandle) -> F + Send + 'static,
        F: Future<Output = Result<R, AdminError>> + 'static,
    {
        let home = self.home(&name).await?;
        self.check_exists(&name)?;
        self.broker.at_home(home, name, work).await
    }

    /// The shard that serves a topic; takes the topic when no broker has it.
    pub(crate) async fn home(&self, name: &TopicName) -> Result<ShardId, AdminError> {
        match self.broker.shared.placement.claim(name).await {
            Ok(Placed::Here(home)) => Ok(home),
            Ok(Placed::Elsewhere(addresses)) => Err(AdminError::Elsewhere {
                topic: name.clone(),
                addresses,
            }),
            Ok(Placed::Unowned) => Err(TopicError::NotServed(name.to_string()).into()),
            Err(error) => Err(AdminError::Unavailable(error.to_string())),
        }
    }

    /// Refuses what is not there, and of another cluster's namespace says so.
    pub(crate) fn check_exists(&self, name: &TopicName) -> Result<(), AdminError> {
        if self.catalog().topic_exists(name) {
            return Ok(());
        }
        self.catalog()
            .check_cluster(name)
            .map_err(AdminError::OtherCluster)?;
        Err(AdminError::NotFound(format!("Topic {name} not found")))
    }
}

/// Refuses what needs messages that are stored.
pub(crate) fn check_stored(name: &TopicName) -> Result<(), AdminError> {
    match name.domain() {
        Domain::Persistent => Ok(()),
        Domain::NonPersistent => Err(AdminError::NotAllowed(
            "not possible on a non-persistent topic: it stores nothing".to_owned(),
        )),
    }
}
