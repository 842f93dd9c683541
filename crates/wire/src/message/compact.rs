//! Entries as topic compaction takes them apart, and puts them together again with fewer messages.
//!
//! A message that goes out of a batch leaves its metadata with nothing but `compacted_out`, so all indexes and the size of the batch
//! stay. The bytes of the others are not touched, nor is the entry's metadata but for the size of the new payload.

use std::borrow::Cow;

use bytes::{BufMut as _, BytesMut};
use pharos_types::entry::{EntryMessages, KeyedMessage};
use prost::Message as _;

use super::build::{broker_entry_prefix_raw, encode_raw_entry_into};
use super::decode_single_metadata;
use super::facts::{MessageFacts, peek};
use super::parts::{PartsRef, sized, split_ref};
use crate::compression::{compress, decompress};
use crate::proto::{CompressionType, SingleMessageMetadata};
use crate::protobuf::Reader;

/// `uncompressed_size` of `MessageMetadata`, a varint.
const UNCOMPRESSED_SIZE_TAG: u8 = 9 << 3;

/// `compacted_batch_indexes` of `MessageMetadata`.
const SURVIVORS: u32 = 31;

/// A batch of more messages is not taken apart: what is known of each takes more memory than the few bytes that it may have.
const MESSAGES_MAX: u32 = 100_000;

/// Message of a batch.
struct RawMember<'a> {
    metadata: SingleMessageMetadata,
    /// Its size, metadata and payload, as they are.
    bytes: &'a [u8],
}

/// The messages of an entry with their keys.
pub(super) fn messages(entry: &[u8], bytes_max: usize) -> EntryMessages {
    try_messages(entry, bytes_max).map_or(EntryMessages::Whole, EntryMessages::Each)
}

fn try_messages(entry: &[u8], bytes_max: usize) -> Option<Vec<KeyedMessage>> {
    let parts = split_ref(entry).ok()?;
    let facts = peek(parts.metadata).ok()?;
    if facts.num_messages_in_batch.is_none() {
        return Some(vec![KeyedMessage {
            key: key_of(facts.partition_key, facts.null_partition_key),
            is_empty: facts.null_value || value_bytes(&facts, parts.payload) == 0,
            is_gone: false,
        }]);
    }
    let batch = open(&parts, &facts, bytes_max)?;
    let mut messages = Vec::new();
    walk(&batch, facts.num_messages(), |member| {
        let metadata = &member.metadata;
        let key = metadata.partition_key.as_deref().map(str::as_bytes);
        messages.push(KeyedMessage {
            key: key_of(key, metadata.null_partition_key.unwrap_or(false)),
            is_empty: metadata.payload_size == 0,
            is_gone: metadata.compacted_out.unwrap_or(false),
        });
    })?;
    Some(messages)
}

/// The entry with only some of its messages.
pub(super) fn retain(entry: &[u8], keep: &[bool], bytes_max: usize) -> Option<Vec<u8>> {
    let parts = split_ref(entry).ok()?;
    let facts = peek(parts.metadata).ok()?;
    facts.num_messages_in_batch?;
    let batch = open(&parts, &facts, bytes_max)?;
    let gone = SingleMessageMetadata {
        compacted_out: Some(true),
        ..SingleMessageMetadata::default()
    };
    let mut payload = Vec::with_capacity(batch.len());
    let mut index = 0;
    walk(&batch, facts.num_messages(), |member| {
        if keep.get(index).copied().unwrap_or(false) {
            payload.extend_from_slice(member.bytes);
        } else {
            payload.put_u32(gone.encoded_len() as u32);
            gone.encode_raw(&mut payload);
        }
        index += 1;
    })?;
    let mut metadata = without_survivors(parts.metadata)?;
    if facts.compression != CompressionType::None || facts.uncompressed_bytes != 0 {
        // The last of several counts.
        metadata.put_u8(UNCOMPRESSED_SIZE_TAG);
        prost::encoding::encode_varint(payload.len() as u64, &mut metadata);
    }
    let payload = compress(&payload, facts.compression).ok()?;
    let mut out = BytesMut::new();
    if let Some(block) = parts.broker_entry_metadata {
        broker_entry_prefix_raw(block, &mut out);
    }
    encode_raw_entry_into(&metadata, &payload, &mut out);
    Some(out.to_vec())
}

/// The metadata without the list of what a compaction by Pulsar left of the batch: fewer are left now, and without a list its brokers look
/// into the batch.
fn without_survivors(metadata: &[u8]) -> Option<BytesMut> {
    let mut kept = BytesMut::with_capacity(metadata.len());
    let (mut reader, mut at) = (Reader::new(metadata), 0);
    while let Some((number, _)) = reader.field().ok()? {
        let next = metadata.len() - reader.left();
        if number != SURVIVORS {
            kept.extend_from_slice(metadata.get(at..next)?);
        }
        at = next;
    }
    Some(kept)
}

