//! The bytes of a copy: headers, groups, records. No I/O here; drawn in `docs/formats/metadata.md`.

use bytes::Bytes;
use crc_fast::{CrcAlgorithm, Digest};

/// Version written by this release. 1 was a redb database.
pub(super) const FORMAT_VERSION: u32 = 2;

/// Groups begin at multiples of this.
pub(super) const BLOCK: u64 = 512;
/// Offset of the first group or part.
pub(super) const DATA_AT: u64 = 2 * BLOCK;
/// The two copies.
pub(super) const COPIES: u32 = 2;

pub(super) const HEADER_BYTES: usize = 88;
pub(super) const GROUP_HEADER_BYTES: usize = 64;
pub(super) const RECORD_HEADER_BYTES: usize = 20;
/// The most a part of a snapshot has, if it has more than one record.
pub(super) const PART_BYTES_MAX: usize = 256 << 10;

const HEADER_MAGIC: u32 = u32::from_le_bytes(*b"PHMH");
const GROUP_MAGIC: u32 = u32::from_le_bytes(*b"PHMG");

/// Nothing counts this far. A larger number is damage even where its checksum is right, and numbers below it can be added.
pub(super) const COUNT_MAX: u64 = 1 << 56;

/// The header of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) copy: u32,
    pub(super) store_id: u64,
    /// Counts the headers of this copy; says which of the two is the newer one.
    pub(super) writes: u64,
    /// Rises each time the copy is written again.
    pub(super) generation: u64,
    /// True if it holds content that counts.
    pub(super) whole: bool,
    /// Nothing was written after it: the store was closed.
    pub(super) closed: bool,
    /// This group and all before it are durable in a copy.
    pub(super) known: u64,
    /// The last group that is in the snapshot.
    pub(super) base: u64,
    /// Offset of the groups.
    pub(super) log_at: u64,
    /// Number of times the store was opened beside its ledgers.
    pub(super) epoch: u64,
    /// Ledgers below are never orphans on the word of this store.
    pub(super) ledgers_from: u64,
}

/// Reason why bytes are not a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoHeader {
    /// Nothing was ever written there.
    Empty,
    /// Torn or damaged.
    Damaged,
    /// The header is of another release.
    Version(u32),
}

impl Header {
    /// Offset of the header.
    pub(super) fn at(&self) -> u64 {
        (self.writes % 2) * BLOCK
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = vec![0; HEADER_BYTES];
        put_u32(&mut out, 4, HEADER_MAGIC);
        put_u32(&mut out, 8, FORMAT_VERSION);
        put_u32(&mut out, 12, self.copy);
        let numbers = [self.store_id, self.writes, self.generation];
        for (number, at) in numbers.into_iter().zip((16..).step_by(8)) {
            put_u64(&mut out, at, number);
        }
        let state = match (self.whole, self.closed) {
            (false, _) => 1,
            (true, false) => 2,
            (true, true) => 3,
        };
        put_u32(&mut out, 40, state);
        let numbers = [self.known, self.base, self.log_at, self.epoch, self.ledgers_from];
        for (number, at) in numbers.into_iter().zip((48..).step_by(8)) {
            put_u64(&mut out, at, number);
        }
        let crc = crc32c(&[&out[4..]]);
        put_u32(&mut out, 0, crc);
        out
    }

    /// The header at the beginning of `bytes`.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, NoHeader> {
        let bytes = bytes.get(..HEADER_BYTES).ok_or(NoHeader::Damaged)?;
        if bytes.iter().all(|byte| *byte == 0) {
            return Err(NoHeader::Empty);
        }
        Self::parse(bytes).unwrap_or(Err(NoHeader::Damaged))
    }

    fn parse(bytes: &[u8]) -> Option<Result<Self, NoHeader>> {
        if get_u32(bytes, 4)? != HEADER_MAGIC || get_u32(bytes, 0)? != crc32c(&[bytes.get(4..)?]) {
            return None;
        }
        let version = get_u32(bytes, 8)?;
        if version != FORMAT_VERSION {
            return Some(Err(NoHeader::Version(version)));
        }
        let state = get_u32(bytes, 40)?;
        if !(1..=3).contains(&state) {
            return None;
        }
        let header = Self {
            copy: get_u32(bytes, 12)?,
            store_id: get_u64(bytes, 16)?,
            writes: get_u64(bytes, 24)?,
            generation: get_u64(bytes, 32)?,
            whole: state > 1,
            closed: state == 3,
            known: get_u64(bytes, 48)?,
            base: get_u64(bytes, 56)?,
            log_at: get_u64(bytes, 64)?,
            epoch: get_u64(bytes, 72)?,
            ledgers_from: get_u64(bytes, 80)?,
        };
        let counts = [
            header.writes,
            header.generation,
            header.known,
            header.base,
            header.log_at,
            header.epoch,
            header.ledgers_from,
        ];
        let right = counts.iter().all(|count| *count <= COUNT_MAX)
            && header.log_at.is_multiple_of(BLOCK)
            && header.log_at >= DATA_AT;
        right.then_some(Ok(header))
    }
}

/// Kind of a group. The numbers are on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Kind {
    Part = 1,
    Changes = 2,
}

/// Identity and position of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GroupHeader {
    pub(super) kind: Kind,
    pub(super) store_id: u64,
    pub(super) copy: u32,
    pub(super) generation: u64,
    pub(super) number: u64,
    pub(super) at: u64,
    pub(super) revision: u64,
    pub(super) records: u32,
}

