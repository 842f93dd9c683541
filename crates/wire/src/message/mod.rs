//! The payload part of SEND and MESSAGE, which is also what a broker stores per entry.
//!
//! ```text
//! [0x0e02 · size u32 · BrokerEntryMetadata]   only in stored entries and in MESSAGE
//! [0x0e01 · CRC32-C u32]                      sum of all that follows
//! size u32 · MessageMetadata · payload        payload may be compressed, encrypted, a batch
//! ```
//!
//! [`split`] finds the pieces, [`peek`] reads the facts a broker needs without allocating, [`sticky_key`] the key that routes
//! a message in a Key_Shared subscription; [`encode_entry`] and [`BatchBuilder`] make what a producer sends. A broker
//! stores and sends the producer's bytes, and asks [`PulsarEntries`] what it must know of them; topic compaction alone makes entries of
//! others, with fewer messages, what a SEND says of its transaction is added to a message that does not say it
//! ([`with_transaction`]), and other clusters get messages that say where they came from ([`relayed`]).

mod batch;
mod build;
mod codec;
mod compact;
mod facts;
mod parts;
mod relay;
mod sticky;

pub use batch::{BatchBuilder, BatchError, BatchIter, BatchMessage};
pub use build::{broker_entry_prefix, encode_entry, encode_entry_into, with_transaction};
pub use codec::PulsarEntries;
pub use facts::{ChunkFacts, MessageFacts, ReplicateTo, peek, replicate_to};
pub use parts::{
    BrokerEntryFacts, MessageParts, PartsRef, SplitError, split, split_ref, strip_broker_entry_metadata,
    strip_checksum,
};
pub use relay::{Relayed, SOURCE_POSITION, relayed, source_position};
pub use sticky::{NONE_KEY, sticky_key};

use crate::error::DecodeError;
use crate::proto::{MessageMetadata, SingleMessageMetadata};
use crate::required::{self, table};

/// Decodes all of a message's metadata; [`peek`] is cheaper when a few facts are enough.
///
/// # Errors
/// The bytes are not complete `MessageMetadata`. Text that is not UTF-8 is an error here, though [`peek`] lets binary keys pass.
pub fn decode_metadata(metadata: &[u8]) -> Result<MessageMetadata, DecodeError> {
    required::decode(&table::MESSAGE_METADATA, metadata)
}

/// Decodes the metadata of one message of a batch.
///
/// # Errors
/// The bytes are not complete `SingleMessageMetadata`.
pub fn decode_single_metadata(metadata: &[u8]) -> Result<SingleMessageMetadata, DecodeError> {
    required::decode(&table::SINGLE_MESSAGE_METADATA, metadata)
}