/// The payload of a batch; `None` when only the consumer can look into it.
fn open<'a>(parts: &PartsRef<'a>, facts: &MessageFacts<'_>, bytes_max: usize) -> Option<Cow<'a, [u8]>> {
    if facts.is_encrypted || facts.chunk.is_some() || facts.num_messages() > MESSAGES_MAX {
        return None;
    }
    if facts.compression == CompressionType::None {
        return Some(Cow::Borrowed(parts.payload));
    }
    let claimed = usize::try_from(facts.uncompressed_bytes).ok()?;
    let opened = decompress(parts.payload, facts.compression, claimed, bytes_max);
    opened.ok().map(Cow::Owned)
}

/// Looks at each message of a batch; `None` when they do not fit together.
fn walk(batch: &[u8], count: u32, mut look: impl FnMut(&RawMember<'_>)) -> Option<()> {
    let mut rest = batch;
    for _ in 0..count {
        let (metadata, behind) = sized(rest, "the metadata of a message in a batch").ok()?;
        let metadata = decode_single_metadata(metadata).ok()?;
        let payload = usize::try_from(metadata.payload_size).ok()?;
        let after = behind.get(payload..)?;
        let bytes = rest.get(..rest.len() - after.len())?;
        look(&RawMember { metadata, bytes });
        rest = after;
    }
    Some(())
}

/// A key that was set to null is a key of its own.
fn key_of(key: Option<&[u8]>, is_null: bool) -> Option<Box<[u8]>> {
    match key {
        Some(key) => Some(key.into()),
        None if is_null => Some(Box::default()),
        None => None,
    }
}

/// Size of a single message's value, in bytes, as far as known without reading the payload.
fn value_bytes(facts: &MessageFacts<'_>, payload: &[u8]) -> usize {
    match facts.compression {
        CompressionType::None => payload.len(),
        _ => usize::try_from(facts.uncompressed_bytes).unwrap_or(usize::MAX),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::message::split;
    use crate::message::{BatchBuilder, BatchIter, broker_entry_prefix, decode_metadata, encode_entry};
    use crate::proto::{BrokerEntryMetadata, EncryptionKeys, MessageMetadata};

    const BYTES_MAX: usize = 1 << 20;

    fn plain() -> MessageMetadata {
        MessageMetadata {
            producer_name: "p".to_owned(),
            sequence_id: 3,
            publish_time: 77,
            ..MessageMetadata::default()
        }
    }

    fn keyed(key: Option<&str>, is_empty: bool) -> KeyedMessage {
        KeyedMessage {
            key: key.map(|key| key.as_bytes().into()),
            is_empty,
            is_gone: false,
        }
    }

    fn batch(members: &[(Option<&str>, &str)], compression: CompressionType) -> Bytes {
        let mut builder = BatchBuilder::new();
        for (key, value) in members {
            let metadata = SingleMessageMetadata {
                partition_key: key.map(str::to_owned),
                sequence_id: Some(9),
                ..SingleMessageMetadata::default()
            };
            builder.push(metadata, value.as_bytes());
        }
        let metadata = MessageMetadata {
            num_messages_in_batch: Some(builder.num_messages()),
            compression: (compression != CompressionType::None).then_some(compression as i32),
            uncompressed_size: Some(builder.payload_bytes() as u32),
            ..plain()
        };
        let payload = builder.take();
        encode_entry(&metadata, &compress(&payload, compression).unwrap())
    }

    #[test]
    fn keys_and_empty_values_are_found_in_single_messages_and_in_batches() {
        let single = |key: Option<&str>, value: &[u8]| {
            let metadata = MessageMetadata {
                partition_key: key.map(str::to_owned),
                ..plain()
            };
            messages(&encode_entry(&metadata, value), BYTES_MAX)
        };
        assert_eq!(
            single(Some("a"), b"x"),
            EntryMessages::Each(vec![keyed(Some("a"), false)])
        );
        assert_eq!(
            single(Some("a"), b""),
            EntryMessages::Each(vec![keyed(Some("a"), true)])
        );
        assert_eq!(single(None, b"x"), EntryMessages::Each(vec![keyed(None, false)]));
        for compression in [CompressionType::None, CompressionType::Lz4, CompressionType::Zstd] {
            let entry = batch(&[(Some("a"), "1"), (None, "2"), (Some("b"), "")], compression);
            let expected = vec![
                keyed(Some("a"), false),
                keyed(None, false),
                keyed(Some("b"), true),
            ];
            assert_eq!(messages(&entry, BYTES_MAX), EntryMessages::Each(expected));
        }
    }

    #[test]
    fn a_batch_of_very_many_messages_stays_whole() {
        for (count, is_whole) in [(MESSAGES_MAX, false), (MESSAGES_MAX + 1, true)] {
            let members = vec![(None, ""); count as usize];
            let entry = batch(&members, CompressionType::Zstd);
            assert_eq!(messages(&entry, 64 << 20) == EntryMessages::Whole, is_whole);
        }
    }

    #[test]
    fn a_batch_keeps_its_indexes_and_what_survives_is_untouched() {
        for compression in [
            CompressionType::None,
            CompressionType::Lz4,
            CompressionType::Zlib,
            CompressionType::Zstd,
            CompressionType::Snappy,
        ] {
            let entry = batch(
                &[(Some("a"), "1"), (Some("a"), "2"), (Some("b"), "3")],
                compression,
            );
            let prefix = broker_entry_prefix(&BrokerEntryMetadata {
                broker_timestamp: Some(5),
                index: Some(6),
            });
            let stored: Vec<u8> = prefix.iter().chain(entry.iter()).copied().collect();
            let rewritten = retain(&stored, &[false, true, true], BYTES_MAX).unwrap();
            let parts = split(&Bytes::from(rewritten.clone())).unwrap();
            assert!(parts.verify_checksum());
            assert!(rewritten.starts_with(&prefix));
            let metadata = decode_metadata(&parts.metadata).unwrap();
            assert_eq!(
                (metadata.num_messages_in_batch, metadata.sequence_id),
                (Some(3), 3)
            );
            let size = metadata.uncompressed_size.unwrap() as usize;
            let payload = decompress(&parts.payload, compression, size, BYTES_MAX).unwrap();
            assert_eq!(payload.len(), size);
            let members: Vec<_> = BatchIter::new(payload.into(), 3).map(Result::unwrap).collect();
            let seen: Vec<_> = members
                .iter()
                .map(|member| {
                    (
                        member.metadata.compacted_out,
                        &member.payload[..],
                        member.metadata.sequence_id,
                    )
                })
                .collect();
            assert_eq!(
                seen,
                [
                    (Some(true), &b""[..], None),
                    (None, b"2", Some(9)),
                    (None, b"3", Some(9))
                ]
            );
            // What is gone is seen to be gone the next time.
            let EntryMessages::Each(again) = messages(&rewritten, BYTES_MAX) else {
                panic!("it can be taken apart");
            };
            assert_eq!(
                again.iter().map(|one| one.is_gone).collect::<Vec<_>>(),
                [true, false, false]
            );
        }
    }

    #[test]
    fn what_a_compaction_by_pulsar_said_of_the_batch_is_not_said_of_what_is_left_now() {
        let entry = batch(&[(Some("a"), "1"), (Some("b"), "2")], CompressionType::None);
        let parts = split(&entry).unwrap();
        let metadata = MessageMetadata {
            compacted_batch_indexes: vec![0, 1],
            ..decode_metadata(&parts.metadata).unwrap()
        };
        let entry = encode_entry(&metadata, &parts.payload);
        let rewritten = Bytes::from(retain(&entry, &[true, false], BYTES_MAX).unwrap());
        let left = decode_metadata(&split(&rewritten).unwrap().metadata).unwrap();
        assert_eq!(left.compacted_batch_indexes, Vec::<i32>::new());
        assert_eq!(left.num_messages_in_batch, Some(2));
    }

    #[test]
    fn what_cannot_be_taken_apart_is_whole() {
        let encrypted = MessageMetadata {
            num_messages_in_batch: Some(2),
            encryption_keys: vec![EncryptionKeys::default()],
            ..plain()
        };
        let entry = encode_entry(&encrypted, b"secret");
        assert_eq!(messages(&entry, BYTES_MAX), EntryMessages::Whole);
        assert_eq!(retain(&entry, &[true, false], BYTES_MAX), None);
        let large = batch(&[(Some("a"), "1234567890")], CompressionType::Lz4);
        assert_eq!(messages(&large, 5), EntryMessages::Whole);
        for bytes in [&b""[..], b"\xff\xff\xff\xff", b"\0\0\0\x01\0"] {
            assert_eq!(messages(bytes, BYTES_MAX), EntryMessages::Whole);
        }
        // A batch that claims more messages than it has.
        let claims = MessageMetadata {
            num_messages_in_batch: Some(7),
            ..plain()
        };
        assert_eq!(
            messages(&encode_entry(&claims, b"\0\0"), BYTES_MAX),
            EntryMessages::Whole
        );
    }
}
