//! The side file of a segment that is no longer written (`*.idx`): what is where in it, so that a start need not scan.
//!
//! ```text
//!  0 crc of 4..file end   4 magic "PHIX"   8 salt   12 segment
//! 16 end (8)   24 sequence (8)   32 next ledger id (8)   40 damages   44 runs
//! 48 damages: byte offset (8), bytes (8), 1 when the records in it are known (8)
//!    runs: kind, count, ledger (8), first entry or value (8), then count × (byte offset, body bytes)
//! ```
//! A hint, never the truth: missing, damaged or of another segment, it is ignored and the segment is scanned.

use super::record::Kind;
use super::{crc32c, get_u32, get_u64, put_u32, put_u64};

const MAGIC: u32 = u32::from_le_bytes(*b"PHIX");
const HEADER_BYTES: usize = 48;
const DAMAGE_BYTES: usize = 24;
const RUN_BYTES: usize = 24;
const PLACE_BYTES: usize = 8;

/// A stretch of a segment that holds something else than what was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Damage {
    /// Where it begins.
    pub(crate) byte_offset: u64,
    /// How long it is at most.
    pub(crate) bytes: u64,
    /// Whether it is known which records are in it.
    pub(crate) known: bool,
}

/// Where an entry's record begins, and the bytes of its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) byte_offset: u32,
    pub(crate) body_bytes: u32,
}

/// Consecutive entries of one ledger, or one fact about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) kind: Kind,
    pub(crate) ledger: u64,
    /// The first entry id, or the fact's value.
    pub(crate) first: u64,
    /// One per entry. An entry run without any says that the segment holds records of a ledger that is gone.
    pub(crate) places: Vec<Place>,
}

/// A decoded side file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SideFile {
    pub(crate) segment: u32,
    pub(crate) salt: u32,
    pub(crate) end: u64,
    pub(crate) sequence: u64,
    pub(crate) ledger_next: u64,
    pub(crate) damages: Vec<Damage>,
    pub(crate) runs: Vec<Run>,
}

impl SideFile {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut file = vec![0; HEADER_BYTES];
        put_u32(&mut file, 4, MAGIC);
        put_u32(&mut file, 8, self.salt);
        put_u32(&mut file, 12, self.segment);
        put_u64(&mut file, 16, self.end);
        put_u64(&mut file, 24, self.sequence);
        put_u64(&mut file, 32, self.ledger_next);
        put_u32(&mut file, 40, self.damages.len() as u32);
        put_u32(&mut file, 44, self.runs.len() as u32);
        for damage in &self.damages {
            file.extend(damage.byte_offset.to_le_bytes());
            file.extend(damage.bytes.to_le_bytes());
            file.extend(u64::from(damage.known).to_le_bytes());
        }
        for run in &self.runs {
            file.extend((run.kind as u32).to_le_bytes());
            file.extend((run.places.len() as u32).to_le_bytes());
            file.extend(run.ledger.to_le_bytes());
            file.extend(run.first.to_le_bytes());
            for place in &run.places {
                file.extend(place.byte_offset.to_le_bytes());
                file.extend(place.body_bytes.to_le_bytes());
            }
        }
        let crc = crc32c(&file[4..]);
        put_u32(&mut file, 0, crc);
        file
    }

    /// The side file of this segment, when it is whole.
    pub(crate) fn decode(file: &[u8], segment: u32, salt: u32) -> Option<Self> {
        let ours = get_u32(file, 4)? == MAGIC && get_u32(file, 8)? == salt && get_u32(file, 12)? == segment;
        if !ours || get_u32(file, 0)? != crc32c(file.get(4..)?) {
            return None;
        }
        let mut rest = file.get(HEADER_BYTES..)?;
        let mut damages = Vec::new();
        for _ in 0..get_u32(file, 40)? {
            damages.push(Damage {
                byte_offset: get_u64(rest, 0)?,
                bytes: get_u64(rest, 8)?,
                known: get_u64(rest, 16)? != 0,
            });
            rest = rest.get(DAMAGE_BYTES..)?;
        }
        let mut runs = Vec::new();
        for _ in 0..get_u32(file, 44)? {
            let (run, after) = decode_run(rest)?;
            runs.push(run);
            rest = after;
        }
        Some(Self {
            segment,
            salt,
            end: get_u64(file, 16)?,
            sequence: get_u64(file, 24)?,
            ledger_next: get_u64(file, 32)?,
            damages,
            runs,
        })
    }
}

fn decode_run(bytes: &[u8]) -> Option<(Run, &[u8])> {
    let count = get_u32(bytes, 4)? as usize;
    let places_end = RUN_BYTES.checked_add(count.checked_mul(PLACE_BYTES)?)?;
    let places = bytes.get(RUN_BYTES..places_end)?.chunks_exact(PLACE_BYTES);
    let places: Option<Vec<Place>> = places
        .map(|place| {
            Some(Place {
                byte_offset: get_u32(place, 0)?,
                body_bytes: get_u32(place, 4)?,
            })
        })
        .collect();
    let run = Run {
        kind: Kind::from_number(u8::try_from(get_u32(bytes, 0)?).ok()?)?,
        ledger: get_u64(bytes, 8)?,
        first: get_u64(bytes, 16)?,
        places: places?,
    };
    Some((run, bytes.get(places_end..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_side_file_comes_back_and_no_flipped_byte_passes() {
        let side = SideFile {
            segment: 2,
            salt: 3,
            end: 4096,
            sequence: 9,
            ledger_next: 12,
            damages: vec![Damage {
                byte_offset: 8,
                bytes: 16,
                known: true,
            }],
            runs: vec![
                Run {
                    kind: Kind::Entry,
                    ledger: 11,
                    first: 5,
                    places: vec![
                        Place {
                            byte_offset: 1,
                            body_bytes: 2
                        };
                        3
                    ],
                },
                Run {
                    kind: Kind::Sealed,
                    ledger: 11,
                    first: 8,
                    places: vec![],
                },
            ],
        };
        let mut file = side.encode();
        assert_eq!(SideFile::decode(&file, 2, 3), Some(side));
        assert_eq!(SideFile::decode(&file, 2, 4), None);
        for at in 0..file.len() {
            file[at] ^= 1;
            assert_eq!(SideFile::decode(&file, 2, 3), None, "byte {at}");
            file[at] ^= 1;
        }
        for cut in 0..file.len() {
            assert_eq!(SideFile::decode(&file[..cut], 2, 3), None, "cut at {cut}");
        }
    }
}
