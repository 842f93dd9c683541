//! The index object: where in the data object which entries are.
//!
//! ```text
//!   magic 4 │ length 4 │ data length 8 │ header length 8 │ blocks 4 │ metadata length 4 │ metadata │ blocks × 20
//!   block    first entry id 8 │ part 4 │ offset 8
//!   then     "PHSP" 4 │ version 4 │ spans 4 │ spans × 28 │ crc of everything before 4
//!   span     first entry id 8 │ entries 4 │ offset 8 │ length 4 │ crc 4
//! ```
//!
//! `length` counts the first line and the blocks only: other readers stop there. All numbers are big-endian.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use pharos_types::EntryId;
use prost::Message;

use super::block::{Block, HEADER_BYTES, RECORD_OVERHEAD};
use super::{Take, crc32c};

/// First word of the object.
pub const INDEX_MAGIC: u32 = 0xDE47_DE47;
/// First word of what only this product reads.
pub const SPANS_MAGIC: u32 = u32::from_be_bytes(*b"PHSP");
/// Layout of the spans that is written and read.
const SPANS_VERSION: u32 = 1;
/// Bytes before the metadata.
const PREFIX_BYTES: usize = 4 + 4 + 8 + 8 + 4 + 4;
const BLOCK_BYTES: usize = 8 + 4 + 8;
const SPAN_ROW_BYTES: usize = 8 + 4 + 8 + 4 + 4;

/// A run of whole records that is checked and read as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Id of its first entry.
    pub first: EntryId,
    /// Number of entries.
    pub entries: u32,
    /// Offset of its start in the data object.
    pub offset: u64,
    /// Its bytes.
    pub length: u32,
    /// CRC-32C of them.
    pub crc: u32,
}

impl Span {
    /// The byte after it.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(u64::from(self.length))
    }

    fn end_entry(&self) -> u64 {
        self.first.0.saturating_add(u64::from(self.entries))
    }
}

/// Row of one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BlockRow {
    first: EntryId,
    part: u32,
    offset: u64,
}

/// Ledger metadata for Pulsar's tools; the message and its numbers are BookKeeper's `LedgerMetadataFormat`.
#[derive(Clone, PartialEq, Message)]
struct LedgerMetadata {
    #[prost(int32, required, tag = "1")]
    quorum_size: i32,
    #[prost(int32, required, tag = "2")]
    ensemble_size: i32,
    #[prost(int64, required, tag = "3")]
    length: i64,
    #[prost(int64, optional, tag = "4")]
    last_entry_id: Option<i64>,
    #[prost(int32, required, tag = "5")]
    state: i32,
    #[prost(message, repeated, tag = "6")]
    segment: Vec<Segment>,
    #[prost(int32, optional, tag = "7")]
    digest_type: Option<i32>,
    #[prost(bytes = "bytes", optional, tag = "8")]
    password: Option<Bytes>,
    #[prost(int32, optional, tag = "9")]
    ack_quorum_size: Option<i32>,
    #[prost(int64, optional, tag = "10")]
    ctime: Option<i64>,
    #[prost(message, repeated, tag = "11")]
    custom_metadata: Vec<CustomMetadata>,
}

#[derive(Clone, PartialEq, Message)]
struct Segment {
    #[prost(string, repeated, tag = "1")]
    ensemble_member: Vec<String>,
    #[prost(int64, required, tag = "2")]
    first_entry_id: i64,
}

#[derive(Clone, PartialEq, Message)]
struct CustomMetadata {
    #[prost(string, optional, tag = "1")]
    key: Option<String>,
    #[prost(bytes = "bytes", optional, tag = "2")]
    value: Option<Bytes>,
}

/// `LedgerMetadataFormat.State.CLOSED`.
const CLOSED: i32 = 3;
/// `LedgerMetadataFormat.DigestType.CRC32C`.
const DIGEST_CRC32C: i32 = 3;

/// Content of an index object. Checked when it is decoded: spans are dense in entries and rise in the data object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Index {
    data_length: u64,
    entries: u64,
    blocks: Vec<BlockRow>,
    spans: Vec<Span>,
}

