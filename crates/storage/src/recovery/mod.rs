//! Opening a store: what is in the directory, what a crash left half done, and what to go on with.
//!
//! The order matters; a crash at any point of it finds the same again:
//! 1. lock the directory, read or make `VERSION`, remove what was never finished (`*.tmp`, `*.spare`);
//! 2. take each segment's content from its side file, or scan it; cut a torn end off the last one;
//! 3. sync the last segment, because what was found there may only have been in memory, and write its side file;
//! 4. start a new segment whose header says where the last one ended, and sync it;
//! 5. only now give back the room behind the last one's end.

use std::collections::{BTreeSet, HashSet};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pharos_ledger::StorageFault;
use pharos_runtime::fs::{Fs, FsLock, OpenHow, is_no_space};

use crate::format::FORMAT_VERSION;
use crate::format::segment_header::{NO_SEGMENT, SegmentEnd, SegmentHeader};
use crate::format::side_file::SideFile;
use crate::format::superblock::{FILE_BYTES, Refused, Superblock};
use crate::journal::Journal;
use crate::keeper::{Keeper, prepare_first, remove_files, write_side_file};
use crate::segments::{Segment, SegmentFile, parse_name, side_file_name};
use crate::shared::{Parts, Shared, open_how};
use crate::{OpenStoreError, Options};

mod load;
mod scan;

use load::Loader;

const VERSION_FILE: &str = "VERSION";
const LOCK_FILE: &str = "LOCK";

/// A store ready to run.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) shared: Arc<Shared>,
    pub(crate) journal: Journal,
    pub(crate) keeper: Keeper,
}

/// A segment file before its content is known.
#[derive(Debug)]
struct Candidate {
    file: Arc<SegmentFile>,
    file_bytes: u64,
    header: Option<SegmentHeader>,
    has_group: bool,
    side: Option<SideFile>,
}

pub(crate) fn open(fs: Arc<dyn Fs>, dir: &Path, options: Options) -> Result<Opened, OpenStoreError> {
    fs.create_dir_all(dir)
        .map_err(OpenStoreError::io("create", dir))?;
    let lock_path = dir.join(LOCK_FILE);
    let lock = fs
        .lock(&lock_path)
        .map_err(OpenStoreError::io("lock", &lock_path))?;
    let lock = lock.ok_or_else(|| OpenStoreError::Locked(dir.to_owned()))?;
    let names = fs.list(dir).map_err(OpenStoreError::io("list", dir))?;
    let superblock = read_or_make_superblock(&*fs, dir, &names, options.block_bytes)?;
    remove_leftovers(&*fs, dir, &names);
    let ids: BTreeSet<u32> = names.iter().filter_map(|n| segment_id(n, "seg")).collect();
    let segment_next = ids.last().map_or(0, |last| last + 1);
    let mut candidates = Vec::new();
    for id in ids {
        candidates.push(inspect(&*fs, dir, &options, superblock, id)?);
    }
    drop_empty(&*fs, &mut candidates)?;
    let shared = load(fs, dir, options, superblock, candidates, segment_next, lock)?;
    start(shared)
}

fn segment_id(name: &str, ending: &str) -> Option<u32> {
    parse_name(name)
        .filter(|(_, found)| *found == ending)
        .map(|(id, _)| id)
}

fn read_or_make_superblock(
    fs: &dyn Fs,
    dir: &Path,
    names: &[String],
    block_bytes: u32,
) -> Result<Superblock, OpenStoreError> {
    let path = dir.join(VERSION_FILE);
    let io = |what| OpenStoreError::io(what, &path);
    if names.iter().any(|name| name == VERSION_FILE) {
        let file = fs.open(&path, OpenHow::READ).map_err(io("open"))?;
        let mut bytes = vec![0; FILE_BYTES];
        let count = file.read_at(&mut bytes, 0).map_err(io("read"))?;
        bytes.truncate(count);
        return Superblock::decode(&bytes).map_err(|refused| match refused {
            Refused::Damaged => OpenStoreError::Damaged(path.clone()),
            Refused::Version(found) => OpenStoreError::Version {
                dir: dir.to_owned(),
                found,
                known: FORMAT_VERSION,
            },
        });
    }
    if names.iter().any(|name| segment_id(name, "seg").is_some()) {
        return Err(OpenStoreError::NoVersion(dir.to_owned()));
    }
    let superblock = Superblock {
        block_bytes,
        // The standard library's hasher is seeded by the system, which is all the randomness this needs.
        store_id: RandomState::new().build_hasher().finish(),
    };
    let temporary = dir.join("VERSION.tmp");
    let file = fs.open(&temporary, OpenHow::CREATE).map_err(io("create"))?;
    file.write_all_at(&superblock.encode(), 0).map_err(io("write"))?;
    file.sync_data().map_err(io("sync"))?;
    fs.rename(&temporary, &path).map_err(io("create"))?;
    fs.sync_dir(dir).map_err(OpenStoreError::io("sync", dir))?;
    if let Some(parent) = dir.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        fs.sync_dir(parent).map_err(OpenStoreError::io("sync", parent))?;
    }
    Ok(superblock)
}

