//! Ownership of directories: locks, `VERSION`, and the check that all belong together.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pharos_runtime::fs::{Fs, FsLock, OpenHow};
use pharos_storage_format::FORMAT_VERSION;
use pharos_storage_format::names::{CHECKPOINT, INDEX, LOCK, LOG, SEGMENT, VERSION, parse};
use pharos_storage_format::superblock::{FILE_BYTES, Refused, Role, Superblock};

use crate::shared::FoundDir;
use crate::{OpenStoreError, Options};

/// All directories of a store.
pub(super) struct Dirs {
    pub(super) journals: Vec<FoundDir>,
    pub(super) ledgers: Vec<FoundDir>,
    /// By the same numbers: made by this start, so nothing was in them.
    pub(super) fresh_journals: Vec<bool>,
    pub(super) fresh_ledgers: Vec<bool>,
    pub(super) locks: Vec<Box<dyn FsLock>>,
}

struct SeenDir {
    path: PathBuf,
    role: Role,
    number: u32,
    superblock: Option<Superblock>,
}

/// Locks the directories, reads their `VERSION` and makes the missing ones.
pub(super) fn open(fs: &Arc<dyn Fs>, base: &Path, options: &Options) -> Result<Dirs, OpenStoreError> {
    let mut locks = Vec::new();
    let mut looks = Vec::new();
    // The first ledger directory is the one that says which store this is, so it comes first.
    let ledgers = options.dirs(base, Role::Ledgers);
    let journals = options.dirs(base, Role::Journal);
    let all = ledgers
        .iter()
        .zip(0..)
        .map(|(path, number)| (path, Role::Ledgers, number));
    let all = all.chain(
        journals
            .iter()
            .zip(0..)
            .map(|(path, number)| (path, Role::Journal, number)),
    );
    for (path, role, number) in all {
        locks.push(lock(&**fs, path)?);
        looks.push(SeenDir {
            path: path.clone(),
            role,
            number,
            superblock: read(&**fs, path)?,
        });
    }
    let store_id = check(&looks)?;
    let mut dirs = Dirs {
        journals: Vec::new(),
        ledgers: Vec::new(),
        fresh_journals: Vec::new(),
        fresh_ledgers: Vec::new(),
        locks,
    };
    for look in looks {
        let fresh = look.superblock.is_none();
        let superblock = match look.superblock {
            Some(superblock) => superblock,
            None => make(&**fs, &look, store_id, options.block_bytes)?,
        };
        let (found, news) = match look.role {
            Role::Journal => (&mut dirs.journals, &mut dirs.fresh_journals),
            Role::Ledgers => (&mut dirs.ledgers, &mut dirs.fresh_ledgers),
        };
        found.push(FoundDir {
            path: look.path,
            superblock,
        });
        news.push(fresh);
    }
    Ok(dirs)
}

fn lock(fs: &dyn Fs, dir: &Path) -> Result<Box<dyn FsLock>, OpenStoreError> {
    fs.create_dir_all(dir)
        .map_err(OpenStoreError::io("create", dir))?;
    let path = dir.join(LOCK);
    let lock = fs.lock(&path).map_err(OpenStoreError::io("lock", &path))?;
    let lock = lock.ok_or_else(|| OpenStoreError::Locked(dir.to_owned()))?;
    // Names that are seen may not be durable yet, and a caller that sees what they lead to will rely on it.
    fs.sync_dir(dir).map_err(OpenStoreError::io("sync", dir))?;
    Ok(lock)
}

fn read(fs: &dyn Fs, dir: &Path) -> Result<Option<Superblock>, OpenStoreError> {
    let names = fs.list(dir).map_err(OpenStoreError::io("list", dir))?;
    if !names.iter().any(|name| name == VERSION) {
        let is_data = |name: &String| {
            let ours = [SEGMENT, LOG, INDEX]
                .iter()
                .any(|ending| parse(name, ending).is_some());
            ours || name == CHECKPOINT
        };
        if names.iter().any(is_data) {
            return Err(OpenStoreError::NoVersion(dir.to_owned()));
        }
        return Ok(None);
    }
    let path = dir.join(VERSION);
    let file = fs
        .open(&path, OpenHow::READ)
        .map_err(OpenStoreError::io("open", &path))?;
    let mut bytes = vec![0; FILE_BYTES];
    let count = file
        .read_at(&mut bytes, 0)
        .map_err(OpenStoreError::io("read", &path))?;
    bytes.truncate(count);
    match Superblock::decode(&bytes) {
        Ok(found) => Ok(Some(found)),
        Err(Refused::Damaged) => Err(OpenStoreError::Damaged(path)),
        Err(Refused::Version(found)) => Err(OpenStoreError::Version {
            dir: dir.to_owned(),
            found,
            known: FORMAT_VERSION,
        }),
    }
}

/// The store's id, when all directories belong to one store.
fn check(looks: &[SeenDir]) -> Result<u64, OpenStoreError> {
    let known = looks.first().and_then(|look| look.superblock);
    let store_id = known.map(|superblock| superblock.store_id);
    for look in looks {
        let Some(found) = look.superblock else { continue };
        let Some(store_id) = store_id else {
            let first = looks.first().map(|look| look.path.clone()).unwrap_or_default();
            let what = format!("is empty, but {} belongs to a store", look.path.display());
            return Err(OpenStoreError::wrong(first, what));
        };
        if found.store_id != store_id {
            return Err(OpenStoreError::wrong(&look.path, "belongs to another store"));
        }
        if let Some(what) = found.other_place(look.role, look.number) {
            return Err(OpenStoreError::wrong(&look.path, what));
        }
    }
    // The standard library's hasher is seeded by the system, which is all the randomness this needs.
    Ok(store_id.unwrap_or_else(|| RandomState::new().build_hasher().finish()))
}

fn make(fs: &dyn Fs, look: &SeenDir, store_id: u64, block_bytes: u32) -> Result<Superblock, OpenStoreError> {
    let superblock = Superblock {
        block_bytes,
        store_id,
        role: look.role,
        number: look.number,
    };
    let dir = &look.path;
    let path = dir.join(VERSION);
    let io = |what| OpenStoreError::io(what, &path);
    let temporary = dir.join("VERSION.tmp");
    let file = fs.open(&temporary, OpenHow::CREATE).map_err(io("create"))?;
    file.write_all_at(&superblock.encode(), 0).map_err(io("write"))?;
    file.sync_data().map_err(io("sync"))?;
    fs.rename(&temporary, &path).map_err(io("create"))?;
    fs.sync_dir(dir).map_err(OpenStoreError::io("sync", dir))?;
    for parent in dir.ancestors().skip(1).take(2) {
        if !parent.as_os_str().is_empty() {
            fs.sync_dir(parent).map_err(OpenStoreError::io("sync", parent))?;
        }
    }
    Ok(superblock)
}
