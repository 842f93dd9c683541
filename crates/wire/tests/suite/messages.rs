//! The payload part: facts, keys, batches, blocks to strip.

use bytes::Bytes;
use pharos_wire::hash::crc32c;
use pharos_wire::message::{self, BatchBuilder, BatchError, BatchIter, ChunkFacts, ReplicateTo, SplitError};
use pharos_wire::proto::{
    BrokerEntryMetadata, CompressionType, EncryptionKeys, KeyValue, MessageMetadata, SingleMessageMetadata,
};
use prost::Message as _;

use crate::{golden, hex};

fn metadata() -> MessageMetadata {
    MessageMetadata {
        producer_name: "p-1".to_owned(),
        sequence_id: 5,
        publish_time: 1_700_000_000_000,
        ..Default::default()
    }
}

#[test]
fn a_plain_message_has_plain_facts() {
    let bytes = metadata().encode_to_vec();
    let facts = message::peek(&bytes).unwrap();
    assert_eq!(
        (facts.producer_name, facts.sequence_id, facts.publish_time),
        ("p-1", 5, 1_700_000_000_000)
    );
    assert_eq!((facts.num_messages(), facts.num_messages_in_batch), (1, None));
    assert_eq!((facts.chunk, facts.txn, facts.marker_type), (None, None, None));
    assert_eq!(facts.replicate_to, ReplicateTo::Default);
    assert_eq!(facts.compression, CompressionType::None);
}

#[test]
fn every_fact_is_read() {
    let full = MessageMetadata {
        properties: vec![
            KeyValue {
                key: "k".to_owned(),
                value: "v".to_owned()
            };
            3
        ],
        replicated_from: Some("east".to_owned()),
        partition_key: Some("a2V5".to_owned()),
        replicate_to: vec!["west".to_owned(), "north".to_owned()],
        compression: Some(CompressionType::Zstd as i32),
        uncompressed_size: Some(4096),
        num_messages_in_batch: Some(7),
        event_time: Some(11),
        encryption_keys: vec![EncryptionKeys {
            key: "k".to_owned(),
            ..Default::default()
        }],
        schema_version: Some(Bytes::from_static(&[0, 0, 0, 0, 0, 0, 0, 1])),
        partition_key_b64_encoded: Some(true),
        deliver_at_time: Some(-12),
        marker_type: Some(21),
        txnid_least_bits: Some(13),
        txnid_most_bits: Some(14),
        highest_sequence_id: Some(11),
        null_value: Some(true),
        uuid: Some("u".to_owned()),
        num_chunks_from_msg: Some(3),
        total_chunk_msg_size: Some(999),
        chunk_id: Some(2),
        null_partition_key: Some(true),
        ..metadata()
    };
    let bytes = full.encode_to_vec();
    let facts = message::peek(&bytes).unwrap();
    assert_eq!(facts.property_count, 3);
    assert_eq!(facts.replicated_from, Some(&b"east"[..]));
    assert_eq!(facts.replicate_to, ReplicateTo::Listed);
    assert_eq!(
        message::replicate_to(&bytes).collect::<Vec<_>>(),
        [&b"west"[..], b"north"]
    );
    assert_eq!(
        (facts.compression, facts.uncompressed_bytes),
        (CompressionType::Zstd, 4096)
    );
    assert_eq!((facts.num_messages(), facts.event_time), (7, Some(11)));
    assert!(facts.is_encrypted && facts.null_value && facts.null_partition_key);
    assert_eq!(facts.schema_version, full.schema_version.as_deref());
    assert_eq!((facts.deliver_at_time, facts.marker_type), (Some(-12), Some(21)));
    assert_eq!(facts.txn, Some(pharos_types::TxnId { most: 14, least: 13 }));
    assert_eq!(facts.highest_sequence_id, Some(11));
    let chunk = ChunkFacts {
        uuid: b"u",
        chunk_id: 2,
        num_chunks: 3,
        total_bytes: 999,
    };
    assert_eq!(facts.chunk, Some(chunk));
    assert!(chunk.is_last());
    assert_eq!(&*facts.sticky_key(), b"key");
}

#[test]
fn one_transaction_half_is_no_transaction() {
    let half = MessageMetadata {
        txnid_least_bits: Some(1),
        ..metadata()
    }
    .encode_to_vec();
    assert_eq!(message::peek(&half).unwrap().txn, None);
}

#[test]
fn the_local_mark_keeps_a_message_at_home() {
    let local = MessageMetadata {
        replicate_to: vec!["__local__".to_owned()],
        ..metadata()
    }
    .encode_to_vec();
    assert_eq!(
        message::peek(&local).unwrap().replicate_to,
        ReplicateTo::LocalOnly
    );
}

