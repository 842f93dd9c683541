//! Stored entries of the Pulsar encoding, as a broker asks about them.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use pharos_types::entry::{Chunk, EntryCodec, EntryFacts, EntryMessages, Sequence, SourcePosition};
use pharos_types::{TxnEntry, TxnId, TxnOutcome};

use super::compact;
use super::facts::{ChunkFacts, MessageFacts, peek};
use super::parts::split_ref;
use super::relay::source_position;
use super::{NONE_KEY, encode_entry};
use crate::hash::murmur3_32;
use crate::proto::{MarkerType, MessageMetadata};

/// The encoding of entries that Pulsar's clients send and get: see the [module](super).
#[derive(Clone, Copy, Debug)]
pub struct PulsarEntries;

impl EntryCodec for PulsarEntries {
    fn facts(&self, entry: &[u8]) -> EntryFacts {
        read(entry).map_or(EntryFacts::PLAIN, |facts| facts.entry_facts())
    }

    fn key_hash(&self, entry: &[u8]) -> u32 {
        match read(entry) {
            Some(facts) => murmur3_32(&facts.sticky_key()),
            None => murmur3_32(NONE_KEY),
        }
    }

    fn chunk(&self, entry: &[u8]) -> Option<Chunk> {
        Some(place(&read(entry)?.chunk?))
    }

    fn sequence<'e>(&self, entry: &'e [u8]) -> Option<Sequence<'e>> {
        let parts = split_ref(entry).ok()?;
        let facts = peek(parts.metadata).ok()?;
        let is_whole = facts.chunk.is_none_or(|chunk| place(&chunk).is_last());
        let source = || {
            let cluster = std::str::from_utf8(facts.replicated_from?).ok()?;
            let (ledger, entry) = source_position(parts.metadata)?;
            Some(SourcePosition {
                cluster,
                ledger,
                entry,
            })
        };
        let source = source();
        // A place is of each piece: the pieces of a message that come again are all known by theirs.
        let is_counted = source.is_some() || is_whole;
        (is_counted && facts.marker_type.is_none()).then(|| Sequence {
            producer: facts.producer_name,
            first: facts.sequence_id,
            highest: facts.sequence_id.max(facts.highest_sequence_id.unwrap_or(0)),
            source,
        })
    }

    fn messages(&self, entry: &[u8], bytes_max: usize) -> EntryMessages {
        compact::messages(entry, bytes_max)
    }

    fn retain(&self, entry: &[u8], keep: &[bool], bytes_max: usize) -> Option<Vec<u8>> {
        compact::retain(entry, keep, bytes_max)
    }

    fn transaction(&self, entry: &[u8]) -> Option<TxnEntry> {
        let facts = read(entry)?;
        let txn = facts.txn?;
        match facts.marker_type {
            None => Some(TxnEntry::Message(txn)),
            Some(marker) => {
                let outcome = match MarkerType::try_from(marker).ok()? {
                    MarkerType::TxnCommit => TxnOutcome::Committed,
                    MarkerType::TxnAbort => TxnOutcome::Aborted,
                    _ => return None,
                };
                Some(TxnEntry::End(txn, outcome))
            }
        }
    }

    fn encode_txn_end(&self, txn: TxnId, outcome: TxnOutcome, publish_time_ms: u64) -> Vec<u8> {
        let marker = match outcome {
            TxnOutcome::Committed => MarkerType::TxnCommit,
            TxnOutcome::Aborted => MarkerType::TxnAbort,
        };
        let metadata = MessageMetadata {
            producer_name: "pulsar.txn.marker".to_owned(),
            publish_time: publish_time_ms,
            marker_type: Some(marker as i32),
            txnid_most_bits: Some(txn.most),
            txnid_least_bits: Some(txn.least),
            ..MessageMetadata::default()
        };
        encode_entry(&metadata, b"").to_vec()
    }

    fn encode_own(&self, producer: &str, publish_time_ms: u64, payload: &[u8]) -> Vec<u8> {
        let metadata = MessageMetadata {
            producer_name: producer.to_owned(),
            publish_time: publish_time_ms,
            ..MessageMetadata::default()
        };
        encode_entry(&metadata, payload).to_vec()
    }
}

impl MessageFacts<'_> {
    /// Facts of the entry that a broker needs.
    pub fn entry_facts(&self) -> EntryFacts {
        EntryFacts {
            message_count: self.num_messages(),
            publish_time_ms: self.publish_time,
            deliver_at_ms: self.deliver_at_time,
            is_batch: self.num_messages_in_batch.is_some(),
            is_marker: self.marker_type.is_some(),
            is_chunk: self.chunk.is_some(),
            is_encrypted: self.is_encrypted,
            is_transactional: self.txn.is_some(),
        }
    }
}

fn place(chunk: &ChunkFacts<'_>) -> Chunk {
    let mut hasher = DefaultHasher::new();
    chunk.uuid.hash(&mut hasher);
    Chunk {
        uuid_hash: hasher.finish(),
        index: u32::try_from(chunk.chunk_id).unwrap_or(0),
        count: u32::try_from(chunk.num_chunks).unwrap_or(1),
    }
}

