//! Copy as it is written: appended to, and rewritten in place when it is full.
//!
//! Always true: a block with a synced group is not rewritten before `begin_again` has recorded durably that the copy
//! holds nothing. Nothing is answered before it is synced here.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pharos_runtime::fs::{Fs, FsFile, OpenHow};

use super::format::{
    BLOCK, DATA_AT, GROUP_HEADER_BYTES, GroupHeader, Header, Kind, PART_BYTES_MAX, push_record, record_bytes,
    record_crc, round_up,
};
use super::state::Contents;

/// Zeros that are written at once when a copy grows.
const FILL_BYTES: usize = 256 << 10;

/// Failure of a copy; says if anything can be written after it.
#[derive(Debug)]
pub(super) enum CopyError {
    /// A write or an allocation. The cause may go away.
    Write(io::Error),
    /// A sync: what is on the device is unknown from now on.
    Sync(io::Error),
    /// The memory content differs from what was put there.
    Memory(String),
}

impl std::fmt::Display for CopyError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Write(error) => write!(f, "write: {error}"),
            Self::Sync(error) => write!(f, "sync: {error}"),
            Self::Memory(key) => write!(f, "the value of {key} changed in memory"),
        }
    }
}

/// A group before it is known where it goes.
#[derive(Debug)]
pub(super) struct NewGroup {
    pub(super) number: u64,
    pub(super) revision: u64,
    pub(super) records: u32,
    /// The records, behind room for the header.
    pub(super) bytes: Vec<u8>,
}

/// Copy as found at start.
#[derive(Clone, Copy, Debug)]
pub(super) struct FoundCopy {
    pub(super) number: u32,
    /// Its newest header.
    pub(super) header: Option<Header>,
    /// End of its groups, if it is complete.
    pub(super) end: Option<u64>,
}

/// A copy that is open for writing.
#[derive(Debug)]
pub(super) struct Copy {
    pub(super) path: PathBuf,
    file: Arc<dyn FsFile>,
    /// As last written.
    header: Header,
    /// Offset of the next group.
    end: u64,
    /// Room in the file.
    bytes: u64,
    /// True if complete; otherwise it must be rewritten before it counts.
    pub(super) whole: bool,
}

impl Copy {
    /// The file of a copy that is there. What it has is durable then: it may have been seen before it was.
    pub(super) fn open(fs: &dyn Fs, path: &Path, found: &FoundCopy) -> Result<Self, CopyError> {
        let file = fs.open(path, OpenHow::WRITE).map_err(CopyError::Write)?;
        let copy = Self {
            path: path.to_owned(),
            bytes: file.len().map_err(CopyError::Write)?,
            file,
            header: found.header.unwrap_or(empty_header(found.number)),
            end: found.end.unwrap_or(DATA_AT),
            whole: found.end.is_some(),
        };
        if copy.whole && !copy.header.closed {
            copy.write_back()?;
        }
        if found.header.is_none() {
            // What stands there counted its headers by itself and must not come out newer than the next ones.
            let zeros = [0; DATA_AT as usize];
            copy.file.write_all_at(&zeros, 0).map_err(CopyError::Write)?;
        }
        copy.sync()?;
        Ok(copy)
    }

    /// Makes the file of a copy, with everything in it, and only then gives it its name.
    pub(super) fn create(
        fs: &dyn Fs,
        path: &Path,
        number: u32,
        again: &Again<'_>,
    ) -> Result<Self, CopyError> {
        let temporary = path.with_extension("tmp");
        let write = CopyError::Write;
        let file = fs.open(&temporary, OpenHow::CREATE).map_err(write)?;
        file.set_len(0).map_err(write)?;
        let mut copy = Self {
            path: path.to_owned(),
            file,
            header: empty_header(number),
            end: DATA_AT,
            bytes: 0,
            whole: false,
        };
        copy.grow(again.bytes_wanted)?;
        copy.write_again(again)?;
        fs.rename(&temporary, path).map_err(write)?;
        let dir = path.parent().unwrap_or(Path::new("."));
        fs.sync_dir(dir).map_err(CopyError::Sync)?;
        Ok(copy)
    }

