//! A stored message as it goes to another cluster, and what a message that came from one says of it.
//!
//! Fields are copied as they are, but for those that are replaced: text that is no UTF-8 passes, and so do fields of later protocols.

use bytes::{Bytes, BytesMut};

use pharos_types::{Position, varint};

use super::build::encode_raw_entry_into;
use super::parts::PartsRef;
use crate::error::WireError;
use crate::protobuf::{Reader, Value};

/// The property that says where a message is in the cluster that it came from: `ledger:entry`.
pub const SOURCE_POSITION: &str = "__MSG_PROP_REPL_SOURCE_POSITION";

const PROPERTY: u64 = 4;
const REPLICATED_FROM: u64 = 5;
const SCHEMA_VERSION: u64 = 16;
const TXN_LEAST: u64 = 22;
const TXN_MOST: u64 = 23;

/// Metadata changes of an entry on its way to another cluster.
#[derive(Clone, Copy, Debug)]
pub struct Relayed<'a> {
    /// The cluster that it comes from.
    pub from: &'a str,
    /// Position in that cluster.
    pub position: Position,
    /// The version of its schema there; empty: it has none any more.
    pub schema_version: &'a [u8],
}

/// The entry that another cluster gets: of no transaction, and with where it came from.
///
/// # Errors
/// The metadata are no protobuf.
pub fn relayed(parts: &PartsRef<'_>, change: Relayed<'_>) -> Result<Bytes, WireError> {
    let mut metadata = Vec::with_capacity(parts.metadata.len() + change.from.len() + 96);
    let mut reader = Reader::new(parts.metadata);
    let mut begin = 0;
    while let Some((number, value)) = reader.field()? {
        let end = parts.metadata.len() - reader.left();
        let is_replaced = match (u64::from(number), value) {
            (REPLICATED_FROM | SCHEMA_VERSION | TXN_LEAST | TXN_MOST, _) => true,
            // A client's word on that must not count over there.
            (PROPERTY, Value::Bytes(property)) => value_of(property, SOURCE_POSITION).is_some(),
            _ => false,
        };
        if !is_replaced {
            metadata.extend_from_slice(parts.metadata.get(begin..end).unwrap_or_default());
        }
        begin = end;
    }
    put(&mut metadata, REPLICATED_FROM, change.from.as_bytes());
    let mut property = Vec::with_capacity(80);
    put(&mut property, 1, SOURCE_POSITION.as_bytes());
    put(&mut property, 2, change.position.to_string().as_bytes());
    put(&mut metadata, PROPERTY, &property);
    if !change.schema_version.is_empty() {
        put(&mut metadata, SCHEMA_VERSION, change.schema_version);
    }
    let mut out = BytesMut::new();
    encode_raw_entry_into(&metadata, parts.payload, &mut out);
    Ok(out.freeze())
}

/// Position of a message in the cluster that it came from: ledger and entry. `None` if it has none.
#[must_use]
pub fn source_position(metadata: &[u8]) -> Option<(u64, u64)> {
    let mut reader = Reader::new(metadata);
    while let Ok(Some((number, value))) = reader.field() {
        if let Value::Bytes(property) = value
            && u64::from(number) == PROPERTY
            && let Some(text) = value_of(property, SOURCE_POSITION)
        {
            let (ledger, entry) = text.split_once(':')?;
            return Some((ledger.parse().ok()?, entry.parse().ok()?));
        }
    }
    None
}

/// The value of a property, if it has this key.
fn value_of<'a>(property: &'a [u8], key: &str) -> Option<&'a str> {
    let mut reader = Reader::new(property);
    let (mut found, mut text) = (false, None);
    while let Ok(Some((number, value))) = reader.field() {
        match (number, value) {
            (1, Value::Bytes(name)) => found = name == key.as_bytes(),
            (2, Value::Bytes(bytes)) => text = std::str::from_utf8(bytes).ok(),
            _ => {}
        }
    }
    text.filter(|_| found)
}

fn put(out: &mut Vec<u8>, number: u64, bytes: &[u8]) {
    varint::put(out, number << 3 | 2);
    varint::put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use pharos_types::{EntryId, LedgerId};

    use super::super::{decode_metadata, encode_entry, peek, split_ref};
    use super::*;
    use crate::proto::{KeyValue, MessageMetadata};

    #[test]
    fn a_message_keeps_what_it_says_and_gets_where_it_came_from() {
        let property = KeyValue {
            key: "a".to_owned(),
            value: "b".to_owned(),
        };
        let forged = KeyValue {
            key: SOURCE_POSITION.to_owned(),
            value: "99:9".to_owned(),
        };
        let metadata = MessageMetadata {
            producer_name: "p".to_owned(),
            sequence_id: 7,
            publish_time: 5,
            highest_sequence_id: Some(9),
            num_messages_in_batch: Some(3),
            partition_key: Some("k".to_owned()),
            properties: vec![forged, property.clone()],
            schema_version: Some(Bytes::from_static(b"\0\0\0\0\0\0\0\x01")),
            txnid_least_bits: Some(1),
            txnid_most_bits: Some(2),
            ..MessageMetadata::default()
        };
        let entry = encode_entry(&metadata, b"payload");
        let change = Relayed {
            from: "east",
            position: Position {
                ledger: LedgerId(12),
                entry: EntryId(3),
            },
            schema_version: b"\0\0\0\0\0\0\0\x04",
        };
        let sent = relayed(&split_ref(&entry).unwrap(), change).unwrap();
        let parts = split_ref(&sent).unwrap();
        assert!(parts.verify_checksum());
        assert_eq!(parts.payload, b"payload");
        let position = KeyValue {
            key: SOURCE_POSITION.to_owned(),
            value: "12:3".to_owned(),
        };
        let expected = MessageMetadata {
            replicated_from: Some("east".to_owned()),
            properties: vec![property, position],
            schema_version: Some(Bytes::from_static(b"\0\0\0\0\0\0\0\x04")),
            txnid_least_bits: None,
            txnid_most_bits: None,
            ..metadata
        };
        assert_eq!(decode_metadata(parts.metadata).unwrap(), expected);
        assert_eq!(source_position(parts.metadata), Some((12, 3)));
        assert_eq!(peek(parts.metadata).unwrap().replicated_from, Some(&b"east"[..]));
        assert_eq!(
            source_position(split_ref(&entry).unwrap().metadata),
            Some((99, 9))
        );
    }

    #[test]
    fn a_position_that_is_none_is_none() {
        for text in ["", "1", "1:", ":1", "1:2:3", "-1:2", "a:b"] {
            let property = KeyValue {
                key: SOURCE_POSITION.to_owned(),
                value: text.to_owned(),
            };
            let metadata = MessageMetadata {
                properties: vec![property],
                ..MessageMetadata::default()
            };
            let entry = encode_entry(&metadata, b"");
            assert_eq!(
                source_position(split_ref(&entry).unwrap().metadata),
                None,
                "{text}"
            );
        }
    }
}
