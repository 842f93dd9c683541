//! Sends on their way from the frames of one reading to the topic's home.
//!
//! A payload is a slice of the buffer it was read into; a small one is copied out, because keeping it in the cache would keep
//! the whole buffer.

use bytes::Bytes;

use pharos_broker::ids::{ProducerKey, TopicId};
use pharos_broker::shard::Publish;

use crate::connection::Connection;

/// Payloads below this size are copied out of a buffer that is much larger.
const COPY_BYTES_MAX: usize = 4 << 10;

/// Sends that came one after the other for the same producer.
#[derive(Default)]
pub(crate) struct Batch {
    to: Option<(TopicId, ProducerKey)>,
    entries: Vec<Publish>,
}

impl Batch {
    /// Adds a send; what was for another producer leaves first.
    pub(crate) fn push(&mut self, connection: &Connection, to: (TopicId, ProducerKey), entry: Publish) {
        if self.to != Some(to) {
            self.flush(connection);
            self.to = Some(to);
        }
        self.entries.push(entry);
    }

    /// Sends what has collected to the topic's home.
    pub(crate) fn flush(&mut self, connection: &Connection) {
        if let Some((topic, producer)) = self.to.take() {
            let entries = std::mem::take(&mut self.entries);
            connection.shard.publish(connection.id, topic, producer, entries);
        }
    }
}

/// A payload to keep: its own copy when it is a small part of a large buffer.
pub(crate) fn kept(payload: Bytes) -> Bytes {
    if payload.len() <= COPY_BYTES_MAX {
        Bytes::copy_from_slice(&payload)
    } else {
        payload
    }
}
