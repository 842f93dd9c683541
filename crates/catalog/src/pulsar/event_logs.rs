//! Interface that the catalog needs to write topic events as Pulsar's brokers do: the log of a topic, taken over from
//! its previous owner.

use std::sync::Arc;

use bytes::Bytes;
use pharos_metadata::{BoxFuture, Fault};
use pharos_types::TopicName;

/// A log that was taken over, if there is one.
pub type TakenEventLog = Option<Box<dyn EventLog>>;

/// Takes logs of topics over.
pub trait EventLogs: Send + Sync {
    /// Takes the log of a topic over: all others that had it append no more to it until they take it over themselves, and what they had
    /// appended is there to be read. Makes it where there is none and `may_create`; else `None`.
    ///
    /// # Errors
    /// It cannot be opened.
    fn open(&self, topic: &TopicName, may_create: bool) -> BoxFuture<'_, Result<TakenEventLog, Arc<Fault>>>;
}

/// A log that was taken over.
pub trait EventLog: Send {
    /// Appends an entry, and waits until it is durable. Answers with its ledger and entry.
    ///
    /// # Errors
    /// [`EventLogError`]. The entry may be there all the same.
    fn append(&mut self, entry: Bytes) -> BoxFuture<'_, Result<(u64, u64), EventLogError>>;

    /// Ends it, so that all entries can be read without recovery. What keeps it from that is logged.
    fn close(self: Box<Self>) -> BoxFuture<'static, ()>;
}

/// Failure of an append; nothing was appended.
#[derive(Clone, Debug, thiserror::Error)]
pub enum EventLogError {
    /// Another one took it over.
    #[error("another broker took the log over")]
    TakenOver,
    /// The append failed.
    #[error(transparent)]
    Failed(Arc<Fault>),
}
