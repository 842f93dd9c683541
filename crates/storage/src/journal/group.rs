//! Building a group's bytes and writing them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use pharos_ledger::{Durability, StorageFault};
use pharos_storage_format::checkpoint::durability_to_number;
use pharos_storage_format::crc32c;
use pharos_storage_format::group::{GROUP_HEADER_BYTES, GroupHeader};
use pharos_storage_format::record::{self, Kind, RecordHeader};

use super::{Journal, Placed};
use crate::queue::Op;
use crate::stats::bump;

/// True if an op has a record in the journal.
pub(super) fn is_written(op: &Op) -> bool {
    !matches!(op, Op::Entry { ledger, .. } if ledger.durability == Durability::Bypass)
}

/// The journal bytes that an op takes.
pub(super) fn journal_bytes(op: &Op) -> usize {
    if is_written(op) { op.record_bytes() } else { 0 }
}

/// The checksum of an op's body: the one that it came with, of the bytes as they were checked when they arrived. So what
/// changes in memory after that is found when the entry is read, which a checksum made only now would cover up.
pub(super) fn body_crc(op: &Op) -> u32 {
    match op {
        Op::Entry {
            payload,
            crc32c: known,
            ..
        } => known.unwrap_or_else(|| crc32c(payload)),
        _ => crc32c(&[]),
    }
}

/// True if an op should be done soon.
pub(super) fn is_urgent(op: &Op) -> bool {
    match op {
        Op::Entry { ledger, .. } | Op::Create { ledger, .. } | Op::Seal { ledger, .. } => {
            !ledger.is_background
        }
        // Space that comes free some milliseconds later costs nothing.
        Op::Delete { .. } | Op::Stop => false,
    }
}

impl Journal {
    /// Writes `group` (which may be empty: then it only says what was synced) at the end of the active segment, and notes
    /// the checksums of its entries.
    pub(super) fn write_group(&mut self, group: &mut [Placed]) -> Result<(), Arc<StorageFault>> {
        let record_bytes: usize = group.iter().map(|placed| journal_bytes(&placed.op)).sum();
        let total = self.padded(GROUP_HEADER_BYTES + record_bytes);
        let Some(active) = &mut self.active else {
            return Err(StorageFault::new("write a group", "there is no segment"));
        };
        self.buf.reserve(total);
        let bytes = &mut self.buf.bytes_mut()[..total];
        let mut at = GROUP_HEADER_BYTES;
        let mut records = 0;
        for placed in group {
            placed.crc = body_crc(&placed.op);
            if is_written(&placed.op) {
                at += encode(&mut bytes[at..], active.file.salt, placed);
                records += 1;
            }
        }
        bytes[at..].fill(0);
        let header = GroupHeader {
            segment: active.file.id,
            salt: active.file.salt,
            sequence: self.sequence + 1,
            synced: self.synced,
            ledger_next: self.shared.ledger_next.load(Ordering::Acquire),
            record_bytes: record_bytes as u32,
            records,
        };
        header.encode(bytes);
        active.file.file.write_all_at(bytes, active.end).map_err(|e| {
            let what = format!(
                "write {} bytes at {} of {}",
                total,
                active.end,
                active.file.path.display()
            );
            StorageFault::new(what, e)
        })?;
        active.end += total as u64;
        self.sequence += 1;
        self.written += total as u64;
        self.marked = self.synced;
        if let Some(segment) = self.here().segments().by_id.get_mut(&header.segment) {
            segment.sequence = self.sequence;
        }
        bump(&self.shared.counters.groups, 1);
        bump(&self.shared.counters.bytes_written, total as u64);
        Ok(())
    }
}

/// Writes an op's record to the start of `room`; returns the bytes it takes.
fn encode(room: &mut [u8], salt: u32, placed: &Placed) -> usize {
    let (kind, ledger, value, body) = match &placed.op {
        Op::Create { ledger, .. } => {
            let value = u64::from(durability_to_number(ledger.durability));
            (Kind::Created, ledger.id.0, value, &[][..])
        }
        Op::Seal { ledger, entry_count } => (Kind::Sealed, ledger.id.0, *entry_count, &[][..]),
        Op::Delete { ledger, .. } => (Kind::Deleted, ledger.id.0, 0, &[][..]),
        Op::Entry {
            ledger,
            entry,
            payload,
            ..
        } => (Kind::Entry, ledger.id.0, *entry, &payload[..]),
        // Never selected into a group.
        Op::Stop => return 0,
    };
    let header = RecordHeader {
        kind,
        body_bytes: body.len() as u32,
        body_crc: placed.crc,
        ledger,
        value,
    };
    record::encode(room, salt, &header, body)
}

#[cfg(test)]
mod tests {
    use pharos_ledger::CreateOptions;
    use pharos_types::LedgerId;

    use super::*;
    use crate::ledgers::Ledger;

    #[test]
    fn what_was_said_not_to_be_urgent_is_not() {
        for is_background in [false, true] {
            let options = CreateOptions {
                is_background,
                ..CreateOptions::default()
            };
            let (ledger, _tail) = Ledger::new(LedgerId(1), &options, (0, 0));
            let entry = Op::Entry {
                ledger: Arc::clone(&ledger),
                entry: 0,
                payload: bytes::Bytes::from_static(b"x"),
                crc32c: None,
            };
            let seal = Op::Seal {
                ledger,
                entry_count: 1,
            };
            assert_eq!([is_urgent(&entry), is_urgent(&seal)], [!is_background; 2]);
        }
        assert!(!is_urgent(&Op::Stop));
    }
}
