//! An entry of a compacted ledger as bytes; `docs/formats/compacted-ledger.md` draws it.

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use pharos_types::{EntryId, LedgerId, Ordinal, Position};

/// The layout. A reader that does not know it refuses the entry.
const LAYOUT: u8 = 1;
/// Bytes before the payload.
pub(super) const HEADER_BYTES: usize = 29;
/// Says that the entry is no batch.
const NO_BATCH: u32 = u32::MAX;

/// An entry that survived, with the place that it had in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompactedEntry {
    /// In the broker.
    pub ordinal: Ordinal,
    /// On the wire.
    pub position: Position,
    /// The index of the last message that is left in a batch; `None` of an entry that is no batch, and where only the payload says it, which is so in
    /// Pulsar's form.
    pub last_index: Option<u32>,
    /// Appended bytes, or a batch with fewer messages.
    pub payload: Bytes,
}

impl CompactedEntry {
    pub(super) fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(HEADER_BYTES + self.payload.len());
        out.put_u8(LAYOUT);
        out.put_u64(self.ordinal.0);
        out.put_u64(self.position.ledger.0);
        out.put_u64(self.position.entry.0);
        out.put_u32(self.last_index.unwrap_or(NO_BATCH));
        out.put_slice(&self.payload);
        out.freeze()
    }

    /// `None`: the bytes are no such entry, or one of another release.
    pub(super) fn decode(mut bytes: Bytes) -> Option<Self> {
        if bytes.len() < HEADER_BYTES || bytes.get_u8() != LAYOUT {
            return None;
        }
        Some(Self {
            ordinal: Ordinal(bytes.get_u64()),
            position: Position {
                ledger: LedgerId(bytes.get_u64()),
                entry: EntryId(bytes.get_u64()),
            },
            last_index: Some(bytes.get_u32()).filter(|index| *index != NO_BATCH),
            payload: bytes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_comes_back_and_other_bytes_are_refused() {
        for last_index in [None, Some(0), Some(7)] {
            let entry = CompactedEntry {
                ordinal: Ordinal(5),
                position: Position::new(1 << 40, 3),
                last_index,
                payload: Bytes::from("aye"),
            };
            let bytes = entry.encode();
            assert_eq!(bytes.len(), HEADER_BYTES + 3);
            assert_eq!(CompactedEntry::decode(bytes.clone()), Some(entry));
            assert_eq!(CompactedEntry::decode(bytes.slice(..HEADER_BYTES - 1)), None);
            let mut other = bytes.to_vec();
            other[0] = 2;
            assert_eq!(CompactedEntry::decode(Bytes::from(other)), None);
        }
    }
}
