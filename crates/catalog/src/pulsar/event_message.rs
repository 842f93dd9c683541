//! A message of the topic `__change_events`: the policies of one topic.
//!
//! Its key names the topic, with [`EVERYWHERE`] before it where the policies are for all clusters. A message without a value removes them.

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use pharos_types::TopicName;
use pharos_types::hash::crc32c;
use prost::Message;

use super::bytes_of::{MessageIdData, MessageMetadata};

/// Before the name of a topic in an event of policies for all clusters.
const EVERYWHERE: &str = "__G__";
/// Magic numbers at the start of message entries: with a checksum, and with broker entry metadata.
const CHECKSUM: u16 = 0x0e01;
const BROKER_METADATA: u16 = 0x0e02;
/// Producer name in the messages' metadata, which requires one.
const PRODUCER: &str = "pharos";

/// The key of the messages about a topic.
pub(super) fn key_of(topic: &TopicName, is_everywhere: bool) -> String {
    match is_everywhere {
        true => format!("{EVERYWHERE}{topic}"),
        false => topic.to_string(),
    }
}

/// Message to be written.
pub(super) struct NewEvent<'a> {
    /// See [`key_of`].
    pub(super) key: String,
    /// The only cluster that it is for; `None`: all.
    pub(super) cluster: Option<&'a str>,
    /// The version of the schema that `payload` is of.
    pub(super) schema: u64,
    /// The policies; `None`: they are removed.
    pub(super) payload: Option<Vec<u8>>,
    /// Milliseconds since 1970.
    pub(super) time_ms: u64,
}

impl NewEvent<'_> {
    /// The entry that is stored.
    pub(super) fn to_entry(&self) -> Bytes {
        let payload = self.payload.as_deref().unwrap_or_default();
        let metadata = MessageMetadata {
            producer_name: PRODUCER.to_owned(),
            sequence_id: self.time_ms,
            publish_time: self.time_ms,
            partition_key: Some(self.key.clone()),
            replicate_to: self.cluster.map(str::to_owned).into_iter().collect(),
            uncompressed_size: u32::try_from(payload.len()).ok(),
            schema_version: Some(self.schema.to_be_bytes().to_vec()),
            partition_key_b64_encoded: Some(false),
            null_value: self.payload.is_none().then_some(true),
            ..MessageMetadata::default()
        };
        let size = metadata.encoded_len();
        let mut checked = BytesMut::with_capacity(4 + size + payload.len());
        // A name and some numbers.
        checked.put_u32(u32::try_from(size).unwrap_or(u32::MAX));
        checked.extend_from_slice(&metadata.encode_to_vec());
        checked.extend_from_slice(payload);
        let mut entry = BytesMut::with_capacity(6 + checked.len());
        entry.put_u16(CHECKSUM);
        entry.put_u32(crc32c(&checked));
        entry.extend_from_slice(&checked);
        entry.freeze()
    }
}

/// Event: the topic, its scope (true for all clusters), and the encoded policies; `None`: they are removed.
pub(super) struct SaidEvent {
    pub(super) topic: TopicName,
    pub(super) is_everywhere: bool,
    pub(super) schema: Option<u64>,
    pub(super) payload: Option<Bytes>,
}

/// Decodes the event of an entry; the error says what is wrong with it.
pub(super) fn event(mut entry: Bytes) -> Result<Option<SaidEvent>, String> {
    let short = || "it ends early".to_owned();
    let magic = |entry: &mut Bytes, wanted: u16| {
        let is_it = entry.get(..2).is_some_and(|start| start == wanted.to_be_bytes());
        if is_it {
            entry.advance(2);
        }
        is_it
    };
    if magic(&mut entry, BROKER_METADATA) {
        let size = take_u32(&mut entry).ok_or_else(short)?;
        take(&mut entry, size).ok_or_else(short)?;
    }
    if magic(&mut entry, CHECKSUM) {
        take(&mut entry, 4).ok_or_else(short)?;
    }
    let size = take_u32(&mut entry).ok_or_else(short)?;
    let metadata = take(&mut entry, size).ok_or_else(short)?;
    let metadata = MessageMetadata::decode(metadata).map_err(|error| error.to_string())?;
    if metadata.num_messages_in_batch.is_some()
        || metadata.compression != 0
        || !metadata.encryption_keys.is_empty()
    {
        return Err("it is batched, compressed or encrypted".to_owned());
    }
    let Some(key) = metadata.partition_key else {
        return Ok(None);
    };
    let name = key.strip_prefix(EVERYWHERE);
    let topic = name
        .unwrap_or(&key)
        .parse()
        .map_err(|_| format!("{key} is no topic"))?;
    let version = metadata
        .schema_version
        .and_then(|bytes| Some(u64::from_be_bytes(bytes.try_into().ok()?)));
    Ok(Some(SaidEvent {
        topic,
        is_everywhere: name.is_some(),
        schema: version,
        payload: (metadata.null_value != Some(true) && !entry.is_empty()).then_some(entry),
    }))
}

fn take(bytes: &mut Bytes, count: usize) -> Option<Bytes> {
    (bytes.len() >= count).then(|| bytes.split_to(count))
}

fn take_u32(bytes: &mut Bytes) -> Option<usize> {
    let number = take(bytes, 4)?;
    usize::try_from(u32::from_be_bytes(number.as_ref().try_into().ok()?)).ok()
}

/// The place and the message of an entry of a compacted ledger.
pub(super) fn compacted(mut entry: Bytes) -> Option<((u64, u64), Bytes)> {
    let size = take_u32(&mut entry)?;
    let id = MessageIdData::decode(take(&mut entry, size)?).ok()?;
    let size = take_u32(&mut entry)?;
    Some(((id.ledger_id, id.entry_id), take(&mut entry, size)?))
}