/// Reason why bytes are not an index.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{cause}")]
pub struct IndexFault {
    /// Offset in the object.
    pub byte_offset: u64,
    /// Description of the defect.
    pub cause: &'static str,
}

impl Index {
    /// The index of a data object without blocks.
    #[must_use]
    pub fn new() -> Self {
        Self {
            data_length: 0,
            entries: 0,
            blocks: Vec::new(),
            spans: Vec::new(),
        }
    }

    /// Takes note of the next block.
    pub fn push(&mut self, block: &Block) {
        self.blocks.push(BlockRow {
            first: block.first,
            part: u32::try_from(self.blocks.len() + 1).unwrap_or(u32::MAX),
            offset: self.data_length,
        });
        self.data_length += block.length;
        self.spans.extend_from_slice(&block.spans);
        self.entries = self.spans.last().map_or(0, Span::end_entry);
    }

    /// Entries of the ledger.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// Bytes of the data object.
    #[must_use]
    pub fn data_length(&self) -> u64 {
        self.data_length
    }

    /// Bytes that this takes in memory, about.
    #[must_use]
    pub fn memory(&self) -> usize {
        std::mem::size_of::<Self>()
            + self.spans.len() * std::mem::size_of::<Span>()
            + self.blocks.len() * std::mem::size_of::<BlockRow>()
    }

    /// The spans from the one that holds `entry` on: whole spans that follow one another without a gap, at least one, then as
    /// many as fit in `bytes_max`. Empty beyond the end.
    #[must_use]
    pub fn run_from(&self, entry: EntryId, bytes_max: u64) -> &[Span] {
        let at = self.spans.partition_point(|span| span.end_entry() <= entry.0);
        let rest = self.spans.get(at..).unwrap_or_default();
        let Some(first) = rest.first() else {
            return &[];
        };
        let mut end = first.end();
        let more = rest.iter().skip(1).take_while(|span| {
            let follows = span.offset == end && span.end() - first.offset <= bytes_max;
            end = span.end();
            follows
        });
        let count = 1 + more.count();
        rest.get(..count).unwrap_or_default()
    }

    /// The object's bytes.
    ///
    /// `payload_bytes`: of all entries together. `closed_at_ms`: since 1970. `name`: of the managed ledger.
    #[must_use]
    pub fn encode(&self, payload_bytes: u64, closed_at_ms: u64, name: &str) -> Bytes {
        let metadata = LedgerMetadata {
            quorum_size: 1,
            ensemble_size: 1,
            length: signed(payload_bytes),
            last_entry_id: Some(signed(self.entries) - 1),
            state: CLOSED,
            segment: vec![Segment {
                ensemble_member: vec!["127.0.0.1:3181".to_owned()],
                first_entry_id: 0,
            }],
            digest_type: Some(DIGEST_CRC32C),
            password: Some(Bytes::new()),
            ack_quorum_size: Some(1),
            ctime: Some(signed(closed_at_ms)),
            custom_metadata: vec![CustomMetadata {
                key: Some("pulsar/managed-ledger".to_owned()),
                value: Some(Bytes::copy_from_slice(name.as_bytes())),
            }],
        };
        let metadata = metadata.encode_to_vec();
        let length = PREFIX_BYTES + metadata.len() + self.blocks.len() * BLOCK_BYTES;
        let mut bytes = BytesMut::with_capacity(length + 16 + self.spans.len() * SPAN_ROW_BYTES);
        bytes.put_u32(INDEX_MAGIC);
        bytes.put_u32(small(length));
        bytes.put_u64(self.data_length);
        bytes.put_u64(HEADER_BYTES as u64);
        bytes.put_u32(small(self.blocks.len()));
        bytes.put_u32(small(metadata.len()));
        bytes.put_slice(&metadata);
        for block in &self.blocks {
            bytes.put_u64(block.first.0);
            bytes.put_u32(block.part);
            bytes.put_u64(block.offset);
        }
        bytes.put_u32(SPANS_MAGIC);
        bytes.put_u32(SPANS_VERSION);
        bytes.put_u32(small(self.spans.len()));
        for span in &self.spans {
            bytes.put_u64(span.first.0);
            bytes.put_u32(span.entries);
            bytes.put_u64(span.offset);
            bytes.put_u32(span.length);
            bytes.put_u32(span.crc);
        }
        bytes.put_u32(crc32c(&bytes));
        bytes.freeze()
    }