impl GroupHeader {
    /// A whole group, up to the next block. `records` begins with [`GROUP_HEADER_BYTES`] bytes of room.
    pub(super) fn finish(&self, mut group: Vec<u8>) -> Vec<u8> {
        let bytes = group.len();
        put_u32(&mut group, 4, GROUP_MAGIC);
        put_u32(&mut group, 8, bytes as u32);
        put_u32(&mut group, 12, self.kind as u32);
        let numbers = [
            self.store_id,
            self.generation,
            self.number,
            self.at,
            self.revision,
        ];
        for (number, at) in numbers.into_iter().zip((16..).step_by(8)) {
            put_u64(&mut group, at, number);
        }
        put_u32(&mut group, 56, self.copy);
        put_u32(&mut group, 60, self.records);
        let crc = crc32c(&[&group[4..]]);
        put_u32(&mut group, 0, crc);
        group.resize(round_up(bytes as u64) as usize, 0);
        group
    }

    /// The group at `at` of a file, and its records; `None` when there is none that belongs there.
    pub(super) fn decode(file: &[u8], at: u64) -> Option<(Self, &[u8])> {
        let rest = file.get(usize::try_from(at).ok()?..)?;
        if get_u32(rest, 4)? != GROUP_MAGIC {
            return None;
        }
        let bytes = get_u32(rest, 8)? as usize;
        let group = rest
            .get(..bytes)
            .filter(|group| group.len() >= GROUP_HEADER_BYTES)?;
        if get_u32(group, 0)? != crc32c(&[group.get(4..)?]) {
            return None;
        }
        let header = Self {
            kind: match get_u32(group, 12)? {
                1 => Kind::Part,
                2 => Kind::Changes,
                _ => return None,
            },
            store_id: get_u64(group, 16)?,
            generation: get_u64(group, 24)?,
            number: get_u64(group, 32)?,
            at: get_u64(group, 40)?,
            revision: get_u64(group, 48)?,
            copy: get_u32(group, 56)?,
            records: get_u32(group, 60)?,
        };
        let right = header.at == at && header.number <= COUNT_MAX && header.revision <= COUNT_MAX;
        right.then_some((header, group.get(GROUP_HEADER_BYTES..)?))
    }
}

/// A put or a delete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) key: String,
    /// `None`: it was deleted.
    pub(super) value: Option<Bytes>,
    pub(super) version: u64,
    /// Over everything above and the store id.
    pub(super) crc: u32,
}

/// Size of a record, in bytes.
pub(super) fn record_bytes(key: &str, value: &[u8]) -> u64 {
    (RECORD_HEADER_BYTES + key.len() + value.len()) as u64
}

/// The fields of a record in front of key and value, without the checksum.
fn record_fields(key: &str, value: Option<&[u8]>, version: u64) -> [u8; RECORD_HEADER_BYTES - 4] {
    let mut fields = [0; RECORD_HEADER_BYTES - 4];
    fields[0] = if value.is_some() { 1 } else { 2 };
    // Both lengths were checked when the change came in.
    fields[2..4].copy_from_slice(&(key.len() as u16).to_le_bytes());
    fields[4..8].copy_from_slice(&(value.map_or(0, <[u8]>::len) as u32).to_le_bytes());
    fields[8..16].copy_from_slice(&version.to_le_bytes());
    fields
}

/// The checksum of a record.
pub(super) fn record_crc(store_id: u64, key: &str, value: Option<&[u8]>, version: u64) -> u32 {
    let fields = record_fields(key, value, version);
    crc32c(&[
        &store_id.to_le_bytes(),
        &fields,
        key.as_bytes(),
        value.unwrap_or_default(),
    ])
}

/// Appends a record whose checksum is known.
pub(super) fn push_record(out: &mut Vec<u8>, key: &str, value: Option<&[u8]>, version: u64, crc: u32) {
    out.extend_from_slice(&crc.to_le_bytes());
    out.extend_from_slice(&record_fields(key, value, version));
    out.extend_from_slice(key.as_bytes());
    out.extend_from_slice(value.unwrap_or_default());
}

/// All records of a group; `None` when one is not right or there is anything behind the last.
pub(super) fn decode_records(store_id: u64, count: u32, mut bytes: &[u8]) -> Option<Vec<Record>> {
    let mut records = Vec::new();
    for _ in 0..count {
        let fields = bytes.get(..RECORD_HEADER_BYTES)?;
        let crc = get_u32(fields, 0)?;
        let key_bytes = usize::from(u16::from_le_bytes([*fields.get(6)?, *fields.get(7)?]));
        let value_bytes = get_u32(fields, 8)? as usize;
        let version = get_u64(fields, 12)?;
        let key_end = RECORD_HEADER_BYTES + key_bytes;
        let key = std::str::from_utf8(bytes.get(RECORD_HEADER_BYTES..key_end)?).ok()?;
        let value = bytes.get(key_end..key_end.checked_add(value_bytes)?)?;
        let value = match *fields.get(4)? {
            1 => Some(value),
            2 if value.is_empty() => None,
            _ => return None,
        };
        if *fields.get(5)? != 0 || version > COUNT_MAX || crc != record_crc(store_id, key, value, version) {
            return None;
        }
        records.push(Record {
            key: key.to_owned(),
            value: value.map(Bytes::copy_from_slice),
            version,
            crc,
        });
        bytes = bytes.get(key_end + value_bytes..)?;
    }
    bytes.is_empty().then_some(records)
}

pub(super) fn crc32c(parts: &[&[u8]]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    for part in parts {
        digest.update(part);
    }
    digest.finalize() as u32
}

/// Up to the next block.
pub(super) const fn round_up(bytes: u64) -> u64 {
    (bytes + BLOCK - 1) & !(BLOCK - 1)
}

pub(super) fn get_u32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

pub(super) fn get_u64(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Writes `value` at `at`. The caller sized the buffer; a place outside is a bug and panics.
pub(super) fn put_u32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

/// As [`put_u32`].
pub(super) fn put_u64(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
}
