//! A file of the store part by part, as it lies there, for people who look into it. Nothing is judged across parts.

use std::fmt::Display;

use super::format::{
    BLOCK, DATA_AT, GROUP_HEADER_BYTES, GroupHeader, HEADER_BYTES, Header, Kind, NoHeader,
    RECORD_HEADER_BYTES, Record, decode_records, record_bytes, round_up,
};
use super::witness;

/// A part of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Kind of the part.
    pub kind: &'static str,
    /// Offset of its start.
    pub byte_offset: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// Its checksum is right.
    pub whole: bool,
    /// Fields, by name.
    pub fields: Vec<(&'static str, String)>,
}

/// Tells the parts of a file of the store, a copy or a witness, in their order. Returns `false`, and tells nothing, when the file
/// is neither. `records`: also those of snapshot and groups.
///
/// Blocks that hold nothing that was ever right are left out: a copy has room for more than is in it.
pub fn decode(bytes: &[u8], records: bool, tell: &mut dyn FnMut(Part)) -> bool {
    if witness::is_one(bytes) {
        witness::decode(bytes, tell);
        return true;
    }
    let headers = [0, BLOCK].map(|at| {
        let slot = bytes.get(at as usize..).unwrap_or_default();
        (at, Header::decode(slot.get(..HEADER_BYTES).unwrap_or_default()))
    });
    let is_copy = |header: &Result<Header, NoHeader>| matches!(header, Ok(_) | Err(NoHeader::Version(_)));
    if !headers.iter().any(|(_, header)| is_copy(header)) {
        return false;
    }
    for (at, header) in &headers {
        tell(header_part(*at, header));
    }
    let found = headers.into_iter().filter_map(|(_, header)| header.ok());
    if let Some(newest) = found.max_by_key(|header| header.writes) {
        decode_groups(&newest, bytes, records, tell);
    }
    true
}

fn field(name: &'static str, value: impl Display) -> (&'static str, String) {
    (name, value.to_string())
}

fn header_part(at: u64, header: &Result<Header, NoHeader>) -> Part {
    let mut part = Part {
        kind: "header",
        byte_offset: at,
        bytes: HEADER_BYTES as u64,
        whole: true,
        fields: Vec::new(),
    };
    match header {
        Ok(header) => {
            let state = match (header.whole, header.closed) {
                (false, _) => "being written",
                (true, false) => "counts",
                (true, true) => "counts, closed",
            };
            part.fields = vec![
                field("copy", header.copy),
                field("store", format!("{:016x}", header.store_id)),
                field("writes", header.writes),
                field("generation", header.generation),
                field("state", state),
                field("known", header.known),
                field("base", header.base),
                field("log_at", header.log_at),
                field("epoch", header.epoch),
                field("ledgers_from", header.ledgers_from),
            ];
        }
        Err(NoHeader::Version(version)) => part.fields = vec![field("format", version)],
        Err(NoHeader::Empty) => part.kind = "no header yet",
        Err(NoHeader::Damaged) => part.whole = false,
    }
    part
}

/// Decodes the bytes after the headers. A stretch without anything of the copy is reported only in front of a part
/// that belongs to it.
fn decode_groups(header: &Header, bytes: &[u8], records: bool, tell: &mut dyn FnMut(Part)) {
    let mut at = DATA_AT;
    let mut gap = None;
    while at < bytes.len() as u64 {
        let found = GroupHeader::decode(bytes, at).filter(|(group, _)| {
            (group.store_id, group.copy, group.generation)
                == (header.store_id, header.copy, header.generation)
        });
        let Some((group, raw)) = found else {
            gap.get_or_insert(at);
            at += BLOCK;
            continue;
        };
        if let Some(from) = gap.take() {
            tell(Part {
                kind: "no group",
                byte_offset: from,
                bytes: at - from,
                whole: false,
                fields: Vec::new(),
            });
        }
        let decoded = decode_records(header.store_id, group.records, raw);
        let length = (GROUP_HEADER_BYTES + raw.len()) as u64;
        tell(Part {
            kind: match group.kind {
                Kind::Part => "snapshot part",
                Kind::Changes => "group",
            },
            byte_offset: at,
            bytes: length,
            whole: decoded.is_some(),
            fields: vec![
                field("number", group.number),
                field("revision", group.revision),
                field("records", group.records),
            ],
        });
        if let Some(decoded) = decoded.filter(|_| records) {
            tell_records(at + GROUP_HEADER_BYTES as u64, &decoded, tell);
        }
        at += round_up(length);
    }
}

fn tell_records(mut at: u64, records: &[Record], tell: &mut dyn FnMut(Part)) {
    for record in records {
        let value = record.value.as_deref().unwrap_or_default();
        let bytes = record_bytes(&record.key, value);
        debug_assert!(bytes >= RECORD_HEADER_BYTES as u64);
        tell(Part {
            kind: if record.value.is_some() { "put" } else { "delete" },
            byte_offset: at,
            bytes,
            whole: true,
            fields: vec![
                field("key", &record.key),
                field("value_bytes", value.len()),
                field("version", record.version),
            ],
        });
        at += bytes;
    }
}
