//! The file `CHECKPOINT`: what is in the entry logs, which ledgers there are, and from where on journals are replayed.
//!
//! ```text
//!  0 crc of 4..bytes   4 magic "PHCP"   8 bytes   12 flags   16 store id (8)   24 generation (8)
//! 32 next ledger id (8)   40 journals   44 logs   48 ledgers   52 zeros
//! 64 journals: number, segment, byte offset (8), sequence (8)
//!    logs:     directory, log id, data end (8), index end (8)
//!    ledgers:  id (8), journal (2), directory (2), flags (4), flushed entries (8), flushed bytes (8),
//!              sealed entries (8), sealed bytes (8)
//! ```
//! Written twice, the second copy in the second half of the file, so that one bad place does not hide the store. A new one
//! replaces the old by renaming.

use pharos_ledger::{Durability, Sealed};

use super::{are_counts, crc32c, get_u32, get_u64, put_u32, put_u64, round_up};

const MAGIC: u32 = u32::from_le_bytes(*b"PHCP");
const HEADER_BYTES: usize = 64;
const JOURNAL_BYTES: usize = 24;
const LOG_BYTES: usize = 24;
const LEDGER_BYTES: usize = 48;

/// Everything in the journals is in the logs: a clean stop.
const CLEAN: u32 = 1;
const SEALED: u32 = 4;
const END_UNKNOWN: u32 = 8;
const DURABILITY_MASK: u32 = 3;

/// A place in a journal between two groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// The segment it is in.
    pub segment: u32,
    /// Offset of the next group.
    pub byte_offset: u64,
    /// The sequence number of the last group before it.
    pub sequence: u64,
}

/// An entry log that is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogEnd {
    /// The number of its ledger directory.
    pub dir: u32,
    /// Its id.
    pub log: u32,
    /// The first byte of the log that is no data.
    pub end: u64,
    /// End of its index.
    pub index_end: u64,
}

/// State of a ledger, apart from what is in the journals behind the marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LedgerRow {
    /// The ledger.
    pub id: u64,
    /// Durability of an acknowledged append.
    pub durability: Durability,
    /// The number of its journal.
    pub journal: u16,
    /// The number of its ledger directory.
    pub dir: u16,
    /// Entries `0..flushed` are in the logs.
    pub flushed: u64,
    /// Their payload bytes.
    pub flushed_bytes: u64,
    /// Its end, once it has one.
    pub sealed: Option<Sealed>,
    /// Damage may have hidden its last entries.
    pub end_unknown: bool,
}

/// A decoded checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The store that it is of.
    pub store_id: u64,
    /// Counts checkpoints.
    pub generation: u64,
    /// Everything in the journals is in the logs: the store was stopped.
    pub clean: bool,
    /// The id of the next ledger.
    pub ledger_next: u64,
    /// Replay start of each journal, by number.
    pub journals: Vec<Mark>,
    /// The logs in use.
    pub logs: Vec<LogEnd>,
    /// The ledgers that exist.
    pub ledgers: Vec<LedgerRow>,
}

/// Returns the number that stands for the durability, here and in records of creations.
#[must_use]
pub fn durability_to_number(durability: Durability) -> u32 {
    match durability {
        Durability::Sync => 0,
        Durability::Async => 1,
        Durability::Bypass => 2,
    }
}

/// The reverse; what is not known is taken for the strongest.
#[must_use]
pub fn durability_from_number(number: u64) -> Durability {
    match number {
        1 => Durability::Async,
        2 => Durability::Bypass,
        _ => Durability::Sync,
    }
}

impl Checkpoint {
    /// The whole file: both copies.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let bytes = HEADER_BYTES
            + self.journals.len() * JOURNAL_BYTES
            + self.logs.len() * LOG_BYTES
            + self.ledgers.len() * LEDGER_BYTES;
        let half = round_up(bytes as u64, 4096) as usize;
        let mut file = vec![0; 2 * half];
        let copy = &mut file[..bytes];
        put_u32(copy, 4, MAGIC);
        put_u32(copy, 8, bytes as u32);
        put_u32(copy, 12, if self.clean { CLEAN } else { 0 });
        put_u64(copy, 16, self.store_id);
        put_u64(copy, 24, self.generation);
        put_u64(copy, 32, self.ledger_next);
        put_u32(copy, 40, self.journals.len() as u32);
        put_u32(copy, 44, self.logs.len() as u32);
        put_u32(copy, 48, self.ledgers.len() as u32);
        let mut at = HEADER_BYTES;
        for (number, mark) in self.journals.iter().enumerate() {
            put_u32(copy, at, number as u32);
            put_u32(copy, at + 4, mark.segment);
            put_u64(copy, at + 8, mark.byte_offset);
            put_u64(copy, at + 16, mark.sequence);
            at += JOURNAL_BYTES;
        }
        for log in &self.logs {
            put_u32(copy, at, log.dir);
            put_u32(copy, at + 4, log.log);
            put_u64(copy, at + 8, log.end);
            put_u64(copy, at + 16, log.index_end);
            at += LOG_BYTES;
        }
        for row in &self.ledgers {
            row.encode(&mut copy[at..at + LEDGER_BYTES]);
            at += LEDGER_BYTES;
        }
        let crc = crc32c(&copy[4..]);
        put_u32(copy, 0, crc);
        file.copy_within(..bytes, half);
        file
    }

    /// The checkpoint in a file, when one of the copies is whole.
    #[must_use]
    pub fn decode(file: &[u8]) -> Option<Self> {
        let (first, second) = file.split_at(file.len() / 2);
        decode_copy(first).or_else(|| decode_copy(second))
    }
}

