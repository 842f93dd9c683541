//! A stored entry: splitting, stripping, peeking and walking a batch never panic and agree with each other.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use pharos_wire::message::{self, BatchIter};

fuzz_target!(|data: &[u8]| {
    let entry = Bytes::copy_from_slice(data);
    let Ok(parts) = message::split(&entry) else { return };
    parts.verify_checksum();
    assert!(parts.metadata.len() + parts.payload.len() < entry.len());

    let stripped = message::strip_checksum(&entry).unwrap();
    assert_eq!(stripped, parts.checked);
    message::strip_broker_entry_metadata(&entry).unwrap();
    message::sticky_key(&parts.metadata);

    let facts = message::peek(&parts.metadata);
    if let Ok(full) = message::decode_metadata(&parts.metadata) {
        let facts = facts.as_ref().expect("what decodes can be peeked");
        assert_eq!(facts.producer_name, full.producer_name);
        assert_eq!(facts.sequence_id, full.sequence_id);
        assert_eq!(facts.num_messages_in_batch, full.num_messages_in_batch);
        assert_eq!(
            facts.partition_key,
            full.partition_key.as_ref().map(String::as_bytes)
        );
        assert_eq!(facts.is_encrypted, !full.encryption_keys.is_empty());
        assert_eq!(facts.property_count as usize, full.properties.len());
        assert_eq!(facts.compression, full.compression());
    }
    if let Ok(facts) = facts {
        let count = facts.num_messages().min(10_000);
        let bytes: usize = BatchIter::new(parts.payload.clone(), count)
            .flatten()
            .map(|m| m.payload.len())
            .sum();
        assert!(bytes <= parts.payload.len());
    }
});
