//! Reads from `MessageMetadata` what a broker decides by, in one pass and without allocating.

use pharos_types::TxnId;

use crate::error::DecodeError;
use crate::proto::CompressionType;
use crate::protobuf::{Reader, Value};

/// Facts of a message that a broker needs; borrowed from the metadata.
///
/// Keys and names of other clusters are bytes, because some clients put arbitrary bytes into text fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageFacts<'a> {
    /// Name of the producer.
    pub producer_name: &'a str,
    /// The producer's number of the message; of the first one in a batch.
    pub sequence_id: u64,
    /// The producer's number of the last message of a batch.
    pub highest_sequence_id: Option<u64>,
    /// The producer's clock, in milliseconds since 1970.
    pub publish_time: u64,
    /// The application's time, in milliseconds since 1970.
    pub event_time: Option<u64>,
    /// Present on batches only, even on a batch of one.
    pub num_messages_in_batch: Option<i32>,
    /// Earliest delivery time, in milliseconds since 1970.
    pub deliver_at_time: Option<i64>,
    /// Present on entries that are for brokers only; a `proto::MarkerType` number.
    pub marker_type: Option<i32>,
    /// The payload is encrypted, so only the consumer can look into it.
    pub is_encrypted: bool,
    /// Present when the entry is a piece of a larger message.
    pub chunk: Option<ChunkFacts<'a>>,
    /// Compression of the payload.
    pub compression: CompressionType,
    /// Size of the payload before compression, in bytes; 0 when not said.
    pub uncompressed_bytes: u32,
    /// The transaction the message belongs to; present when both halves are.
    pub txn: Option<TxnId>,
    /// The key, in base64 when `partition_key_b64_encoded`.
    pub partition_key: Option<&'a [u8]>,
    /// The key is base64 text of the real key.
    pub partition_key_b64_encoded: bool,
    /// The key that orders messages in Key_Shared before the partition key does.
    pub ordering_key: Option<&'a [u8]>,
    /// The key was set to null, which is not the same as having none.
    pub null_partition_key: bool,
    /// The value is null: a tombstone for topic compaction.
    pub null_value: bool,
    /// The cluster the message came from by replication.
    pub replicated_from: Option<&'a [u8]>,
    /// Clusters that the message is for.
    pub replicate_to: ReplicateTo,
    /// Version of the schema the message was written with.
    pub schema_version: Option<&'a [u8]>,
    /// Number of application properties.
    pub property_count: u32,
}

impl MessageFacts<'_> {
    /// Messages in the entry: 1, or the size of the batch. A batch that claims fewer than one counts as one.
    pub fn num_messages(&self) -> u32 {
        self.num_messages_in_batch
            .and_then(|n| u32::try_from(n).ok())
            .map_or(1, |n| n.max(1))
    }
}

/// The place of a piece in a chunked message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkFacts<'a> {
    /// Same for all pieces of one message.
    pub uuid: &'a [u8],
    /// From 0.
    pub chunk_id: i32,
    /// Pieces in all.
    pub num_chunks: i32,
    /// Size of the whole message in bytes.
    pub total_bytes: i32,
}

impl ChunkFacts<'_> {
    /// True if this chunk completes the message.
    pub fn is_last(&self) -> bool {
        self.chunk_id.checked_add(1) == Some(self.num_chunks)
    }
}

/// Clusters that a message is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReplicateTo {
    /// As the topic says.
    #[default]
    Default,
    /// This cluster only.
    LocalOnly,
    /// The clusters given by [`replicate_to`].
    Listed,
}

/// The one entry of `replicate_to` that means "nowhere".
const LOCAL_ONLY: &[u8] = b"__local__";

const NAME: &str = "MessageMetadata";

/// Reads the facts of a message from the bytes of its `MessageMetadata`.
///
/// # Errors
/// The bytes are not protobuf, or a required field (`producer_name`, `sequence_id`, `publish_time`) is missing. Text that is not
/// UTF-8 counts as missing in `producer_name` and passes elsewhere.
pub fn peek(metadata: &[u8]) -> Result<MessageFacts<'_>, DecodeError> {
    let mut scan = Scan::default();
    let mut reader = Reader::new(metadata);
    let malformed = |source| DecodeError::Malformed {
        message: NAME,
        source,
    };
    while let Some((number, value)) = reader.field().map_err(malformed)? {
        match value {
            Value::Varint(value) => scan.on_varint(number, value),
            Value::Bytes(value) => scan.on_bytes(number, value),
            Value::Fixed => {}
        }
    }
    scan.finish()
}

/// The clusters listed in a message's metadata. Stops at the first malformed byte; [`peek`] finds those.
pub fn replicate_to(metadata: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut reader = Reader::new(metadata);
    std::iter::from_fn(move || {
        loop {
            match reader.field() {
                Ok(Some((7, Value::Bytes(cluster)))) => return Some(cluster),
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => return None,
            }
        }
    })
}

