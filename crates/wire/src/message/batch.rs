//! Batches: several messages in the payload of one entry.
//!
//! ```text
//! ( size u32 · SingleMessageMetadata · payload_size bytes ) repeated, then compressed and encrypted as a whole
//! ```

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use prost::Message as _;

use super::parts::{SplitError, sized};
use crate::error::DecodeError;
use crate::proto::SingleMessageMetadata;

/// Collects messages into the payload of a batch.
#[derive(Debug, Default)]
pub struct BatchBuilder {
    payload: BytesMut,
    count: i32,
}

impl BatchBuilder {
    /// An empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds one message; `metadata.payload_size` is set from `payload`.
    pub fn push(&mut self, metadata: SingleMessageMetadata, payload: &[u8]) {
        let metadata = SingleMessageMetadata {
            payload_size: payload.len() as i32,
            ..metadata
        };
        let metadata_bytes = metadata.encoded_len();
        self.payload.reserve(4 + metadata_bytes + payload.len());
        self.payload.put_u32(metadata_bytes as u32);
        metadata.encode_raw(&mut self.payload);
        self.payload.put_slice(payload);
        self.count += 1;
    }

    /// Messages so far; goes into `num_messages_in_batch` and `CommandSend.num_messages`.
    pub fn num_messages(&self) -> i32 {
        self.count
    }

    /// Bytes so far; goes into `uncompressed_size`.
    pub fn payload_bytes(&self) -> usize {
        self.payload.len()
    }

    /// True if nothing has been added.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Takes the payload and leaves an empty batch.
    pub fn take(&mut self) -> Bytes {
        self.count = 0;
        self.payload.split().freeze()
    }
}

/// Message of a batch.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchMessage {
    /// From 0.
    pub batch_index: u32,
    /// Its own metadata; `compacted_out` ones keep their index and are to be skipped.
    pub metadata: SingleMessageMetadata,
    /// A view of the batch.
    pub payload: Bytes,
}

/// A batch whose messages do not fit together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// A message's metadata does not fit into what is left.
    #[error(transparent)]
    Split(#[from] SplitError),
    /// A message's metadata is not what it should be.
    #[error(transparent)]
    Metadata(#[from] DecodeError),
    /// A message's payload does not fit into what is left, or has a negative size.
    #[error("message {batch_index} of {claimed} bytes does not fit into the {available} that are left")]
    Overrun {
        /// Index of the message, from 0.
        batch_index: u32,
        /// The size it claims.
        claimed: i32,
        /// Rest of the batch, in bytes.
        available: usize,
    },
}

/// Walks the messages of an uncompressed batch; ends after the given count, or at the first error.
#[derive(Clone, Debug)]
pub struct BatchIter {
    rest: Bytes,
    next: u32,
    count: u32,
}

impl BatchIter {
    /// `count` is the entry's `num_messages_in_batch`; [`super::MessageFacts::num_messages`] gives it.
    pub fn new(payload: Bytes, count: u32) -> Self {
        Self {
            rest: payload,
            next: 0,
            count,
        }
    }

    fn read(&mut self) -> Result<BatchMessage, BatchError> {
        let batch_index = self.next;
        let (metadata, rest) = sized(&self.rest, "the metadata of a message in a batch")?;
        let metadata = super::decode_single_metadata(metadata)?;
        let (claimed, available) = (metadata.payload_size, rest.len());
        let bytes = usize::try_from(claimed).ok().filter(|bytes| *bytes <= available);
        let bytes = bytes.ok_or(BatchError::Overrun {
            batch_index,
            claimed,
            available,
        })?;
        self.rest.advance(self.rest.len() - available);
        let payload = self.rest.split_to(bytes);
        self.next += 1;
        Ok(BatchMessage {
            batch_index,
            metadata,
            payload,
        })
    }
}

impl Iterator for BatchIter {
    type Item = Result<BatchMessage, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.next >= self.count {
            return None;
        }
        let item = self.read();
        if item.is_err() {
            self.count = self.next;
        }
        Some(item)
    }
}