    /// Reads an index object.
    ///
    /// # Errors
    /// [`IndexFault`]: it is damaged, cut short, or made by a program that writes no checksums.
    pub fn decode(object: &Bytes) -> Result<Self, IndexFault> {
        let mut reader = Reader::checked(object)?;
        if reader.u32()? != INDEX_MAGIC {
            return Err(reader.fault("it does not begin as an index does"));
        }
        let length = reader.u32()?;
        let data_length = reader.u64()?;
        if reader.u64()? != HEADER_BYTES as u64 {
            return Err(reader.fault("the length of block headers is not 128"));
        }
        let block_count = reader.u32()?;
        let metadata_length = reader.u32()?;
        let metadata = reader.skip(metadata_length)?;
        LedgerMetadata::decode(metadata)
            .map_err(|_| reader.fault("the ledger's metadata is no such message"))?;
        let mut blocks = Vec::new();
        for _ in 0..block_count {
            blocks.push(BlockRow {
                first: EntryId(reader.u64()?),
                part: reader.u32()?,
                offset: reader.u64()?,
            });
        }
        if reader.at() != u64::from(length) {
            return Err(reader.fault("its length is not what it says"));
        }
        if reader.u32()? != SPANS_MAGIC || reader.u32()? != SPANS_VERSION {
            return Err(reader.fault("it has no checksums of a layout that is known"));
        }
        let span_count = reader.u32()?;
        let (mut spans, mut next, mut end) = (Vec::<Span>::new(), 0u64, 0u64);
        for _ in 0..span_count {
            let span = Span {
                first: EntryId(reader.u64()?),
                entries: reader.u32()?,
                offset: reader.u64()?,
                length: reader.u32()?,
                crc: reader.u32()?,
            };
            let least = u64::from(span.entries).saturating_mul(RECORD_OVERHEAD as u64);
            let fits = span.entries > 0 && u64::from(span.length) >= least && span.end() <= data_length;
            if span.first.0 != next || span.offset < end || !fits {
                return Err(reader.fault("a span is not where it can be"));
            }
            (next, end) = (span.end_entry(), span.end());
            spans.push(span);
        }
        match reader.rest.is_empty() {
            true => Ok(Self {
                data_length,
                entries: next,
                blocks,
                spans,
            }),
            false => Err(reader.fault("it goes on after its last span")),
        }
    }
}

impl Default for Index {
    fn default() -> Self {
        Self::new()
    }
}

/// Goes through an object and knows where it is.
struct Reader {
    rest: Bytes,
    length: usize,
}

impl Reader {
    /// Over everything before the checksum, which must be right.
    fn checked(object: &Bytes) -> Result<Self, IndexFault> {
        let fault = |cause| IndexFault {
            byte_offset: object.len().saturating_sub(4) as u64,
            cause,
        };
        let Some(length) = object.len().checked_sub(4) else {
            return Err(fault("it is too short for an index"));
        };
        let mut rest = object.clone();
        let mut sum = rest.split_off(length);
        if sum.take_u32() != Some(crc32c(&rest)) {
            return Err(fault("its checksum is wrong"));
        }
        Ok(Self { rest, length })
    }

    fn at(&self) -> u64 {
        (self.length - self.rest.len()) as u64
    }

    fn fault(&self, cause: &'static str) -> IndexFault {
        IndexFault {
            byte_offset: self.at(),
            cause,
        }
    }

    fn u32(&mut self) -> Result<u32, IndexFault> {
        let short = self.fault("it is cut short");
        self.rest.take_u32().ok_or(short)
    }

    fn u64(&mut self) -> Result<u64, IndexFault> {
        let short = self.fault("it is cut short");
        self.rest.take_u64().ok_or(short)
    }

    fn skip(&mut self, length: u32) -> Result<Bytes, IndexFault> {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if length > self.rest.remaining() {
            return Err(self.fault("it is cut short"));
        }
        Ok(self.rest.split_to(length))
    }
}

fn small(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