/// Fields found so far by the pass over the metadata.
#[derive(Default)]
struct Scan<'a> {
    producer_name: Option<&'a [u8]>,
    sequence_id: Option<u64>,
    highest_sequence_id: Option<u64>,
    publish_time: Option<u64>,
    event_time: Option<u64>,
    num_messages_in_batch: Option<i32>,
    deliver_at_time: Option<i64>,
    marker_type: Option<i32>,
    is_encrypted: bool,
    uuid: Option<&'a [u8]>,
    chunk_id: Option<i32>,
    num_chunks: Option<i32>,
    chunk_total_bytes: Option<i32>,
    compression: i32,
    uncompressed_bytes: u32,
    txn_least: Option<u64>,
    txn_most: Option<u64>,
    partition_key: Option<&'a [u8]>,
    partition_key_b64_encoded: bool,
    ordering_key: Option<&'a [u8]>,
    null_partition_key: bool,
    null_value: bool,
    replicated_from: Option<&'a [u8]>,
    replicate_to_count: u32,
    replicate_to_last: &'a [u8],
    schema_version: Option<&'a [u8]>,
    property_count: u32,
}

impl<'a> Scan<'a> {
    #[inline]
    fn on_varint(&mut self, number: u32, value: u64) {
        match number {
            2 => self.sequence_id = Some(value),
            3 => self.publish_time = Some(value),
            8 => self.compression = value as i32,
            9 => self.uncompressed_bytes = value as u32,
            11 => self.num_messages_in_batch = Some(value as i32),
            12 => self.event_time = Some(value),
            17 => self.partition_key_b64_encoded = value != 0,
            19 => self.deliver_at_time = Some(value as i64),
            20 => self.marker_type = Some(value as i32),
            22 => self.txn_least = Some(value),
            23 => self.txn_most = Some(value),
            24 => self.highest_sequence_id = Some(value),
            25 => self.null_value = value != 0,
            27 => self.num_chunks = Some(value as i32),
            28 => self.chunk_total_bytes = Some(value as i32),
            29 => self.chunk_id = Some(value as i32),
            30 => self.null_partition_key = value != 0,
            _ => {}
        }
    }

    #[inline]
    fn on_bytes(&mut self, number: u32, value: &'a [u8]) {
        match number {
            1 => self.producer_name = Some(value),
            4 => self.property_count += 1,
            5 => self.replicated_from = Some(value),
            6 => self.partition_key = Some(value),
            7 => {
                self.replicate_to_count += 1;
                self.replicate_to_last = value;
            }
            13 => self.is_encrypted = true,
            16 => self.schema_version = Some(value),
            18 => self.ordering_key = Some(value),
            26 => self.uuid = Some(value),
            _ => {}
        }
    }

    fn finish(self) -> Result<MessageFacts<'a>, DecodeError> {
        let missing = |field| DecodeError::MissingField { message: NAME, field };
        let producer_name = self.producer_name.and_then(|name| std::str::from_utf8(name).ok());
        let chunk = match (self.chunk_id, self.num_chunks) {
            (Some(chunk_id), Some(num_chunks)) => Some(ChunkFacts {
                uuid: self.uuid.unwrap_or_default(),
                chunk_id,
                num_chunks,
                total_bytes: self.chunk_total_bytes.unwrap_or_default(),
            }),
            _ => None,
        };
        let txn = self.txn_most.zip(self.txn_least);
        Ok(MessageFacts {
            producer_name: producer_name.ok_or_else(|| missing("producer_name"))?,
            sequence_id: self.sequence_id.ok_or_else(|| missing("sequence_id"))?,
            highest_sequence_id: self.highest_sequence_id,
            publish_time: self.publish_time.ok_or_else(|| missing("publish_time"))?,
            event_time: self.event_time,
            num_messages_in_batch: self.num_messages_in_batch,
            deliver_at_time: self.deliver_at_time,
            marker_type: self.marker_type,
            is_encrypted: self.is_encrypted,
            chunk,
            compression: CompressionType::try_from(self.compression).unwrap_or(CompressionType::None),
            uncompressed_bytes: self.uncompressed_bytes,
            txn: txn.map(|(most, least)| TxnId { most, least }),
            partition_key: self.partition_key,
            partition_key_b64_encoded: self.partition_key_b64_encoded,
            ordering_key: self.ordering_key,
            null_partition_key: self.null_partition_key,
            null_value: self.null_value,
            replicated_from: self.replicated_from,
            replicate_to: match self.replicate_to_count {
                0 => ReplicateTo::Default,
                1 if self.replicate_to_last == LOCAL_ONLY => ReplicateTo::LocalOnly,
                _ => ReplicateTo::Listed,
            },
            schema_version: self.schema_version,
            property_count: self.property_count,
        })
    }
}