/// Removes files that were never finished or belong to no segment. Failures only cost room.
fn remove_leftovers(fs: &dyn Fs, dir: &Path, names: &[String]) {
    let segments: HashSet<u32> = names.iter().filter_map(|n| segment_id(n, "seg")).collect();
    for name in names {
        let unfinished = [".tmp", ".spare", ".tmp-idx"]
            .iter()
            .any(|ending| name.ends_with(ending));
        let orphan = segment_id(name, "idx").is_some_and(|id| !segments.contains(&id));
        if (unfinished || orphan)
            && let Err(error) = fs.remove(&dir.join(name))
        {
            tracing::warn!(%error, name, "cannot remove a leftover file");
        }
    }
}

fn inspect(
    fs: &dyn Fs,
    dir: &Path,
    options: &Options,
    superblock: Superblock,
    id: u32,
) -> Result<Candidate, OpenStoreError> {
    let path = dir.join(crate::segments::file_name(id));
    let io = |what| OpenStoreError::io(what, path.clone());
    let file = fs
        .open(&path, open_how(options, superblock))
        .map_err(io("open"))?;
    let file_bytes = file.len().map_err(io("measure"))?;
    let file = Arc::new(SegmentFile {
        id,
        salt: superblock.salt(id),
        path: path.clone(),
        file,
    });
    let (header, has_group) = scan::peek(&file, u64::from(superblock.block_bytes)).unwrap_or_else(|error| {
        tracing::error!(%error, file = %path.display(), "cannot read the start of a segment");
        (None, true)
    });
    Ok(Candidate {
        side: read_side_file(fs, &dir.join(side_file_name(id)), id, file.salt),
        file,
        file_bytes,
        header,
        has_group,
    })
}

fn read_side_file(fs: &dyn Fs, path: &Path, id: u32, salt: u32) -> Option<SideFile> {
    let file = fs.open(path, OpenHow::READ).ok()?;
    let bytes = usize::try_from(file.len().ok()?).ok()?;
    let mut content = vec![0; bytes];
    let count = file.read_at(&mut content, 0).ok()?;
    let side = SideFile::decode(content.get(..count)?, id, salt);
    if side.is_none() {
        tracing::warn!(file = %path.display(), "a side file is damaged; its segment is scanned instead");
    }
    side
}

/// Removes segments at the end that were prepared and never used. Never used again under the same id: bytes of a group
/// whose header was lost in a crash could otherwise be taken for new ones.
fn drop_empty(fs: &dyn Fs, candidates: &mut Vec<Candidate>) -> Result<(), OpenStoreError> {
    while let Some(last) = candidates.last() {
        if last.header.is_some() || last.has_group || last.side.is_some() {
            break;
        }
        let path = last.file.path.clone();
        fs.remove(&path).map_err(OpenStoreError::io("remove", path))?;
        candidates.pop();
    }
    Ok(())
}