fn read(entry: &[u8]) -> Option<MessageFacts<'_>> {
    peek(split_ref(entry).ok()?.metadata).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::EncryptionKeys;

    fn metadata() -> MessageMetadata {
        MessageMetadata {
            producer_name: "p".to_owned(),
            sequence_id: 3,
            publish_time: 77,
            ..MessageMetadata::default()
        }
    }

    #[test]
    fn facts_are_those_of_the_metadata() {
        let entry = encode_entry(
            &MessageMetadata {
                num_messages_in_batch: Some(3),
                deliver_at_time: Some(99),
                encryption_keys: vec![EncryptionKeys::default()],
                ..metadata()
            },
            b"x",
        );
        let facts = PulsarEntries.facts(&entry);
        let expected = EntryFacts {
            message_count: 3,
            publish_time_ms: 77,
            deliver_at_ms: Some(99),
            is_batch: true,
            is_encrypted: true,
            ..EntryFacts::PLAIN
        };
        assert_eq!(facts, expected);
        assert_eq!(facts.batch_size(), Some(3));
        assert_eq!(PulsarEntries.chunk(&entry), None);
    }

    #[test]
    fn bytes_that_do_not_parse_are_one_plain_message_of_a_fixed_key() {
        for entry in [&b""[..], b"\xff\xff\xff\xff", b"\0\0\0\x01\0"] {
            assert_eq!(PulsarEntries.facts(entry), EntryFacts::PLAIN);
            assert_eq!(PulsarEntries.key_hash(entry), murmur3_32(NONE_KEY));
            assert_eq!(PulsarEntries.chunk(entry), None);
        }
    }

    #[test]
    fn keys_and_pieces_are_found() {
        let entry = |uuid: &str, chunk_id| {
            let metadata = MessageMetadata {
                partition_key: Some("key".to_owned()),
                uuid: Some(uuid.to_owned()),
                chunk_id: Some(chunk_id),
                num_chunks_from_msg: Some(2),
                ..metadata()
            };
            encode_entry(&metadata, b"x")
        };
        let [first, last, other] = [entry("a", 0), entry("a", 1), entry("b", 1)].map(|entry| {
            assert_eq!(PulsarEntries.key_hash(&entry), murmur3_32(b"key"));
            assert!(PulsarEntries.facts(&entry).is_chunk);
            PulsarEntries.chunk(&entry).unwrap()
        });
        assert!(!first.is_last() && last.is_last());
        assert_eq!(first.uuid_hash, last.uuid_hash);
        assert_ne!(first.uuid_hash, other.uuid_hash);
    }

    #[test]
    fn a_sequence_is_that_of_the_last_message_and_of_the_last_piece() {
        let sequence = |metadata: &MessageMetadata| {
            let entry = encode_entry(metadata, b"x");
            let found = PulsarEntries.sequence(&entry);
            found.map(|found| (found.producer.to_owned(), found.highest))
        };
        assert_eq!(sequence(&metadata()), Some(("p".to_owned(), 3)));
        let batch = MessageMetadata {
            num_messages_in_batch: Some(5),
            highest_sequence_id: Some(7),
            ..metadata()
        };
        assert_eq!(sequence(&batch), Some(("p".to_owned(), 7)));
        let piece = |chunk_id| MessageMetadata {
            uuid: Some("u".to_owned()),
            chunk_id: Some(chunk_id),
            num_chunks_from_msg: Some(2),
            ..metadata()
        };
        assert_eq!(sequence(&piece(0)), None);
        assert_eq!(sequence(&piece(1)), Some(("p".to_owned(), 3)));
        let marker = MessageMetadata {
            marker_type: Some(1),
            ..metadata()
        };
        assert_eq!(sequence(&marker), None);
        assert_eq!(PulsarEntries.sequence(b"\xff"), None);
    }

    #[test]
    fn what_an_entry_says_of_a_transaction_comes_back() {
        let txn = TxnId {
            most: 3,
            least: 1 << 40,
        };
        let message = MessageMetadata {
            txnid_most_bits: Some(txn.most),
            txnid_least_bits: Some(txn.least),
            ..metadata()
        };
        let message = encode_entry(&message, b"x");
        assert!(PulsarEntries.facts(&message).is_transactional);
        assert_eq!(PulsarEntries.transaction(&message), Some(TxnEntry::Message(txn)));
        for outcome in [TxnOutcome::Committed, TxnOutcome::Aborted] {
            let marker = PulsarEntries.encode_txn_end(txn, outcome, 5);
            let facts = PulsarEntries.facts(&marker);
            assert!(facts.is_marker && facts.is_transactional && facts.publish_time_ms == 5);
            assert_eq!(
                PulsarEntries.transaction(&marker),
                Some(TxnEntry::End(txn, outcome))
            );
        }
        let plain = encode_entry(&metadata(), b"x");
        assert_eq!(PulsarEntries.transaction(&plain), None);
        let added = super::super::with_transaction(&split_ref(&plain).unwrap(), txn);
        let parts = split_ref(&added).unwrap();
        assert!(parts.verify_checksum() && parts.payload == b"x");
        assert_eq!(PulsarEntries.transaction(&added), Some(TxnEntry::Message(txn)));
        let read = super::super::decode_metadata(parts.metadata).unwrap();
        assert_eq!((read.sequence_id, read.publish_time), (3, 77));
    }

    #[test]
    fn an_entry_of_the_brokers_own_is_one_plain_message() {
        let entry = PulsarEntries.encode_own("healthcheck", 5, b"beat");
        let expected = EntryFacts {
            publish_time_ms: 5,
            ..EntryFacts::PLAIN
        };
        assert_eq!(PulsarEntries.facts(&entry), expected);
    }
}
