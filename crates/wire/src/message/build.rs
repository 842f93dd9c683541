//! Makes entries: the producer's side of [`super::split`].

use bytes::{BufMut as _, Bytes, BytesMut};
use prost::Message as _;

use pharos_types::{TxnId, varint};

use super::parts::{BROKER_ENTRY_MAGIC, CHECKSUM_MAGIC, PartsRef};
use crate::hash::crc32c;
use crate::proto::{BrokerEntryMetadata, MessageMetadata};

/// An entry with checksum: what follows the command in SEND, and what a broker stores.
///
/// `payload` is as it shall travel: already compressed or encrypted, or a batch made by [`super::BatchBuilder`].
pub fn encode_entry(metadata: &MessageMetadata, payload: &[u8]) -> Bytes {
    let mut out = BytesMut::new();
    encode_entry_into(metadata, payload, &mut out);
    out.freeze()
}

/// Appends an entry with checksum; see [`encode_entry`].
pub fn encode_entry_into(metadata: &MessageMetadata, payload: &[u8], out: &mut BytesMut) {
    let metadata_bytes = metadata.encoded_len();
    out.reserve(10 + metadata_bytes + payload.len());
    out.put_slice(&CHECKSUM_MAGIC);
    let checksum_at = out.len();
    out.put_u32(0);
    let checked_at = out.len();
    out.put_u32(metadata_bytes as u32);
    metadata.encode_raw(out);
    out.put_slice(payload);
    let checksum = crc32c(out.get(checked_at..).unwrap_or_default());
    if let Some(slot) = out.get_mut(checksum_at..checked_at) {
        slot.copy_from_slice(&checksum.to_be_bytes());
    }
}

/// Appends an entry with checksum of metadata that are bytes already; see [`encode_entry`].
pub(super) fn encode_raw_entry_into(metadata: &[u8], payload: &[u8], out: &mut BytesMut) {
    out.reserve(10 + metadata.len() + payload.len());
    out.put_slice(&CHECKSUM_MAGIC);
    let checksum_at = out.len();
    out.put_u32(0);
    let checked_at = out.len();
    out.put_u32(metadata.len() as u32);
    out.put_slice(metadata);
    out.put_slice(payload);
    let checksum = crc32c(out.get(checked_at..).unwrap_or_default());
    if let Some(slot) = out.get_mut(checksum_at..checked_at) {
        slot.copy_from_slice(&checksum.to_be_bytes());
    }
}

/// Appends the block a broker puts in front of a stored entry, of metadata that are bytes already.
pub(super) fn broker_entry_prefix_raw(metadata: &[u8], out: &mut BytesMut) {
    out.put_slice(&BROKER_ENTRY_MAGIC);
    out.put_u32(metadata.len() as u32);
    out.put_slice(metadata);
}

/// Returns the same entry with the transaction in its metadata. Not every client sets it there.
pub fn with_transaction(parts: &PartsRef<'_>, txn: TxnId) -> Bytes {
    let mut metadata = parts.metadata.to_vec();
    // Fields may stand in any order, so these can follow all others.
    for (field, value) in [(22_u64, txn.least), (23, txn.most)] {
        varint::put(&mut metadata, field << 3);
        varint::put(&mut metadata, value);
    }
    let mut checked = BytesMut::with_capacity(4 + metadata.len() + parts.payload.len());
    checked.put_u32(metadata.len() as u32);
    checked.put_slice(&metadata);
    checked.put_slice(parts.payload);
    let mut out = BytesMut::with_capacity(6 + checked.len());
    out.put_slice(&CHECKSUM_MAGIC);
    out.put_u32(crc32c(&checked));
    out.put_slice(&checked);
    out.freeze()
}

/// The block a broker puts in front of a stored entry.
pub fn broker_entry_prefix(metadata: &BrokerEntryMetadata) -> Bytes {
    let bytes = metadata.encoded_len();
    let mut out = BytesMut::with_capacity(6 + bytes);
    out.put_slice(&BROKER_ENTRY_MAGIC);
    out.put_u32(bytes as u32);
    metadata.encode_raw(&mut out);
    out.freeze()
}
