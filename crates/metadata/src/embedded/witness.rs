//! The witness: a small file beside the ledgers that says which metadata store is theirs, and how far it was.
//!
//! Without it an empty, older or foreign metadata store would open, and call every ledger that it does not name unowned.
//! Drawn in `docs/formats/metadata.md`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pharos_runtime::fs::{Fs, FsFile, OpenHow};

use super::copy::CopyError;
use super::decode::Part;
use super::format::{BLOCK, COUNT_MAX, crc32c, get_u32, get_u64, put_u32, put_u64};
use super::recover::Recovered;
use crate::{Mismatch, OpenError};

const MAGIC: u32 = u32::from_le_bytes(*b"PHMW");
const VERSION: u32 = 1;
const BYTES: usize = 48;
/// Length of the file.
const FILE_BYTES: u64 = 2 * BLOCK;
/// Groups after which a witness is brought up to date.
const BEHIND_MAX: u64 = 256;

/// The ledgers that a metadata store is opened beside.
#[derive(Clone, Debug)]
pub struct Beside {
    /// The witness: a file in a directory of the ledgers, which must exist.
    pub witness: PathBuf,
    /// There are ledgers.
    pub has_ledgers: bool,
    /// The id of the next ledger that will be made: all there are are below.
    pub next_ledger: u64,
    /// Open a store that is missing, or not the one of these ledgers, all the same. Whatever ledgers there are then are kept,
    /// named or not.
    pub accept: bool,
}

/// Content of the witness file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) store_id: u64,
    /// Counts what was written to the file; says which of the two places is the newer one.
    writes: u64,
    pub(super) epoch: u64,
    /// A group that the store has.
    pub(super) number: u64,
}

impl Seen {
    fn encode(self) -> Vec<u8> {
        let mut out = vec![0; BYTES];
        put_u32(&mut out, 4, MAGIC);
        put_u32(&mut out, 8, VERSION);
        let numbers = [self.store_id, self.writes, self.epoch, self.number];
        for (number, at) in numbers.into_iter().zip((16..).step_by(8)) {
            put_u64(&mut out, at, number);
        }
        let crc = crc32c(&[&out[4..]]);
        put_u32(&mut out, 0, crc);
        out
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..BYTES)?;
        let right = get_u32(bytes, 4)? == MAGIC
            && get_u32(bytes, 8)? == VERSION
            && get_u32(bytes, 0)? == crc32c(&[bytes.get(4..)?]);
        let seen = Self {
            store_id: get_u64(bytes, 16)?,
            writes: get_u64(bytes, 24)?,
            epoch: get_u64(bytes, 32)?,
            number: get_u64(bytes, 40)?,
        };
        let counts = [seen.writes, seen.epoch, seen.number];
        (right && counts.iter().all(|count| *count <= COUNT_MAX)).then_some(seen)
    }

    fn at(self) -> u64 {
        (self.writes % 2) * BLOCK
    }
}

/// True if a file looks like a witness.
pub(super) fn is_one(bytes: &[u8]) -> bool {
    let places = [0, BLOCK as usize];
    bytes.len() as u64 <= FILE_BYTES && places.iter().any(|at| get_u32(bytes, at + 4) == Some(MAGIC))
}

/// Tells both places of a witness.
pub(super) fn decode(bytes: &[u8], tell: &mut dyn FnMut(Part)) {
    for at in [0, BLOCK] {
        let place = bytes.get(at as usize..).unwrap_or_default();
        let found = Seen::decode(place);
        let is_empty = place.iter().take(BYTES).all(|byte| *byte == 0);
        tell(Part {
            kind: "witness",
            byte_offset: at,
            bytes: BYTES as u64,
            whole: found.is_some() || is_empty,
            fields: found.map_or_else(Vec::new, |seen| {
                vec![
                    ("store", format!("{:016x}", seen.store_id)),
                    ("writes", seen.writes.to_string()),
                    ("epoch", seen.epoch.to_string()),
                    ("number", seen.number.to_string()),
                ]
            }),
        });
    }
}

/// Reads the witness; `None` if there is none.
fn read(fs: &dyn Fs, path: &Path) -> Result<Option<Seen>, OpenError> {
    let io = |error| OpenError::io("read", path, &error);
    let file = match fs.open(path, OpenHow::READ) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io(error)),
    };
    let mut bytes = vec![0; FILE_BYTES as usize];
    let count = file.read_at(&mut bytes, 0).map_err(io)?;
    bytes.truncate(count);
    let places = [0, BLOCK as usize].map(|at| bytes.get(at..).and_then(Seen::decode));
    let newest = places.into_iter().flatten().max_by_key(|seen| seen.writes);
    newest.map(Some).ok_or_else(|| OpenError::Damaged {
        file: path.to_owned(),
        byte_offset: 0,
        what: "what says which metadata store belongs to these ledgers is damaged in both places".to_owned(),
    })
}

/// Decision made before the store is opened.
#[derive(Clone, Copy, Debug)]
pub(super) struct Judged {
    seen: Option<Seen>,
    /// From which ledger on the store may call ledgers unowned.
    pub(super) ledgers_from: u64,
    /// True if the store was opened although it does not belong to the ledgers.
    pub(super) accepted: bool,
}

