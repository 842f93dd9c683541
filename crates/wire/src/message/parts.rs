//! Finds the blocks of an entry.

use bytes::Bytes;

use crate::error::WireError;
use crate::hash::{crc32c, crc32c_joined};
use crate::protobuf::{Reader, Value};

/// In front of a `BrokerEntryMetadata` block.
pub(crate) const BROKER_ENTRY_MAGIC: [u8; 2] = [0x0e, 0x02];

/// In front of a checksum.
pub(crate) const CHECKSUM_MAGIC: [u8; 2] = [0x0e, 0x01];

/// From this size on joining two checksums is much quicker than reading the bytes once more.
const JOINED_BYTES_MIN: usize = 16 << 10;

/// An entry whose blocks do not fit together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SplitError {
    /// The entry ends inside the named block's header.
    #[error("the entry ends within {block}")]
    Truncated {
        /// The block that is cut.
        block: &'static str,
    },
    /// A block claims more bytes than the entry has left.
    #[error("{block} of {claimed} bytes does not fit into the {available} that are left")]
    Overrun {
        /// The block that claims too much.
        block: &'static str,
        /// Its claimed size.
        claimed: u32,
        /// Rest of the entry, in bytes.
        available: usize,
    },
}

/// The blocks of an entry, borrowed from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartsRef<'a> {
    /// Bytes of the `BrokerEntryMetadata`, when the entry has one.
    pub broker_entry_metadata: Option<&'a [u8]>,
    /// The CRC32-C the producer sent, when it did.
    pub checksum: Option<u32>,
    /// Bytes covered by the checksum: metadata size, metadata and payload.
    pub checked: &'a [u8],
    /// Bytes of the `MessageMetadata`.
    pub metadata: &'a [u8],
    /// The message, or the batch.
    pub payload: &'a [u8],
}

impl PartsRef<'_> {
    /// True if the entry matches its checksum; an entry without one does.
    pub fn verify_checksum(&self) -> bool {
        self.checksum
            .is_none_or(|checksum| checksum == crc32c(self.checked))
    }

    /// The CRC32-C of `entry`, which these are the parts of, from that of the blocks it covers: nothing of them is read again.
    /// To be asked only of an entry that agrees with its checksum. `None` when it has none, or is so small that reading it
    /// costs no more.
    pub fn entry_checksum(&self, entry: &[u8]) -> Option<u32> {
        let checksum = self.checksum?;
        if self.checked.len() < JOINED_BYTES_MIN {
            return None;
        }
        let before = entry.get(..entry.len().checked_sub(self.checked.len())?)?;
        let joined = crc32c_joined(crc32c(before), checksum, self.checked.len());
        debug_assert_eq!(
            joined,
            crc32c(entry),
            "the parts are those of this entry, and it agrees"
        );
        Some(joined)
    }

    /// Facts recorded by the broker when it stored the entry. Absent and unreadable are the same here: the block is
    /// optional.
    pub fn broker_entry_facts(&self) -> BrokerEntryFacts {
        self.broker_entry_metadata
            .and_then(|bytes| BrokerEntryFacts::read(bytes).ok())
            .unwrap_or_default()
    }
}

/// The blocks of an entry, each a view that shares the entry's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageParts {
    /// Bytes of the `BrokerEntryMetadata`, when the entry has one.
    pub broker_entry_metadata: Option<Bytes>,
    /// The CRC32-C the producer sent, when it did.
    pub checksum: Option<u32>,
    /// Bytes covered by the checksum: metadata size, metadata and payload.
    pub checked: Bytes,
    /// Bytes of the `MessageMetadata`.
    pub metadata: Bytes,
    /// The message, or the batch.
    pub payload: Bytes,
}

impl MessageParts {
    /// True if the entry matches its checksum; an entry without one does.
    pub fn verify_checksum(&self) -> bool {
        self.checksum
            .is_none_or(|checksum| checksum == crc32c(&self.checked))
    }
}

/// The fields of `BrokerEntryMetadata`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BrokerEntryFacts {
    /// Time at which the broker received the entry, in milliseconds since 1970.
    pub broker_timestamp: Option<u64>,
    /// Topic-wide index of the entry's last message.
    pub index: Option<u64>,
}

impl BrokerEntryFacts {
    fn read(bytes: &[u8]) -> Result<Self, WireError> {
        let mut facts = Self::default();
        let mut reader = Reader::new(bytes);
        while let Some(field) = reader.field()? {
            match field {
                (1, Value::Varint(v)) => facts.broker_timestamp = Some(v),
                (2, Value::Varint(v)) => facts.index = Some(v),
                _ => {}
            }
        }
        Ok(facts)
    }
}

/// Finds the blocks of an entry without touching a reference count.
///
/// # Errors
/// The blocks do not fit into the entry. A broker closes the connection of a producer that sends such a thing.
pub fn split_ref(entry: &[u8]) -> Result<PartsRef<'_>, SplitError> {
    let (broker_entry_metadata, rest) = match entry.strip_prefix(&BROKER_ENTRY_MAGIC) {
        Some(rest) => {
            let (block, rest) = sized(rest, "the broker entry metadata")?;
            (Some(block), rest)
        }
        None => (None, entry),
    };
    let (checksum, checked) = match rest.strip_prefix(&CHECKSUM_MAGIC) {
        Some(rest) => {
            let (sum, rest) = rest.split_first_chunk().ok_or(SplitError::Truncated {
                block: "the checksum",
            })?;
            (Some(u32::from_be_bytes(*sum)), rest)
        }
        None => (None, rest),
    };
    let (metadata, payload) = sized(checked, "the message metadata")?;
    Ok(PartsRef {
        broker_entry_metadata,
        checksum,
        checked,
        metadata,
        payload,
    })
}

/// Finds the blocks of an entry; nothing is copied.
///
/// # Errors
/// As [`split_ref`].
pub fn split(entry: &Bytes) -> Result<MessageParts, SplitError> {
    let parts = split_ref(entry)?;
    Ok(MessageParts {
        broker_entry_metadata: parts.broker_entry_metadata.map(|bytes| entry.slice_ref(bytes)),
        checksum: parts.checksum,
        checked: entry.slice_ref(parts.checked),
        metadata: entry.slice_ref(parts.metadata),
        payload: entry.slice_ref(parts.payload),
    })
}

/// The entry without its broker entry metadata, for consumers that did not ask for it.
///
/// # Errors
/// The block does not fit into the entry.
pub fn strip_broker_entry_metadata(entry: &Bytes) -> Result<Bytes, SplitError> {
    match entry.strip_prefix(&BROKER_ENTRY_MAGIC) {
        Some(rest) => Ok(entry.slice_ref(sized(rest, "the broker entry metadata")?.1)),
        None => Ok(entry.clone()),
    }
}

/// The entry without its checksum and without its broker entry metadata, for consumers below protocol version 11.
///
/// # Errors
/// The blocks do not fit into the entry.
pub fn strip_checksum(entry: &Bytes) -> Result<Bytes, SplitError> {
    Ok(entry.slice_ref(split_ref(entry)?.checked))
}

/// Reads a big-endian size and takes that many bytes.
pub(super) fn sized<'a>(bytes: &'a [u8], block: &'static str) -> Result<(&'a [u8], &'a [u8]), SplitError> {
    let (size, rest) = bytes.split_first_chunk().ok_or(SplitError::Truncated { block })?;
    let claimed = u32::from_be_bytes(*size);
    usize::try_from(claimed)
        .ok()
        .and_then(|size| rest.split_at_checked(size))
        .ok_or(SplitError::Overrun {
            block,
            claimed,
            available: rest.len(),
        })
}
