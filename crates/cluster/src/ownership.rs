//! The question whose topic it is, and the answer of a broker that is alone.

use std::collections::BTreeSet;
use std::sync::Arc;

use pharos_metadata::{BoxFuture, ReadError, SessionEnd, WriteError};
use pharos_types::TopicName;
use tokio::sync::watch;

use crate::{BrokerAddresses, HandoverError, LoadReport};

/// Owner of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// This broker.
    Us,
    /// Another one.
    Other(Arc<BrokerAddresses>),
    /// No broker now.
    Unowned,
}

/// Reason why a topic could not be taken. All of them are transient: the client looks up again.
#[derive(Debug, Clone, thiserror::Error)]
pub enum OwnershipError {
    /// This broker does not take topics yet, or not any more, or lost its session a moment ago.
    #[error("this broker takes no topics now: {0}")]
    NotReady(&'static str),
    /// The topic falls into no bundle: its namespace is not known here.
    #[error("the bundle of {0} is not known")]
    NoBundle(TopicName),
    /// The session ended meanwhile, and what it would have owned with it.
    #[error("metadata session ended: {0}")]
    SessionEnded(SessionEnd),
    /// The metadata store could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The metadata store could not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// Knows who owns which topic.
pub trait Ownership: Send + Sync {
    /// Returns the owner of `topic`, as far as this broker knows: certain if it is this one, a moment old otherwise.
    /// Does not wait.
    fn owner_of(&self, topic: &TopicName) -> Owner;

    /// Takes `topic` when no broker owns it, and says who owns it now: [`Owner::Us`] or [`Owner::Other`].
    ///
    /// # Errors
    /// [`OwnershipError`]; it may have no owner then.
    ///
    /// Cancel safety: it may be taken or not.
    fn acquire<'a>(&'a self, topic: &'a TopicName) -> BoxFuture<'a, Result<Owner, OwnershipError>>;

    /// As [`acquire`](Self::acquire), but another broker gets it where there is one that may. `turn`: from 1; topics that are dealt
    /// together come to all other brokers in turn, and to this one last.
    ///
    /// # Errors
    /// [`OwnershipError`]; it may have no owner then.
    fn acquire_apart<'a>(
        &'a self,
        topic: &'a TopicName,
        _turn: u32,
    ) -> BoxFuture<'a, Result<Owner, OwnershipError>> {
        self.acquire(topic)
    }

    /// Asks the store whether `topic` is this broker's at this moment. Asked before the log of a topic is opened, because that
    /// takes it away from its last owner: a broker that was stopped for a while believes in keys that are gone.
    ///
    /// # Errors
    /// [`OwnershipError`]: it is not known, so the topic must not be opened.
    fn confirm<'a>(&'a self, topic: &'a TopicName) -> BoxFuture<'a, Result<bool, OwnershipError>>;

    /// Waits while this broker takes `topic`: a client that another broker sent may be here before the store's answer. After a bounded
    /// time it returns all the same; whose the topic is then, [`owner_of`](Self::owner_of) says.
    ///
    /// Cancel safety: nothing is changed.
    fn settle<'a>(&'a self, _: &'a TopicName) -> BoxFuture<'a, ()> {
        Box::pin(async {})
    }

    /// Returns the owner of the bundle `<tenant>/<namespace>/<range>`, as [`owner_of`](Self::owner_of) does for a
    /// topic.
    fn owner_of_bundle(&self, _: &str) -> Owner {
        Owner::Us
    }

    /// As [`acquire`](Self::acquire), of a bundle `<tenant>/<namespace>/<range>`, whether there are topics in it or will be.
    ///
    /// # Errors
    /// [`OwnershipError`]; it may have no owner then.
    fn take_bundle<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Owner, OwnershipError>> {
        Box::pin(async { Ok(Owner::Us) })
    }

    /// The bundles that this broker shares with others and owns, as `<tenant>/<namespace>/<bundle>`.
    fn bundles(&self) -> BTreeSet<String> {
        BTreeSet::new()
    }

    /// Lets go of the bundle of `topic`, which has no owner then: nothing in it will be asked for. What is loaded of it is to be closed
    /// before. One that is not this broker's stays as it is.
    ///
    /// # Errors
    /// [`OwnershipError`]; whose it is the store says a moment later.
    fn release<'a>(&'a self, _: &'a TopicName) -> BoxFuture<'a, Result<(), OwnershipError>> {
        Box::pin(async { Ok(()) })
    }

    /// The broker that leads, where there are several and one is known to.
    fn leader(&self) -> Option<Arc<BrokerAddresses>> {
        None
    }

    /// Hands a bundle of this broker to another, which has it when this returns and opens its logs once
    /// [`end_handover`](Self::end_handover) was called: close its topics before.
    ///
    /// # Errors
    /// [`HandoverError`]. The topics of the bundle are closed where it is not certain that it is still this broker's.
    ///
    /// Cancel safety: none. Dropped, the bundle may be the other's, which then waits for a while.
    fn hand_over<'a>(&'a self, _: &'a str, _: &'a str) -> BoxFuture<'a, Result<(), HandoverError>> {
        Box::pin(async { Err(HandoverError::Alone) })
    }

    /// Reports that the loaded topics of a transferred bundle are closed.
    fn end_handover<'a>(&'a self, _: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(async {})
    }

    /// The brokers that are there, as `host:port` of their HTTP servers; `None` when there can be no other.
    fn brokers(&self) -> Option<Vec<String>> {
        None
    }

    /// Returns the last load report of this broker; `None` if there can be no other broker, or none was sent yet.
    fn load_report(&self) -> Option<LoadReport> {
        None
    }

    /// Changes whenever this broker loses topics: those that it has loaded and that are not its own any more are to be closed.
    fn losses(&self) -> watch::Receiver<u64>;
}

/// There is no other broker.
#[derive(Debug)]
pub struct Alone {
    /// Kept, because a receiver whose sender is gone says so.
    losses: watch::Sender<u64>,
}

impl Default for Alone {
    fn default() -> Self {
        Self {
            losses: watch::Sender::new(0),
        }
    }
}

impl Ownership for Alone {
    fn owner_of(&self, _: &TopicName) -> Owner {
        Owner::Us
    }

    fn acquire<'a>(&'a self, _: &'a TopicName) -> BoxFuture<'a, Result<Owner, OwnershipError>> {
        Box::pin(async { Ok(Owner::Us) })
    }

    fn confirm<'a>(&'a self, _: &'a TopicName) -> BoxFuture<'a, Result<bool, OwnershipError>> {
        Box::pin(async { Ok(true) })
    }

    fn losses(&self) -> watch::Receiver<u64> {
        self.losses.subscribe()
    }
}