    /// Writes what is read once more. A sync that failed in an earlier life leaves bytes that are read from memory, are not on the
    /// device, and are not written by the next sync.
    fn write_back(&self) -> Result<(), CopyError> {
        let mut at = 0;
        let mut buf = vec![0; FILL_BYTES];
        while at < self.end {
            let count = buf.len().min((self.end - at) as usize);
            let part = buf.get_mut(..count).unwrap_or_default();
            self.file.read_at(part, at).map_err(CopyError::Write)?;
            self.file.write_all_at(part, at).map_err(CopyError::Write)?;
            at += count as u64;
        }
        Ok(())
    }

    /// Says that nothing is written after this, durably. `known`: the last group.
    pub(super) fn close(&mut self, known: u64) -> Result<(), CopyError> {
        self.write_header(|header| {
            header.known = known;
            header.closed = true;
        })?;
        self.sync()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Remaining space for groups, in bytes.
    pub(super) fn room(&self) -> u64 {
        self.bytes.saturating_sub(self.end)
    }

    /// Takes room on the device, so that no write needs any. Nothing that counts is touched when it fails.
    pub(super) fn grow(&mut self, bytes: u64) -> Result<(), CopyError> {
        if bytes <= self.bytes {
            return Ok(());
        }
        self.file.allocate(bytes).map_err(CopyError::Write)?;
        let zeros = vec![0; FILL_BYTES.min((bytes - self.bytes) as usize)];
        let mut at = self.bytes;
        while at < bytes {
            let count = zeros.len().min((bytes - at) as usize);
            let part = zeros.get(..count).unwrap_or_default();
            self.file.write_all_at(part, at).map_err(CopyError::Write)?;
            at += count as u64;
        }
        self.sync()?;
        self.bytes = bytes;
        Ok(())
    }

    pub(super) fn sync(&self) -> Result<(), CopyError> {
        self.file.sync_data().map_err(CopyError::Sync)
    }

    /// Writes the header that says `known`, for the next sync.
    fn write_header(&mut self, change: impl FnOnce(&mut Header)) -> Result<(), CopyError> {
        self.header.writes += 1;
        self.header.closed = false;
        change(&mut self.header);
        let at = self.header.at();
        let bytes = self.header.encode();
        self.file.write_all_at(&bytes, at).map_err(CopyError::Write)
    }

    /// Appends a group, durably. `known` is what the header says then. The caller made sure of the room.
    pub(super) fn append(&mut self, group: &NewGroup, known: u64) -> Result<(), CopyError> {
        let header = GroupHeader {
            kind: Kind::Changes,
            store_id: self.header.store_id,
            copy: self.header.copy,
            generation: self.header.generation,
            number: group.number,
            at: self.end,
            revision: group.revision,
            records: group.records,
        };
        let bytes = header.finish(group.bytes.clone());
        self.file
            .write_all_at(&bytes, self.end)
            .map_err(CopyError::Write)?;
        self.write_header(|header| header.known = known)?;
        self.sync()?;
        self.end += bytes.len() as u64;
        Ok(())
    }

    /// Offset of the next group.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Makes a group invalid that was, or may have been, written at `end`, durably. `known`: the last group that counts.
    pub(super) fn take_back(&mut self, end: u64, known: u64) -> Result<(), CopyError> {
        self.end = end;
        // In both places: neither of them may go on naming the group.
        self.write_header(|header| header.known = known)?;
        self.write_header(|_| {})?;
        let zeros = vec![0; BLOCK.min(self.room()) as usize];
        self.file.write_all_at(&zeros, end).map_err(CopyError::Write)?;
        self.sync()
    }

    /// Says something new about the store, durably.
    pub(super) fn say(&mut self, epoch: u64, ledgers_from: u64) -> Result<(), CopyError> {
        self.write_header(|header| {
            header.epoch = epoch;
            header.ledgers_from = ledgers_from;
        })?;
        self.sync()
    }

    /// Writes everything again in place. The other copy must be whole until this returns `Ok`.
    pub(super) fn write_again(&mut self, again: &Again<'_>) -> Result<(), CopyError> {
        let state = again.state;
        check_memory(state, again.store_id)?;
        self.whole = false;
        self.write_header(|header| {
            header.whole = false;
            header.generation = again.generation;
            header.store_id = again.store_id;
        })?;
        self.sync()?;
        let mut at = DATA_AT;
        let mut part = new_group_bytes();
        let mut records = 0;
        for (key, item) in state.durable() {
            let bytes = record_bytes(key, &item.value) as usize;
            if records > 0 && part.len() + bytes > PART_BYTES_MAX {
                at = self.write_part(
                    at,
                    std::mem::replace(&mut part, new_group_bytes()),
                    records,
                    again,
                )?;
                records = 0;
            }
            push_record(&mut part, key, Some(&item.value), item.version, item.crc);
            records += 1;
        }
        // Also when there is nothing: the revision stands in it.
        at = self.write_part(at, part, records, again)?;
        self.sync()?;
        self.write_header(|header| {
            header.whole = true;
            header.known = state.number;
            header.base = state.number;
            header.log_at = at;
            header.epoch = again.epoch;
            header.ledgers_from = again.ledgers_from;
        })?;
        self.sync()?;
        self.end = at;
        self.whole = true;
        Ok(())
    }

    /// Writes a part of the snapshot. Says where the next one goes.
    fn write_part(&self, at: u64, bytes: Vec<u8>, records: u32, again: &Again<'_>) -> Result<u64, CopyError> {
        let header = GroupHeader {
            kind: Kind::Part,
            store_id: again.store_id,
            copy: self.header.copy,
            generation: again.generation,
            number: again.state.number,
            at,
            revision: again.state.revision,
            records,
        };
        let bytes = header.finish(bytes);
        self.file.write_all_at(&bytes, at).map_err(CopyError::Write)?;
        Ok(at + bytes.len() as u64)
    }
}

/// Input for the rewrite of a copy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Again<'a> {
    pub(super) state: &'a Contents,
    pub(super) store_id: u64,
    /// Never used before.
    pub(super) generation: u64,
    pub(super) epoch: u64,
    pub(super) ledgers_from: u64,
    /// Room of a new file.
    pub(super) bytes_wanted: u64,
}

/// Checks that everything in memory still has its original checksum.
fn check_memory(state: &Contents, store_id: u64) -> Result<(), CopyError> {
    for (key, item) in state.durable() {
        if item.crc != record_crc(store_id, key, Some(&item.value), item.version) {
            return Err(CopyError::Memory(key.to_owned()));
        }
    }
    Ok(())
}

/// Room for the header of a group.
pub(super) fn new_group_bytes() -> Vec<u8> {
    vec![0; GROUP_HEADER_BYTES]
}

/// The most that a snapshot of records of `bytes` takes, with the headers of its parts and what is left free in blocks.
pub(super) fn snapshot_bytes(bytes: u64) -> u64 {
    // Two neighbouring parts have more than PART_BYTES_MAX together.
    let parts = 2 * bytes / PART_BYTES_MAX as u64 + 2;
    round_up(bytes) + parts * (GROUP_HEADER_BYTES as u64 + BLOCK)
}

fn empty_header(copy: u32) -> Header {
    Header {
        copy,
        store_id: 0,
        writes: 0,
        generation: 0,
        whole: false,
        closed: false,
        known: 0,
        base: 0,
        log_at: DATA_AT,
        epoch: 0,
        ledgers_from: 0,
    }
}
