//! Ownership of topics: the only module that is asked, before anything of a topic is loaded or created.
//!
//! ```text
//!  LOOKUP, admin ──► claim ──► Here(shard) │ Elsewhere(addresses)        takes a topic that no broker has
//!  PRODUCER, SUBSCRIBE ──► settle, of ──► Here(shard) │ refused: look up again    takes none, waits for what is being taken
//! ```
//! Asked when a producer, consumer or reader is created and when a topic is loaded, never for a message. Before the
//! log of a topic is opened the store itself is asked (`confirm`). When ownership ends, the shards close the loaded
//! topics (`home::load`), and cancel the loads under way.

use std::collections::BTreeSet;
use std::sync::Arc;

use pharos_cluster::{BrokerAddresses, HandoverError, LoadReport, Owner, Ownership, OwnershipError};
use pharos_types::TopicName;
use tokio::sync::watch;

use pharos_feed::ids::ShardId;
use pharos_requests::error::TopicError;

/// Broker and shard of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placed {
    /// By this broker, on this shard.
    Here(ShardId),
    /// By another broker.
    Elsewhere(Arc<BrokerAddresses>),
    /// By none now: a lookup takes it.
    Unowned,
}

/// Knows where topics are served.
pub struct Placement {
    ownership: Arc<dyn Ownership>,
    shard_count: u16,
}

impl Placement {
    /// `shard_count`: over how many shards this broker spreads its topics.
    #[must_use]
    pub fn new(ownership: Arc<dyn Ownership>, shard_count: u16) -> Self {
        Self {
            ownership,
            shard_count,
        }
    }

    /// Looks up the broker and shard of `topic`. Does not wait.
    #[must_use]
    pub fn of(&self, topic: &TopicName) -> Placed {
        self.placed(topic, self.ownership.owner_of(topic))
    }

    /// Looks up the broker of `topic`, and takes ownership if no broker has it: [`Placed::Here`] or
    /// [`Placed::Elsewhere`].
    ///
    /// # Errors
    /// [`OwnershipError`]: ask again.
    pub async fn claim(&self, topic: &TopicName) -> Result<Placed, OwnershipError> {
        match self.of(topic) {
            Placed::Unowned => Ok(self.placed(topic, self.ownership.acquire(topic).await?)),
            placed => Ok(placed),
        }
    }

    /// As [`claim`](Self::claim), but another broker gets it where there is one; see [`Ownership::acquire_apart`].
    ///
    /// # Errors
    /// [`OwnershipError`]: ask again.
    pub async fn claim_apart(&self, topic: &TopicName, turn: u32) -> Result<Placed, OwnershipError> {
        match self.of(topic) {
            Placed::Unowned => Ok(self.placed(topic, self.ownership.acquire_apart(topic, turn).await?)),
            placed => Ok(placed),
        }
    }

    /// Waits while this broker takes `topic`; at once for one that it has.
    pub async fn settle(&self, topic: &TopicName) {
        if self.of(topic) == Placed::Unowned {
            self.ownership.settle(topic).await;
        }
    }

    /// The shard that serves `topic`.
    ///
    /// # Errors
    /// [`TopicError::NotServed`] when it is not this broker's.
    pub fn home(&self, topic: &TopicName) -> Result<ShardId, TopicError> {
        match self.of(topic) {
            Placed::Here(home) => Ok(home),
            Placed::Elsewhere(_) | Placed::Unowned => Err(TopicError::NotServed(topic.to_string())),
        }
    }

    /// Checks in the store that this broker owns `topic`.
    pub async fn confirm(&self, topic: &TopicName) -> Result<(), TopicError> {
        match self.ownership.confirm(topic).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(TopicError::NotServed(topic.to_string())),
            Err(error) => {
                tracing::warn!(%topic, %error, "a topic is not loaded: whose it is cannot be told");
                Err(TopicError::NotServed(topic.to_string()))
            }
        }
    }

    /// The brokers that are there, as `host:port`; `None` when there can be no other.
    #[must_use]
    pub fn brokers(&self) -> Option<Vec<String>> {
        self.ownership.brokers()
    }

    /// Owner of the bundle `<tenant>/<namespace>/<range>`.
    #[must_use]
    pub fn owner_of_bundle(&self, bundle: &str) -> Owner {
        self.ownership.owner_of_bundle(bundle)
    }

    /// Takes a bundle, if no broker has it: [`Owner::Us`] or [`Owner::Other`].
    ///
    /// # Errors
    /// [`OwnershipError`]: ask again.
    pub async fn take_bundle(&self, bundle: &str) -> Result<Owner, OwnershipError> {
        self.ownership.take_bundle(bundle).await
    }

    /// The bundles that this broker shares with others and owns, as `<tenant>/<namespace>/<bundle>`.
    #[must_use]
    pub fn bundles(&self) -> BTreeSet<String> {
        self.ownership.bundles()
    }

    /// Lets go of the bundle of a topic, in which nothing is loaded and nothing will be asked for.
    ///
    /// # Errors
    /// [`OwnershipError`]: try again.
    pub async fn release(&self, topic: &TopicName) -> Result<(), OwnershipError> {
        self.ownership.release(topic).await
    }

    /// The broker that leads, where there are several and one is known to.
    #[must_use]
    pub fn leader(&self) -> Option<Arc<BrokerAddresses>> {
        self.ownership.leader()
    }

    /// Load report last sent to other brokers.
    #[must_use]
    pub fn load_report(&self) -> Option<LoadReport> {
        self.ownership.load_report()
    }

    /// Next broker for clients of a topic that is closed here, if known.
    pub fn next_of(&self, topic: &TopicName) -> Option<Arc<BrokerAddresses>> {
        match self.ownership.owner_of(topic) {
            Owner::Other(next) => Some(next),
            Owner::Us | Owner::Unowned => None,
        }
    }

    /// Takes a bundle from this broker, for the broker `to`, which gets it when [`end_handover`](Self::end_handover) says that what was
    /// loaded of it is closed.
    ///
    /// # Errors
    /// [`HandoverError`].
    pub async fn hand_over(&self, bundle: &str, to: &str) -> Result<(), HandoverError> {
        self.ownership.hand_over(bundle, to).await
    }

    /// Ends the transfer of a bundle: its loaded topics are closed.
    pub async fn end_handover(&self, bundle: &str) {
        self.ownership.end_handover(bundle).await;
    }

    /// Changes when topics may have gone to other brokers.
    pub fn losses(&self) -> watch::Receiver<u64> {
        self.ownership.losses()
    }

    fn placed(&self, topic: &TopicName, owner: Owner) -> Placed {
        match owner {
            Owner::Us => Placed::Here(self.shard_of(topic)),
            Owner::Other(addresses) => Placed::Elsewhere(addresses),
            Owner::Unowned => Placed::Unowned,
        }
    }

    /// The shard on which a topic lives when it lives here: a hash of its name, so that every shard agrees without asking.
    pub fn shard_of(&self, topic: &TopicName) -> ShardId {
        let hash = pharos_types::hash::bundle_hash(&topic.to_string());
        ShardId(u16::try_from(hash % u32::from(self.shard_count)).unwrap_or(0))
    }
}
