//! A connection as the broker sees it: what it must be told, and where deliveries go.
//!
//! Implemented by each front door. Everything here is called on the connection's own shard and returns at once.

use std::sync::Arc;

use pharos_accounts::unwritten::Held;
use pharos_cluster::BrokerAddresses;
use pharos_feed::ConsumerHandle;
use pharos_feed::entry::FeedEntry;
use pharos_feed::ids::{ConsumerKey, ProducerKey};
use pharos_requests::error::PublishError;
use pharos_types::Position;

use crate::message::Publish;

/// A producer as its connection knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerRef {
    /// Its id on its connection.
    pub id: u64,
    /// Key of the producer, so that a later producer with the same id gets no answer of its predecessor's.
    pub key: ProducerKey,
}

/// An entry is durable: tell its producer.
#[derive(Clone, Copy, Debug)]
pub struct Receipt {
    /// Producer of the send.
    pub producer: ProducerRef,
    /// Sequence id, as in the send.
    pub sequence_id: u64,
    /// Highest sequence id, as in the send.
    pub highest_sequence_id: u64,
    /// Position of the entry.
    pub position: Position,
    /// Its stored bytes, for the connection's count of what is in flight.
    pub bytes: u32,
}

/// An entry that a dispatcher chose one consumer for.
#[derive(Debug)]
pub struct Dispatched {
    /// The consumer's id on its connection.
    pub consumer_id: u64,
    /// Key of the consumer, so that a later consumer with the same id gets nothing of its predecessor's.
    pub key: ConsumerKey,
    /// Entry to deliver.
    pub entry: Arc<FeedEntry>,
    /// Its bytes in the account of what is not written; dropped with the payload.
    pub held: Held,
    /// The partition index to stamp on the message id.
    pub partition: Option<u32>,
    /// Number of earlier redeliveries.
    pub redelivery_count: u32,
    /// Batch indexes that are still to be acknowledged; empty for all.
    pub ack_set: Box<[i64]>,
}

/// Something that a connection must know.
#[derive(Debug)]
pub enum ConnectionEvent {
    /// A send failed; the producer lives on unless it is closed as well.
    SendFailed {
        /// Producer of the send.
        producer: ProducerRef,
        /// The send.
        sequence_id: u64,
        /// Its bytes, for the connection's count of what is in flight.
        bytes: u32,
        /// Reason.
        error: PublishError,
    },
    /// Sends came for a producer that was closed, or to a topic that was let go. The client sends them again; only the
    /// connection's count of what is in flight must know.
    SendsDropped {
        /// Number of sends.
        sends: u32,
        /// Their bytes.
        bytes: u64,
    },
    /// The broker closed a producer.
    ProducerClosed {
        /// The producer.
        producer: ProducerRef,
        /// The broker that serves its topic now, where that is known and another one.
        next: Option<Arc<BrokerAddresses>>,
    },
    /// The broker closed a consumer.
    ConsumerClosed {
        /// Its id on its connection.
        consumer_id: u64,
        /// Key of the consumer.
        key: ConsumerKey,
        /// The broker that serves its topic now, where that is known and another one.
        next: Option<Arc<BrokerAddresses>>,
    },
    /// Tells a consumer of a Failover subscription that it is, or is not, the active one.
    ActiveConsumer {
        /// Its id on its connection.
        consumer_id: u64,
        /// Key of the consumer.
        key: ConsumerKey,
        /// The active one.
        active: bool,
    },
    /// Nothing more will ever come, and all is acknowledged.
    EndOfTopic {
        /// The consumer's id on its connection.
        consumer_id: u64,
    },
    /// Entries that a dispatcher chose for consumers here.
    Dispatched(Vec<Dispatched>),
}

impl ConnectionEvent {
    /// These sends will not be answered otherwise.
    pub fn dropped(entries: &[Publish]) -> Self {
        Self::SendsDropped {
            sends: u32::try_from(entries.len()).unwrap_or(u32::MAX),
            bytes: entries.iter().map(|entry| entry.payload.len() as u64).sum(),
        }
    }
}

/// Result of one turn of writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pumped {
    /// There is more to write and the socket takes more: give it another turn.
    More,
    /// Nothing to write, or the socket is full and will say when it is not.
    Rests,
}

/// A connection.
pub trait ConnectionHandle {
    /// Writes what is due, for at most a few hundred microseconds.
    fn flush_turn(&self) -> Pumped;
    /// Entries of producers here are durable, in the order of their sends.
    fn on_receipts(&self, receipts: &[Receipt]);
    /// Something happened.
    fn on_event(&self, event: ConnectionEvent);
    /// A consumer here becomes the one that listens. Gives the handle back when the consumer is gone.
    fn activate(
        &self,
        consumer_id: u64,
        key: ConsumerKey,
        handle: ConsumerHandle,
    ) -> Result<(), ConsumerHandle>;
    /// A consumer here no longer listens, but stays attached. Returns its handle, if it has one.
    fn deactivate(&self, consumer_id: u64, key: ConsumerKey) -> Option<ConsumerHandle>;
    /// Checks that the peer still answers: asks it, and resolves the sender when anything arrives or the time is
    /// over.
    fn probe(&self, answer: tokio::sync::oneshot::Sender<bool>);
    /// Lets go of the payloads that were dispatched to consumers here and that it can read again. Called only for a connection
    /// that said that it is stalled.
    fn set_aside(&self);
    /// Closes the connection.
    fn close(&self);
    /// Tells the peer that the broker stops, then closes.
    fn shut_down(&self);
    /// Time passes: asks a silent peer whether it lives, closes one that did not answer. `interval`: keep-alive.
    fn on_tick(&self, interval: std::time::Duration);
}
