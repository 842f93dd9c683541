//! The directories of a store that is not open: locks, names, `VERSION`.
//!
//! A `VERSION` file that is gone or damaged in both copies says nothing that the other directories do not say as well:
//! the store's id is in each of them and in the checkpoint, and whether a guess is right is proven by the files in the
//! directory, which carry a mark made from all of it.

use std::io;
use std::path::{Path, PathBuf};

use pharos_runtime::fs::{Fs, FsLock, OpenHow};
use pharos_storage_format::FORMAT_VERSION;
use pharos_storage_format::checkpoint::Checkpoint;
use pharos_storage_format::file::read_up_to;
use pharos_storage_format::log_header::LogHeader;
use pharos_storage_format::names::{CHECKPOINT, INDEX, LOCK, LOG, SEGMENT, VERSION, file_name, parse};
use pharos_storage_format::segment_header::SegmentHeader;
use pharos_storage_format::superblock::{FILE_BYTES, Refused, Role, Superblock};

use super::{Access, Offline, OfflineError};
use crate::Options;

/// In which state a `VERSION` file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VersionState {
    Whole,
    /// A copy is damaged, at this offset.
    OneCopy(u64),
    Damaged,
    Missing,
}

/// A directory of the store.
#[derive(Debug)]
pub(super) struct Dir {
    pub(super) path: PathBuf,
    pub(super) role: Role,
    pub(super) number: u32,
    /// Names of the files in it.
    pub(super) names: Vec<String>,
    pub(super) version: VersionState,
    /// Read, or proven otherwise; none for a directory in which nothing is.
    pub(super) superblock: Option<Superblock>,
}

impl Dir {
    /// The ids of the files with this ending, rising.
    pub(super) fn ids(&self, ending: &str) -> Vec<u32> {
        let mut ids: Vec<u32> = self.names.iter().filter_map(|name| parse(name, ending)).collect();
        ids.sort_unstable();
        ids
    }

    /// True if it contains a file that only a store in use makes.
    pub(super) fn has_data(&self) -> bool {
        let ours = |name: &String| {
            [SEGMENT, LOG, INDEX]
                .iter()
                .any(|ending| parse(name, ending).is_some())
        };
        self.names.iter().any(|name| ours(name) || name == CHECKPOINT)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.names.iter().any(|known| known == name)
    }
}

pub(super) struct Opened {
    pub(super) journals: Vec<Dir>,
    pub(super) ledgers: Vec<Dir>,
    pub(super) locks: Vec<Box<dyn FsLock>>,
}

/// Locks and reads the directories that the options name.
pub(super) fn open(
    fs: &dyn Fs,
    base: &Path,
    options: &Options,
    access: Access,
) -> Result<Opened, OfflineError> {
    let mut locks = Vec::new();
    let mut all = Vec::new();
    for (role, paths) in [
        (Role::Ledgers, options.dirs(base, Role::Ledgers)),
        (Role::Journal, options.dirs(base, Role::Journal)),
    ] {
        for (path, number) in paths.into_iter().zip(0..) {
            let names = list(fs, &path)?;
            locks.extend(lock(fs, &path, &names, access)?);
            // Listed again: before the lock a broker may still have been writing.
            let names = list(fs, &path)?;
            all.push(look(fs, path, role, number, names)?);
        }
    }
    if all
        .iter()
        .all(|dir| dir.version == VersionState::Missing && !dir.has_data())
    {
        // A store of version 1 had everything in one directory.
        look(fs, base.to_owned(), Role::Journal, 0, list(fs, base)?)?;
        return Err(OfflineError::NoStore(base.to_owned()));
    }
    check_ids(&all)?;
    complete(fs, &mut all)?;
    let (ledgers, journals) = all.into_iter().partition(|dir| dir.role == Role::Ledgers);
    Ok(Opened {
        journals,
        ledgers,
        locks,
    })
}

fn list(fs: &dyn Fs, path: &Path) -> Result<Vec<String>, OfflineError> {
    match fs.list(path) {
        Ok(names) => Ok(names),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(OfflineError::io("list", path)(error)),
    }
}

/// A file system that is mounted read-only cannot be written to, so there the lock is not needed.
pub(super) fn lock(
    fs: &dyn Fs,
    dir: &Path,
    names: &[String],
    access: Access,
) -> Result<Option<Box<dyn FsLock>>, OfflineError> {
    // Taking a lock makes the file, and a store that was ever open has it.
    let there = names.iter().any(|name| name == LOCK);
    let wanted = there || access == Access::Change && !names.is_empty();
    if !wanted {
        return Ok(None);
    }
    let path = dir.join(LOCK);
    match fs.lock(&path) {
        Ok(Some(lock)) => Ok(Some(lock)),
        Ok(None) => Err(OfflineError::Locked(dir.to_owned())),
        Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem && access == Access::Look => Ok(None),
        Err(error) => Err(OfflineError::io("lock", path)(error)),
    }
}