fn load(
    fs: Arc<dyn Fs>,
    dir: &Path,
    options: Options,
    superblock: Superblock,
    candidates: Vec<Candidate>,
    segment_next: u32,
    lock: Box<dyn FsLock>,
) -> Result<Arc<Shared>, OpenStoreError> {
    let mut loader = Loader::default();
    let headers: Vec<Option<SegmentHeader>> = candidates.iter().map(|c| c.header).collect();
    let count = candidates.len();
    for (at, candidate) in candidates.into_iter().enumerate() {
        let mut segment = Segment::new(Arc::clone(&candidate.file), candidate.file_bytes);
        segment.indexed = candidate.side.is_some();
        let next = headers.get(at + 1).copied().flatten();
        let next = next.filter(|next| next.previous.segment == candidate.file.id);
        let side = candidate.side.unwrap_or_else(|| {
            let bounds = scan::Bounds {
                block_bytes: u64::from(superblock.block_bytes),
                file_bytes: candidate.file_bytes,
                end: next.map(|next| next.previous.end),
                // A segment that is not the last was synced to its end before the next one began.
                proven: if at + 1 < count { u64::MAX } else { 0 },
            };
            scan::scan(&candidate.file, candidate.header.as_ref(), &bounds)
        });
        loader.add(segment, side);
        if at + 1 == count {
            let path = &candidate.file.path;
            candidate
                .file
                .file
                .sync_data()
                .map_err(OpenStoreError::io("sync", path))?;
        }
    }
    let loaded = loader.finish();
    Ok(Arc::new(Shared::new(Parts {
        fs,
        dir: dir.to_owned(),
        options,
        superblock,
        ledgers: loaded.ledgers,
        ledger_next: loaded.ledger_next,
        segments: loaded.segments,
        segment_next,
        damages: loaded.damages,
        lock,
    })))
}

/// Steps 3 to 5.
fn start(shared: Arc<Shared>) -> Result<Opened, OpenStoreError> {
    let last = {
        let segments = shared.segments();
        let last = segments.by_id.values().next_back();
        last.map(|s| (Arc::clone(&s.file), s.end, s.sequence, s.indexed, s.file_bytes))
    };
    let previous = last.as_ref().map_or(
        SegmentEnd {
            segment: NO_SEGMENT,
            end: 0,
            sequence: 0,
        },
        |(file, end, sequence, ..)| SegmentEnd {
            segment: file.id,
            end: *end,
            sequence: *sequence,
        },
    );
    if let Some((file, _, _, false, _)) = &last
        && let Err(error) = write_side_file(&shared, file.id)
    {
        tracing::warn!(%error, file = %file.path.display(), "cannot write a side file");
    }
    remove_dead(&shared);
    let mut journal = Journal::new(Arc::clone(&shared), previous);
    start_journal(&shared, &mut journal)?;
    if let Some((file, end, .., file_bytes)) = &last {
        let kept = end.next_multiple_of(4096);
        let started = shared.supply().wanted.is_some();
        if started && kept < *file_bytes {
            let path: PathBuf = file.path.clone();
            file.file
                .set_len(kept)
                .map_err(OpenStoreError::io("trim", path))?;
            if let Some(segment) = shared.segments().by_id.get_mut(&file.id) {
                segment.file_bytes = kept;
            }
        }
    }
    let keeper = Keeper::new(Arc::clone(&shared));
    Ok(Opened {
        shared,
        journal,
        keeper,
    })
}

/// Room first: on a full device the dead segments are what lets the store start.
fn remove_dead(shared: &Shared) {
    loop {
        let dead = {
            let segments = shared.segments();
            let mut all = segments.by_id.iter();
            let dead = all.find(|(id, s)| {
                s.is_dead() && s.damages.is_empty() && crate::keeper::may_go(&segments, **id)
            });
            dead.map(|(_, s)| Arc::clone(&s.file))
        };
        let Some(file) = dead else { return };
        if let Err(error) = remove_files(shared, &file) {
            tracing::warn!(%error, file = %file.path.display(), "cannot remove a dead segment");
            return;
        }
        shared.segments().on_removed(file.id);
    }
}

fn start_journal(shared: &Arc<Shared>, journal: &mut Journal) -> Result<(), OpenStoreError> {
    match prepare_first(shared) {
        Ok(prepared) => journal
            .start(prepared)
            .map_err(|fault: Arc<StorageFault>| OpenStoreError::Io {
                what: "start a segment in",
                path: shared.dir.clone(),
                source: std::io::Error::other(fault),
            }),
        Err(error) if is_no_space(&error) => {
            tracing::warn!(dir = %shared.dir.display(), "no space left: the store opens without accepting appends");
            shared.supply().wanted = Some(shared.options.segment_bytes_first.next_multiple_of(4096));
            shared.queue.set_no_space(true);
            Ok(())
        }
        Err(source) => Err(OpenStoreError::Io {
            what: "prepare a segment in",
            path: shared.dir.clone(),
            source,
        }),
    }
}