impl Checkpoint {
    /// True if every number in it is possible, apart from what only the directories can tell.
    fn is_possible(&self) -> bool {
        let mark = |mark: &Mark| mark.segment < u32::MAX && are_counts(&[mark.byte_offset, mark.sequence]);
        // Places in a log are 32 bits wide.
        let fits = |end: u64| end <= 1 << 32;
        let log = |log: &LogEnd| log.log < u32::MAX && fits(log.end) && fits(log.index_end);
        are_counts(&[self.generation, self.ledger_next])
            && self.journals.iter().all(mark)
            && self.logs.iter().all(log)
            && self.ledgers.iter().all(LedgerRow::is_possible)
    }
}

impl LedgerRow {
    fn is_possible(&self) -> bool {
        let sealed = self
            .sealed
            .map_or([0, 0], |sealed| [sealed.entry_count, sealed.bytes]);
        are_counts(&[self.id, self.flushed, self.flushed_bytes]) && are_counts(&sealed)
    }

    fn encode(&self, room: &mut [u8]) {
        let sealed = self.sealed.unwrap_or(Sealed {
            entry_count: 0,
            bytes: 0,
        });
        let mut flags = durability_to_number(self.durability);
        if self.sealed.is_some() {
            flags |= SEALED;
        }
        if self.end_unknown {
            flags |= END_UNKNOWN;
        }
        put_u64(room, 0, self.id);
        put_u32(room, 8, u32::from(self.journal) | u32::from(self.dir) << 16);
        put_u32(room, 12, flags);
        put_u64(room, 16, self.flushed);
        put_u64(room, 24, self.flushed_bytes);
        put_u64(room, 32, sealed.entry_count);
        put_u64(room, 40, sealed.bytes);
    }

    fn decode(row: &[u8]) -> Option<Self> {
        let places = get_u32(row, 8)?;
        let flags = get_u32(row, 12)?;
        let sealed = Sealed {
            entry_count: get_u64(row, 32)?,
            bytes: get_u64(row, 40)?,
        };
        Some(Self {
            id: get_u64(row, 0)?,
            durability: durability_from_number(u64::from(flags & DURABILITY_MASK)),
            journal: (places & 0xffff) as u16,
            dir: (places >> 16) as u16,
            flushed: get_u64(row, 16)?,
            flushed_bytes: get_u64(row, 24)?,
            sealed: (flags & SEALED != 0).then_some(sealed),
            end_unknown: flags & END_UNKNOWN != 0,
        })
    }
}

fn decode_copy(copy: &[u8]) -> Option<Checkpoint> {
    let bytes = get_u32(copy, 8)? as usize;
    let copy = copy.get(..bytes)?;
    if bytes < HEADER_BYTES || get_u32(copy, 4)? != MAGIC || get_u32(copy, 0)? != crc32c(copy.get(4..)?) {
        return None;
    }
    let mut rest = copy.get(HEADER_BYTES..)?;
    let mut take = |length: usize| {
        let (row, after) = rest.split_at_checked(length)?;
        rest = after;
        Some(row)
    };
    let mut journals = Vec::new();
    for _ in 0..get_u32(copy, 40)? {
        let row = take(JOURNAL_BYTES)?;
        journals.push(Mark {
            segment: get_u32(row, 4)?,
            byte_offset: get_u64(row, 8)?,
            sequence: get_u64(row, 16)?,
        });
    }
    let mut logs = Vec::new();
    for _ in 0..get_u32(copy, 44)? {
        let row = take(LOG_BYTES)?;
        logs.push(LogEnd {
            dir: get_u32(row, 0)?,
            log: get_u32(row, 4)?,
            end: get_u64(row, 8)?,
            index_end: get_u64(row, 16)?,
        });
    }
    let mut ledgers = Vec::new();
    for _ in 0..get_u32(copy, 48)? {
        ledgers.push(LedgerRow::decode(take(LEDGER_BYTES)?)?);
    }
    let found = Checkpoint {
        store_id: get_u64(copy, 16)?,
        generation: get_u64(copy, 24)?,
        clean: get_u32(copy, 12)? & CLEAN != 0,
        ledger_next: get_u64(copy, 32)?,
        journals,
        logs,
        ledgers,
    };
    found.is_possible().then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checkpoint() -> Checkpoint {
        let row = |id, durability, sealed| LedgerRow {
            id,
            durability,
            journal: 2,
            dir: 1,
            flushed: 10,
            flushed_bytes: 1000,
            sealed,
            end_unknown: id == 3,
        };
        Checkpoint {
            store_id: 77,
            generation: 5,
            clean: true,
            ledger_next: 9,
            journals: vec![
                Mark {
                    segment: 3,
                    byte_offset: 8192,
                    sequence: 40,
                },
                Mark::default(),
            ],
            logs: vec![LogEnd {
                dir: 1,
                log: 4,
                end: 4096,
                index_end: 100,
            }],
            ledgers: vec![
                row(1, Durability::Sync, None),
                row(
                    2,
                    Durability::Async,
                    Some(Sealed {
                        entry_count: 3,
                        bytes: 4,
                    }),
                ),
                row(3, Durability::Bypass, None),
            ],
        }
    }

    #[test]
    fn one_copy_is_enough_and_no_flipped_byte_passes() {
        let whole = checkpoint();
        let file = whole.encode();
        let half = file.len() / 2;
        assert_eq!(Checkpoint::decode(&file), Some(whole.clone()));
        for at in 0..file.len() {
            let mut hurt = file.clone();
            hurt[at] ^= 4;
            assert_eq!(Checkpoint::decode(&hurt), Some(whole.clone()), "byte {at}");
        }
        let mut hurt = file;
        for at in [100, half + 30] {
            hurt[at] ^= 4;
        }
        assert_eq!(Checkpoint::decode(&hurt), None);
        assert_eq!(Checkpoint::decode(&[]), None);
    }
}
