//! Building a group's bytes and writing them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use pharos_ledger::{Durability, StorageFault};

use super::{Journal, Placed};
use crate::format::group::{GROUP_HEADER_BYTES, GroupHeader};
use crate::format::record::{self, Kind};
use crate::queue::Op;
use crate::stats::bump;

/// Set in the value of a creation that was written again, so that its place says nothing about its time.
pub(crate) const RESTATED: u64 = 2;

impl Journal {
    /// Writes `group` (which may be empty: then it only says what was synced) at the end of the active segment.
    pub(super) fn write_group(&mut self, group: &[Placed]) -> Result<(), Arc<StorageFault>> {
        let record_bytes: usize = group.iter().map(|placed| placed.op.record_bytes()).sum();
        let total = self.padded(GROUP_HEADER_BYTES + record_bytes);
        let Some(active) = &mut self.active else {
            return Err(StorageFault::new("write a group", "there is no segment"));
        };
        self.buf.reserve(total);
        let bytes = &mut self.buf.bytes_mut()[..total];
        let mut at = GROUP_HEADER_BYTES;
        for placed in group {
            at += encode(&mut bytes[at..], active.file.salt, &placed.op);
        }
        bytes[at..].fill(0);
        let header = GroupHeader {
            segment: active.file.id,
            salt: active.file.salt,
            sequence: self.sequence + 1,
            synced: self.synced,
            ledger_next: self.shared.ledger_next.load(Ordering::Acquire),
            record_bytes: record_bytes as u32,
            records: group.len() as u32,
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
        self.marked = self.synced;
        if let Some(segment) = self.shared.segments().by_id.get_mut(&active.file.id) {
            segment.end = active.end;
            segment.sequence = self.sequence;
            segment.ledger_next = header.ledger_next;
        }
        bump(&self.shared.counters.groups, 1);
        bump(&self.shared.counters.bytes_written, total as u64);
        Ok(())
    }
}

fn encode(room: &mut [u8], salt: u32, op: &Op) -> usize {
    let mut fact = |kind, ledger, value| record::encode(room, salt, kind, ledger, value, &[]);
    match op {
        Op::Create { ledger, .. } => {
            let value = u64::from(ledger.durability == Durability::Async);
            fact(Kind::Created, ledger.id.0, value)
        }
        Op::Seal { ledger, entry_count } => fact(Kind::Sealed, ledger.id.0, *entry_count),
        Op::Delete { ledger, .. } => fact(Kind::Deleted, ledger.id.0, 0),
        Op::Restate {
            kind, ledger, value, ..
        } => fact(*kind, ledger.0, *value),
        Op::Entry {
            ledger,
            entry,
            payload,
        } => record::encode(room, salt, Kind::Entry, ledger.id.0, *entry, payload),
        Op::Move {
            ledger,
            entry,
            payload,
            ..
        } => record::encode(room, salt, Kind::Moved, ledger.id.0, *entry, payload),
        // Never selected into a group.
        Op::Stop => 0,
    }
}
