//! Messages, going out and coming in.

use std::collections::BTreeMap;

use bytes::Bytes;
use pharos_wire::compression;
use pharos_wire::message::{BatchIter, BrokerEntryFacts, decode_metadata, split_ref};
use pharos_wire::proto::{
    CommandMessage, CompressionType, KeyValue, MessageIdData, MessageMetadata, SingleMessageMetadata,
};

use crate::ClientError;

/// The id before every message.
#[must_use]
pub fn earliest() -> MessageIdData {
    id_of(u64::MAX)
}

/// The id after every message.
#[must_use]
pub fn latest() -> MessageIdData {
    id_of(i64::MAX as u64)
}

fn id_of(both: u64) -> MessageIdData {
    MessageIdData {
        ledger_id: both,
        entry_id: both,
        ..Default::default()
    }
}

/// A message to send.
#[derive(Clone, Debug, Default)]
pub struct OutgoingMessage {
    /// Everything about it. Producer name, publish time and, unless set to something other than 0, the sequence id
    /// are filled in when it is sent.
    pub metadata: MessageMetadata,
    /// Its bytes, as they shall travel.
    pub payload: Bytes,
}

impl OutgoingMessage {
    /// A message without key or properties.
    #[must_use]
    pub fn new(payload: impl Into<Bytes>) -> Self {
        Self {
            metadata: MessageMetadata::default(),
            payload: payload.into(),
        }
    }

    /// With a partition key.
    #[must_use]
    pub fn key(mut self, key: &str) -> Self {
        self.metadata.partition_key = Some(key.to_owned());
        self
    }

    /// With an ordering key.
    #[must_use]
    pub fn ordering_key(mut self, key: impl Into<Bytes>) -> Self {
        self.metadata.ordering_key = Some(key.into());
        self
    }

    /// With one property more.
    #[must_use]
    pub fn property(mut self, key: &str, value: &str) -> Self {
        self.metadata.properties.push(pair(key, value));
        self
    }

    /// With the application's time, in milliseconds since 1970.
    #[must_use]
    pub fn event_time(mut self, ms: u64) -> Self {
        self.metadata.event_time = Some(ms);
        self
    }

    /// With a sequence id of the caller's choice; from 1, because 0 leaves the choice to the producer.
    #[must_use]
    pub fn sequence_id(mut self, sequence_id: u64) -> Self {
        self.metadata.sequence_id = sequence_id;
        self
    }

    /// Sets the earliest delivery time, in milliseconds since 1970.
    #[must_use]
    pub fn deliver_at(mut self, ms: i64) -> Self {
        self.metadata.deliver_at_time = Some(ms);
        self
    }

    /// As a member of a batch.
    pub(crate) fn into_member(self, sequence_id: u64) -> (SingleMessageMetadata, Bytes) {
        let metadata = self.metadata;
        let member = SingleMessageMetadata {
            properties: metadata.properties,
            partition_key: metadata.partition_key,
            event_time: metadata.event_time,
            partition_key_b64_encoded: metadata.partition_key_b64_encoded,
            ordering_key: metadata.ordering_key,
            sequence_id: Some(sequence_id),
            null_value: metadata.null_value,
            null_partition_key: metadata.null_partition_key,
            ..Default::default()
        };
        (member, self.payload)
    }
}

/// A message that was received.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// Message id; with batch index and size if it was sent in a batch.
    pub id: MessageIdData,
    /// Number of earlier deliveries.
    pub redelivery_count: u32,
    /// Its metadata; that of the whole batch when it came in one.
    pub metadata: MessageMetadata,
    /// Its own metadata within a batch.
    pub single: Option<SingleMessageMetadata>,
    /// Its bytes; still compressed when the metadata say so.
    pub payload: Bytes,
    /// Unacknowledged members of the batch, as sent by the broker.
    pub ack_set: Vec<i64>,
    /// Broker entry metadata, noted when the entry was stored: receive time, and the index of the entry's last
    /// message.
    pub broker_entry: BrokerEntryFacts,
    /// The consumer epoch it was sent in.
    pub consumer_epoch: Option<u64>,
}

