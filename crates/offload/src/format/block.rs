//! The data object: blocks of records.
//!
//! ```text
//!   block   header (128) │ records … │ padding
//!   header  magic 4 │ header length 8 │ block length 8 │ first entry id 8 │ zeros
//!   record  payload length 4 │ entry id 8 │ payload
//! ```
//!
//! A block is one part of a multipart upload. Records do not cross blocks. A block that is not the last is padded to its full
//! length; its length is the same for all, unless one record alone is longer.
//!
//! Within a block, runs of whole records of about [`SPAN_BYTES`] are *spans*: what is checked, and read, as one.

use bytes::{BufMut, Bytes, BytesMut};
use pharos_ledger::ReadEntry;
use pharos_types::EntryId;

use super::index::Span;
use super::{Take, crc32c};

/// First word of a block.
pub const BLOCK_MAGIC: u32 = 0xFBDB_ABCB;
/// Bytes before the first record of a block.
pub const HEADER_BYTES: usize = 128;
/// Bytes of a record before its payload.
pub const RECORD_OVERHEAD: usize = 12;
/// Pattern that fills the end of a block.
const PADDING: [u8; 4] = 0xFEDC_DEAD_u32.to_be_bytes();
/// A span ends with the record that takes it to this size.
pub const SPAN_BYTES: usize = 64 << 10;

const _: () = assert!(HEADER_BYTES >= 4 + 8 + 8 + 8);

/// A finished block.
#[derive(Clone, Debug)]
pub struct Block {
    /// Id of its first entry.
    pub first: EntryId,
    /// All its bytes, in pieces.
    pub pieces: Vec<Bytes>,
    /// Their number.
    pub length: u64,
    /// Its spans, with offsets from the beginning of the data object.
    pub spans: Vec<Span>,
}

/// Puts entries into blocks, one block in memory at a time.
#[derive(Debug)]
pub struct BlockBuilder {
    block_bytes: usize,
    /// Offset of the current block in the data object.
    offset: u64,
    first: Option<EntryId>,
    /// Sealed spans of the current block.
    pieces: Vec<Bytes>,
    spans: Vec<Span>,
    /// Bytes of the current block before `open`.
    sealed: usize,
    /// The span that still grows.
    open: BytesMut,
    open_first: EntryId,
    open_entries: u32,
}

impl BlockBuilder {
    /// A builder of blocks of `block_bytes`.
    #[must_use]
    pub fn new(block_bytes: usize) -> Self {
        Self {
            block_bytes: block_bytes.max(HEADER_BYTES + RECORD_OVERHEAD + 1),
            offset: 0,
            first: None,
            pieces: Vec::new(),
            spans: Vec::new(),
            sealed: HEADER_BYTES,
            open: BytesMut::new(),
            open_first: EntryId(0),
            open_entries: 0,
        }
    }

    /// Adds the next entry; entries come in order. Returns the block before it when this one begins another.
    pub fn push(&mut self, entry: &ReadEntry) -> Option<Block> {
        let record = RECORD_OVERHEAD + entry.payload.len();
        let used = self.sealed + self.open.len();
        let is_full = self.first.is_some() && used + record > self.block_bytes;
        let full = is_full.then(|| self.seal(true)).flatten();
        self.first.get_or_insert(entry.id);
        if self.open_entries == 0 {
            self.open_first = entry.id;
        }
        self.open_entries += 1;
        self.open.reserve(record);
        self.open
            .put_u32(u32::try_from(entry.payload.len()).unwrap_or(u32::MAX));
        self.open.put_u64(entry.id.0);
        self.open.put_slice(&entry.payload);
        if self.open.len() >= SPAN_BYTES {
            self.seal_span();
        }
        full
    }

    /// The last block, when there is one. It is not padded.
    pub fn finish(&mut self) -> Option<Block> {
        self.seal(false)
    }

    /// Bytes of the data object up to the last block that was given out.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.offset
    }

    fn seal_span(&mut self) {
        if self.open_entries == 0 {
            return;
        }
        let piece = std::mem::take(&mut self.open).freeze();
        self.spans.push(Span {
            first: self.open_first,
            entries: self.open_entries,
            offset: self.offset + self.sealed as u64,
            length: u32::try_from(piece.len()).unwrap_or(u32::MAX),
            crc: crc32c(&piece),
        });
        self.sealed += piece.len();
        self.pieces.push(piece);
        self.open_entries = 0;
    }

    fn seal(&mut self, is_padded: bool) -> Option<Block> {
        let first = self.first.take()?;
        self.seal_span();
        let padding = match is_padded {
            true => self.block_bytes.saturating_sub(self.sealed),
            false => 0,
        };
        let length = (self.sealed + padding) as u64;
        let mut header = BytesMut::with_capacity(HEADER_BYTES);
        header.put_u32(BLOCK_MAGIC);
        header.put_u64(HEADER_BYTES as u64);
        header.put_u64(length);
        header.put_u64(first.0);
        header.put_bytes(0, HEADER_BYTES - header.len());
        let mut pieces = vec![header.freeze()];
        pieces.append(&mut self.pieces);
        if padding > 0 {
            pieces.push(PADDING.into_iter().cycle().take(padding).collect());
        }
        self.offset += length;
        self.sealed = HEADER_BYTES;
        Some(Block {
            first,
            pieces,
            length,
            spans: std::mem::take(&mut self.spans),
        })
    }
}

/// Defect in the bytes of a span, with its location.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SpanFault {
    /// The bytes are not those that were written.
    #[error("checksum is {found:#010x} where the index says {expected:#010x}")]
    Checksum {
        /// Checksum of the bytes.
        found: u32,
        /// Checksum in the index.
        expected: u32,
    },
    /// The records are not those that the index speaks of, although the checksum is right.
    #[error("record of entry {0} is not where it should be")]
    Record(EntryId),
}

/// Checks a span and takes its records apart. `bytes`: exactly the span. The payloads share its memory.
///
/// # Errors
/// [`SpanFault`].
pub fn records(span: &Span, bytes: &Bytes) -> Result<Vec<ReadEntry>, SpanFault> {
    let found = crc32c(bytes);
    if found != span.crc || bytes.len() as u64 != u64::from(span.length) {
        return Err(SpanFault::Checksum {
            found,
            expected: span.crc,
        });
    }
    let mut rest = bytes.clone();
    let mut entries = Vec::new();
    for index in 0..u64::from(span.entries) {
        let id = EntryId(span.first.0.saturating_add(index));
        let wrong = SpanFault::Record(id);
        let length = rest.take_u32().ok_or(wrong)?;
        let named = rest.take_u64().ok_or(wrong)?;
        let length = usize::try_from(length).map_err(|_| wrong)?;
        if named != id.0 || length > rest.len() {
            return Err(wrong);
        }
        entries.push(ReadEntry {
            id,
            payload: rest.split_to(length),
        });
    }
    match rest.is_empty() {
        true => Ok(entries),
        false => Err(SpanFault::Record(EntryId(
            span.first.0.saturating_add(u64::from(span.entries)),
        ))),
    }
}