fn look(
    fs: &dyn Fs,
    path: PathBuf,
    role: Role,
    number: u32,
    names: Vec<String>,
) -> Result<Dir, OfflineError> {
    let mut dir = Dir {
        path,
        role,
        number,
        names,
        version: VersionState::Missing,
        superblock: None,
    };
    if !dir.has(VERSION) {
        return Ok(dir);
    }
    let mut bytes = Offline::read_file(fs, &dir.path.join(VERSION))?;
    bytes.resize(FILE_BYTES, 0);
    match Superblock::decode(&bytes) {
        Ok(found) => {
            let differs = bytes
                .iter()
                .zip(found.encode())
                .position(|(is, should)| *is != should);
            dir.version = differs.map_or(VersionState::Whole, |at| VersionState::OneCopy(at as u64));
            dir.superblock = Some(found);
        }
        Err(Refused::Damaged) => dir.version = VersionState::Damaged,
        Err(Refused::Version(found)) => {
            return Err(OfflineError::Version {
                dir: dir.path,
                found,
                known: FORMAT_VERSION,
            });
        }
    }
    Ok(dir)
}

/// Checks that the directories that name their store belong together.
fn check_ids(all: &[Dir]) -> Result<(), OfflineError> {
    let store_id = all
        .iter()
        .find_map(|dir| dir.superblock)
        .map(|found| found.store_id);
    for dir in all {
        let Some(found) = dir.superblock else { continue };
        if Some(found.store_id) != store_id {
            return Err(OfflineError::unusable(
                &dir.path,
                "belongs to another store than the others",
            ));
        }
        if let Some(what) = found.other_place(dir.role, dir.number) {
            return Err(OfflineError::unusable(&dir.path, what));
        }
    }
    Ok(())
}

/// Finds out what the directories are that do not say so.
fn complete(fs: &dyn Fs, all: &mut [Dir]) -> Result<(), OfflineError> {
    let known = all.iter().find_map(|dir| dir.superblock);
    let by_checkpoint = || {
        let first = all
            .iter()
            .find(|dir| dir.role == Role::Ledgers && dir.number == 0)?;
        let bytes = Offline::read_file(fs, &first.path.join(CHECKPOINT)).ok()?;
        Some(Checkpoint::decode(&bytes)?.store_id)
    };
    let store_id = known.map(|found| found.store_id).or_else(by_checkpoint);
    let blocks: Vec<u32> = known
        .map(|found| found.block_bytes)
        .into_iter()
        .chain([4096, 512])
        .collect();
    for dir in all {
        if dir.superblock.is_some() || dir.version == VersionState::Missing && !dir.has_data() {
            continue;
        }
        let guess = |block_bytes: &u32| {
            let superblock = Superblock {
                block_bytes: *block_bytes,
                store_id: store_id?,
                role: dir.role,
                number: dir.number,
            };
            proves(fs, dir, superblock).then_some(superblock)
        };
        dir.superblock = blocks.iter().find_map(guess);
        if dir.superblock.is_none() {
            let what = if dir.version == VersionState::Missing {
                "has data but no VERSION file, and nothing else says whose it is"
            } else {
                "its VERSION file is damaged, and nothing else says whose it is"
            };
            return Err(OfflineError::unusable(&dir.path, what));
        }
    }
    Ok(())
}

/// True if some file of a directory carries the mark that follows from `superblock`, or no file could.
fn proves(fs: &dyn Fs, dir: &Dir, superblock: Superblock) -> bool {
    let block = superblock.block_bytes as usize;
    let start = |id, ending| {
        let file = fs
            .open(&dir.path.join(file_name(id, ending)), OpenHow::READ)
            .ok()?;
        read_up_to(&*file, 0, block).ok()
    };
    if !dir.has_data() {
        return true;
    }
    match dir.role {
        Role::Journal => dir.ids(SEGMENT).into_iter().any(|id| {
            // The second copy is in the middle of the block, which proves its size.
            start(id, SEGMENT).is_some_and(|bytes| {
                let header = SegmentHeader::decode(&bytes, id, superblock.salt(id));
                header.is_some_and(|header| {
                    let mut expected = vec![0; block];
                    header.encode(&mut expected);
                    bytes.get(..48) == expected.get(..48)
                        && bytes.get(block / 2..) == expected.get(block / 2..)
                })
            })
        }),
        Role::Ledgers => {
            let logs = dir.ids(LOG);
            let by_log = logs.iter().any(|id| {
                start(*id, LOG)
                    .and_then(|bytes| LogHeader::decode(&bytes))
                    .is_some_and(|header| {
                        header.log == *id && header.dir == dir.number && header.salt == superblock.salt(*id)
                    })
            });
            // A first directory may have a checkpoint and nothing else.
            by_log || logs.is_empty() && dir.number == 0
        }
    }
}