impl Message {
    /// The partition key.
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        match &self.single {
            Some(single) => single.partition_key.as_deref(),
            None => self.metadata.partition_key.as_deref(),
        }
    }

    /// The properties.
    #[must_use]
    pub fn properties(&self) -> BTreeMap<&str, &str> {
        let pairs = match &self.single {
            Some(single) => &single.properties,
            None => &self.metadata.properties,
        };
        pairs
            .iter()
            .map(|pair| (pair.key.as_str(), pair.value.as_str()))
            .collect()
    }

    /// The producer's number of it.
    #[must_use]
    pub fn sequence_id(&self) -> u64 {
        let own = self.single.as_ref().and_then(|single| single.sequence_id);
        own.unwrap_or(self.metadata.sequence_id)
    }

    /// The payload as text; what is not UTF-8 is replaced.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.payload).into_owned()
    }
}

/// Takes an entry apart into the messages that a consumer shall see, in their order.
///
/// A batch whose payload is encrypted, or compressed and not to be decompressed, stays one message.
pub(crate) fn unpack(
    command: CommandMessage,
    entry: &Bytes,
    decompress_bytes_max: Option<usize>,
) -> Result<Vec<Message>, ClientError> {
    let malformed = |error: &dyn std::fmt::Display| ClientError::Malformed(error.to_string());
    let parts = split_ref(entry).map_err(|error| malformed(&error))?;
    if !parts.verify_checksum() {
        return Err(ClientError::Malformed("checksum mismatch".into()));
    }
    let metadata = decode_metadata(parts.metadata).map_err(|error| malformed(&error))?;
    let mut whole = Message {
        id: command.message_id,
        redelivery_count: command.redelivery_count.unwrap_or_default(),
        single: None,
        payload: entry.slice_ref(parts.payload),
        ack_set: command.ack_set,
        broker_entry: parts.broker_entry_facts(),
        consumer_epoch: command.consumer_epoch,
        metadata,
    };
    let is_encrypted = !whole.metadata.encryption_keys.is_empty();
    let mut is_plain = whole.metadata.compression() == CompressionType::None && !is_encrypted;
    if let Some(bytes_max) = decompress_bytes_max
        && !is_plain
        && !is_encrypted
    {
        let claimed = whole.metadata.uncompressed_size.unwrap_or_default();
        let claimed = usize::try_from(claimed).unwrap_or(usize::MAX);
        let kind = whole.metadata.compression();
        let payload = compression::decompress(&whole.payload, kind, claimed, bytes_max);
        whole.payload = payload.map_err(|error| malformed(&error))?.into();
        is_plain = true;
    }
    let Some(count) = whole.metadata.num_messages_in_batch.filter(|_| is_plain) else {
        return Ok(vec![whole]);
    };
    let count = u32::try_from(count).unwrap_or_default();
    let mut messages = Vec::new();
    for member in BatchIter::new(Bytes::clone(&whole.payload), count) {
        let member = member.map_err(|error| malformed(&error))?;
        if !is_unacked(&whole.ack_set, member.batch_index) || member.metadata.compacted_out() {
            continue;
        }
        let mut message = whole.clone();
        message.id.batch_index = i32::try_from(member.batch_index).ok();
        message.id.batch_size = i32::try_from(count).ok();
        message.single = Some(member.metadata);
        message.payload = member.payload;
        messages.push(message);
    }
    Ok(messages)
}

/// True if a member of a batch is still to be delivered; an empty set means that all are.
fn is_unacked(ack_set: &[i64], index: u32) -> bool {
    let word = usize::try_from(index / 64).unwrap_or(usize::MAX);
    ack_set.is_empty()
        || ack_set
            .get(word)
            .is_some_and(|word| word >> (index % 64) & 1 == 1)
}

pub(crate) fn pair(key: &str, value: &str) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: value.to_owned(),
    }
}