/// Checks that the store belongs to the ledgers. `found`: the store, if there is one; `is_old`: it is of format 1.
pub(super) fn judge(
    fs: &dyn Fs,
    beside: &Beside,
    found: Option<&Recovered>,
    is_old: bool,
) -> Result<Judged, OpenError> {
    let seen = match read(fs, &beside.witness) {
        Err(OpenError::Damaged { .. }) if beside.accept => None,
        seen => seen?,
    };
    let mismatch = match (found, seen) {
        (None, None) => beside.has_ledgers.then_some(Mismatch::Missing),
        (None, Some(_)) => Some(Mismatch::Missing),
        (Some(_), Some(_)) if is_old => Some(Mismatch::Missing),
        (Some(_), None) if is_old => None,
        (Some(found), None) if found.epoch > 0 => Some(Mismatch::NoWitness),
        // The start that made it did not come as far as the witness; nothing was in it then that ledgers belong to.
        (Some(found), None) => (found.state.revision == 0 && beside.has_ledgers).then_some(Mismatch::Missing),
        (Some(found), Some(seen)) if found.store_id != seen.store_id => Some(Mismatch::Foreign),
        (Some(found), Some(seen)) if found.epoch < seen.epoch || found.state.number < seen.number => {
            Some(Mismatch::Older)
        }
        (Some(found), Some(seen)) if found.epoch > seen.epoch + 1 => Some(Mismatch::LedgersOlder),
        (Some(_), Some(_)) => None,
    };
    if let Some(why) = mismatch.filter(|_| !beside.accept) {
        return Err(OpenError::NotOfTheseLedgers {
            witness: beside.witness.clone(),
            why,
        });
    }
    let known = found.map_or(0, |found| found.ledgers_from);
    // Whose the ledgers are that are there already, only the store that was opened beside them before can tell.
    let unsure = mismatch.is_some() || seen.is_none();
    Ok(Judged {
        seen,
        ledgers_from: if unsure {
            known.max(beside.next_ledger)
        } else {
            known
        },
        accepted: mismatch.is_some(),
    })
}

/// The witness of a store that is open.
#[derive(Debug)]
pub(super) struct Witness {
    file: Arc<dyn FsFile>,
    last: Seen,
}

impl Witness {
    /// Makes it, or opens it. It says nothing new yet.
    pub(super) fn open(
        fs: &dyn Fs,
        path: &Path,
        judged: &Judged,
        store_id: u64,
        number: u64,
    ) -> Result<Self, CopyError> {
        let (write, sync) = (CopyError::Write, CopyError::Sync);
        if let Some(last) = judged.seen.filter(|_| !judged.accepted) {
            let file = fs.open(path, OpenHow::WRITE).map_err(write)?;
            // Once more, in case it is only read from memory since a sync failed: the other place is written next.
            file.write_all_at(&last.encode(), last.at()).map_err(write)?;
            file.sync_data().map_err(sync)?;
            return Ok(Self { file, last });
        }
        let temporary = path.with_extension("tmp");
        let file = fs.open(&temporary, OpenHow::CREATE).map_err(write)?;
        let last = Seen {
            store_id,
            writes: 1,
            epoch: judged.seen.map_or(0, |seen| seen.epoch),
            number,
        };
        file.set_len(0).map_err(write)?;
        file.write_all_at(&[0; FILE_BYTES as usize], 0).map_err(write)?;
        file.write_all_at(&last.encode(), last.at()).map_err(write)?;
        file.sync_data().map_err(sync)?;
        fs.rename(&temporary, path).map_err(write)?;
        fs.sync_dir(path.parent().unwrap_or(Path::new(".")))
            .map_err(sync)?;
        Ok(Self { file, last })
    }

    /// The epoch that is next.
    pub(super) fn next_epoch(&self) -> u64 {
        self.last.epoch + 1
    }

    /// True if enough groups were written since the last update that the witness must be updated.
    pub(super) fn is_behind(&self, number: u64) -> bool {
        number >= self.last.number + BEHIND_MAX
    }

    /// Says, durably, that the store has come to this group.
    pub(super) fn say(&mut self, epoch: u64, number: u64) -> Result<(), CopyError> {
        let next = Seen {
            store_id: self.last.store_id,
            writes: self.last.writes + 1,
            epoch,
            number,
        };
        self.file
            .write_all_at(&next.encode(), next.at())
            .map_err(CopyError::Write)?;
        self.file.sync_data().map_err(CopyError::Sync)?;
        self.last = next;
        Ok(())
    }
}

/// Proof that a metadata store is the one of the ledgers beside it: the only thing that lets ledgers which it condemns, or does not
/// name, be called unowned. An empty, older or foreign store gives none, and one that was accepted all the same covers only what
/// was made since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatchesLedgers {
    pub(super) from: u64,
}

impl MatchesLedgers {
    /// The proof of a store that was created or accepted before this ledger was, for stores without a witness.
    #[cfg(feature = "test-util")]
    #[must_use]
    pub fn since(ledger: u64) -> Self {
        Self { from: ledger }
    }

    /// The first ledger that is covered; all that follow are.
    #[must_use]
    pub fn first(&self) -> u64 {
        self.from
    }

    /// True if this ledger is unowned once the store declares it so or does not name it. Ledgers that are not covered
    /// are kept.
    #[must_use]
    pub fn covers(&self, ledger: u64) -> bool {
        ledger >= self.from
    }
}