#[test]
fn the_sticky_key_is_chosen_in_order() {
    let key = |text: &str| Some(text.to_owned());
    let ordered = MessageMetadata {
        ordering_key: Some(Bytes::from_static(b"order")),
        partition_key: key("part"),
        ..metadata()
    };
    let encoded = |text| MessageMetadata {
        partition_key: key(text),
        partition_key_b64_encoded: Some(true),
        ..metadata()
    };
    let rows = [
        (ordered, &b"order"[..]),
        (
            MessageMetadata {
                partition_key: key("part"),
                ..metadata()
            },
            b"part",
        ),
        (encoded("/+8="), &[0xff, 0xef]),
        (encoded("/+8"), &[0xff, 0xef]),
        (encoded("not base64!"), message::NONE_KEY),
        (metadata(), b"p-1-5"),
    ];
    for (metadata, expected) in rows {
        assert_eq!(
            &*message::sticky_key(&metadata.encode_to_vec()),
            expected,
            "{metadata:?}"
        );
    }
    assert_eq!(&*message::sticky_key(b"\xff"), message::NONE_KEY);
}

#[test]
fn a_binary_key_passes_though_it_is_not_text() {
    let mut bytes = MessageMetadata {
        partition_key: Some("xx".to_owned()),
        ..metadata()
    }
    .encode_to_vec();
    let at = bytes.windows(2).position(|window| window == b"xx").unwrap();
    bytes[at] = 0xfe;
    assert_eq!(&*message::sticky_key(&bytes), b"\xfex");
    assert!(message::decode_metadata(&bytes).is_err());
}

#[test]
fn a_stored_entry_can_be_stripped_for_old_consumers() {
    let entry = Bytes::from(hex(golden::ENTRY));
    let stored = BrokerEntryMetadata {
        broker_timestamp: Some(17),
        index: Some(3),
    };
    let stored = Bytes::from([&message::broker_entry_prefix(&stored), &entry[..]].concat());
    let parts = message::split_ref(&stored).unwrap();
    assert_eq!(parts.broker_entry_facts().broker_timestamp, Some(17));
    assert_eq!(parts.broker_entry_facts().index, Some(3));
    assert!(parts.verify_checksum());
    assert_eq!(message::strip_broker_entry_metadata(&stored).unwrap(), entry);
    assert_eq!(message::strip_broker_entry_metadata(&entry).unwrap(), entry);
    for original in [&stored, &entry] {
        let stripped = message::strip_checksum(original).unwrap();
        assert_eq!(stripped, entry[6..]);
        assert_eq!(message::split_ref(&stripped).unwrap().checksum, None);
    }
}

#[test]
fn a_flipped_bit_fails_the_checksum() {
    let mut entry = hex(golden::ENTRY);
    *entry.last_mut().unwrap() ^= 1;
    assert!(!message::split_ref(&entry).unwrap().verify_checksum());
}

#[test]
fn the_checksum_of_all_of_an_entry_follows_from_the_one_in_it() {
    for size in [16 << 10, (16 << 10) + 1, 131_072, 5_000_001] {
        let payload: Vec<u8> = (0..size).map(|i: u32| (i % 251) as u8).collect();
        let entry = message::encode_entry(&metadata(), &payload);
        let stored = [
            &message::broker_entry_prefix(&BrokerEntryMetadata::default()),
            &entry[..],
        ]
        .concat();
        for entry in [&entry[..], &stored] {
            let parts = message::split_ref(entry).unwrap();
            assert_eq!(parts.entry_checksum(entry), Some(crc32c(entry)), "{size}");
        }
        let unchecked = &entry[6..];
        assert_eq!(
            message::split_ref(unchecked).unwrap().entry_checksum(unchecked),
            None
        );
    }
    let small = message::encode_entry(&metadata(), b"small");
    assert_eq!(message::split_ref(&small).unwrap().entry_checksum(&small), None);
}

#[test]
fn a_batch_comes_apart_as_it_was_put_together() {
    let mut builder = BatchBuilder::new();
    for i in 0..3_u8 {
        let single = SingleMessageMetadata {
            partition_key: Some(format!("k{i}")),
            ..Default::default()
        };
        builder.push(single, &vec![i; usize::from(i) * 5]);
    }
    let (count, bytes) = (builder.num_messages(), builder.payload_bytes());
    let payload = builder.take();
    assert_eq!((count, bytes, builder.is_empty()), (3, payload.len(), true));
    let messages: Vec<_> = BatchIter::new(payload, 3).map(Result::unwrap).collect();
    for (i, message) in messages.iter().enumerate() {
        assert_eq!(message.batch_index as usize, i);
        assert_eq!(message.metadata.partition_key, Some(format!("k{i}")));
        assert_eq!(message.payload, vec![i as u8; i * 5]);
    }
    assert_eq!(messages.len(), 3);
}

#[test]
fn a_broken_batch_ends_with_one_error() {
    let mut builder = BatchBuilder::new();
    builder.push(SingleMessageMetadata::default(), b"hello");
    let payload = builder.take();
    let outcomes: Vec<_> = BatchIter::new(payload.clone(), 9).collect();
    assert!(matches!(
        outcomes[..],
        [Ok(_), Err(BatchError::Split(SplitError::Truncated { .. }))]
    ));
    let cut = payload.slice(..payload.len() - 1);
    let outcome = BatchIter::new(cut, 1).next().unwrap();
    assert_eq!(
        outcome,
        Err(BatchError::Overrun {
            batch_index: 0,
            claimed: 5,
            available: 4
        })
    );
}
