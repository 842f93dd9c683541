//! The formats as a fuzzer sees them: bytes that may have any origin.
//!
//! Random bytes rarely have the right checksum, so each check runs twice: on the bytes as they are, and on bytes whose
//! checksums were put right. A disk does not do that, but a bug of another release can, and it is what reaches the code
//! behind the checksums.
//!
//! Always true: a check ends by returning, or it has found a bug.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use pharos_ledger::{CreateOptions, Durability, LedgerEngine};
use pharos_runtime::fs::{FaultFs, OpenHow};
use pharos_storage_format::checkpoint::Checkpoint;
use pharos_storage_format::group::{GROUP_HEADER_BYTES, GroupHeader};
use pharos_storage_format::index_batch::IndexBatch;
use pharos_storage_format::log_header::{LOG_DATA_AT, LogHeader};
use pharos_storage_format::names::{CHECKPOINT, INDEX, LOG, SEGMENT, VERSION};
use pharos_storage_format::record::{RECORD_ALIGN, RECORD_HEADER_BYTES, RecordHeader};
use pharos_storage_format::segment_header::SegmentHeader;
use pharos_storage_format::superblock::{Role, Superblock};
use pharos_storage_format::{crc32c, get_u32, put_u32, round_up};
use pharos_types::EntryId;

use crate::manual::Manual;
use crate::offline::{Access, Offline};
use crate::{IoMode, Options, Preallocate};

/// Store id in the files of [`store`].
const STORE_ID: u64 = 0x5eed;
const BLOCK: usize = 512;
/// Bytes of an input that say one change.
const CHANGE_BYTES: usize = 8;
/// Entries read of one ledger.
const READS_MAX: usize = 100;

/// A `VERSION` file.
pub fn superblock(data: &[u8]) {
    for bytes in both(data, mend_superblock) {
        if let Ok(found) = Superblock::decode(&bytes) {
            assert_eq!(Superblock::decode(&found.encode()), Ok(found));
        }
    }
}

/// The first block of a segment: its number and salt, then the block.
pub fn segment_header(data: &[u8]) {
    let (segment, salt) = (get_u32(data, 0).unwrap_or(0), get_u32(data, 4).unwrap_or(0));
    for mut block in both(data.get(8..).unwrap_or_default(), mend_segment_header) {
        if let Some(found) = SegmentHeader::decode(&block, segment, salt) {
            block.resize(BLOCK, 0);
            found.encode(&mut block);
            assert_eq!(SegmentHeader::decode(&block, segment, salt), Some(found));
        }
    }
}

/// A group and its records, one after the other: its segment and salt, then the bytes.
pub fn group(data: &[u8]) {
    let (segment, salt) = (get_u32(data, 0).unwrap_or(0), get_u32(data, 4).unwrap_or(0));
    for bytes in both(data.get(8..).unwrap_or_default(), mend_group) {
        if let Some(found) = GroupHeader::decode(&bytes, segment, salt) {
            let mut again = [0; GROUP_HEADER_BYTES];
            found.encode(&mut again);
            assert_eq!(GroupHeader::decode(&again, segment, salt), Some(found));
        }
        let mut rest = bytes.get(GROUP_HEADER_BYTES..).unwrap_or_default();
        while let Some(record) = RecordHeader::decode(rest, salt) {
            assert_eq!(RecordHeader::decode(&record.encode(salt), salt), Some(record));
            if let Some(body) = record.body(rest) {
                assert_eq!(body.len(), record.body_bytes as usize);
            }
            rest = rest.get(record.total_bytes()..).unwrap_or_default();
        }
    }
}

/// A batch of an index: salt and log, then the bytes.
pub fn index_batch(data: &[u8]) {
    let (salt, log) = (get_u32(data, 0).unwrap_or(0), get_u32(data, 4).unwrap_or(0));
    for bytes in both(data.get(8..).unwrap_or_default(), mend_index) {
        if let Some((found, length)) = IndexBatch::decode(&bytes, salt, log) {
            assert!(length <= bytes.len());
            let again = found.encode(salt, log);
            assert_eq!(
                IndexBatch::decode(&again, salt, log).map(|(batch, _)| batch),
                Some(found)
            );
        }
    }
}

/// The start of an entry log.
pub fn log_header(data: &[u8]) {
    for bytes in both(data, |bytes| mend(bytes, 0, Some(32))) {
        if let Some(found) = LogHeader::decode(&bytes) {
            let mut block = [0; BLOCK];
            found.encode(&mut block);
            assert_eq!(LogHeader::decode(&block), Some(found));
        }
    }
}

/// A `CHECKPOINT` file.
pub fn checkpoint(data: &[u8]) {
    for bytes in both(data, mend_checkpoint) {
        if let Some(found) = Checkpoint::decode(&bytes) {
            assert_eq!(Checkpoint::decode(&found.encode()), Some(found));
        }
    }
}

/// Fuzzes a format from the list above, chosen by the first byte.
pub fn any_format(data: &[u8]) {
    let Some((kind, data)) = data.split_first() else {
        return;
    };
    match kind % 6 {
        0 => superblock(data),
        1 => segment_header(data),
        2 => group(data),
        3 => index_batch(data),
        4 => log_header(data),
        _ => checkpoint(data),
    }
}

/// Inputs of [`any_format`] that are whole, by name.
#[must_use]
pub fn examples() -> Vec<(String, Vec<u8>)> {
    let fs = make_store();
    let mut examples = Vec::new();
    for path in files(&fs) {
        let mut bytes = fs.bytes_of(&path).unwrap_or_default();
        let used = bytes
            .iter()
            .rposition(|byte| *byte != 0)
            .map_or(0, |last| last + 1);
        bytes.truncate(used.next_multiple_of(BLOCK));
        // Both directories have a `VERSION`.
        let named = match path.ends_with(VERSION) {
            true => path.parent().and_then(Path::file_name),
            false => path.file_stem(),
        };
        let stem = named.and_then(|stem| stem.to_str()).unwrap_or_default();
        let mut add = |what: &str, kind: u8, numbers: &[u8], bytes: &[u8]| {
            let example = [&[kind], numbers, bytes].concat();
            examples.push((format!("{what}-{stem}.bin"), example));
        };
        let (first, rest) = bytes.split_at(BLOCK.min(bytes.len()));
        let numbers = [first.get(12..16), first.get(8..12)]
            .map(Option::unwrap_or_default)
            .concat();
        match path.extension().and_then(|ending| ending.to_str()) {
            Some(SEGMENT) => {
                add("segment-header", 1, &numbers, first);
                add("group", 2, &numbers, rest);
            }
            Some(LOG) => add("log-header", 4, &[], first),
            Some(INDEX) => {
                let numbers = [first.get(8..12), first.get(12..16)].map(Option::unwrap_or_default);
                add("index", 3, &numbers.concat(), &bytes);
            }
            _ if path.ends_with(CHECKPOINT) => {
                add("checkpoint", 5, &[], &fs.bytes_of(&path).unwrap_or_default());
            }
            _ => add("superblock", 0, &[], &fs.bytes_of(&path).unwrap_or_default()),
        }
    }
    examples
}

/// A small store of which some bytes were changed: checked, opened, read, written to and stopped.
///
/// `data`: changes of 8 bytes each: file, kind, place (2), value (4).
pub fn store(data: &[u8]) {
    let made = make_store();
    for mend in [false, true] {
        let fs = made.snapshot();
        change(&fs, data, mend);
        use_store(&fs);
    }
}

/// The bytes as they are, and mended.
fn both(data: &[u8], mend: impl FnOnce(&mut [u8])) -> [Vec<u8>; 2] {
    let mut mended = data.to_vec();
    mend(&mut mended);
    [data.to_vec(), mended]
}

/// Puts the checksum right that stands at `at` and goes over the rest of `length` bytes, or of all.
fn mend(bytes: &mut [u8], at: usize, length: Option<usize>) {
    let Some(rest) = bytes.get_mut(at..) else { return };
    let length = length.unwrap_or(rest.len());
    if let Some(copy) = rest.get_mut(..length)
        && copy.iter().skip(4).any(|byte| *byte != 0)
    {
        let crc = crc32c(copy.get(4..).unwrap_or_default());
        put_u32(copy, 0, crc);
    }
}

fn mend_superblock(file: &mut [u8]) {
    mend(file, 0, Some(32));
    mend(file, 512, Some(32));
}

fn mend_segment_header(block: &mut [u8]) {
    mend(block, 0, Some(48));
    mend(block, block.len() / 2, Some(48));
}

fn mend_checkpoint(file: &mut [u8]) {
    let half = file.len() / 2;
    for at in [0, half] {
        let length = get_u32(file, at + 8).map(|length| length as usize);
        mend(file, at, length);
    }
}

fn mend_index(bytes: &mut [u8]) {
    let mut at = 0;
    while let Some(length) = get_u32(bytes, at + 16) {
        mend(bytes, at, Some(length as usize));
        at += (length as usize).max(1);
    }
}

/// A group header and the records behind it. Returns where the records end.
fn mend_group(bytes: &mut [u8]) {
    mend(bytes, 0, Some(GROUP_HEADER_BYTES));
    let length = get_u32(bytes, 40).unwrap_or(0) as usize;
    let end = GROUP_HEADER_BYTES.saturating_add(length).min(bytes.len());
    mend_records(bytes.get_mut(..end).unwrap_or_default(), GROUP_HEADER_BYTES);
}

fn mend_records(bytes: &mut [u8], from: usize) {
    let mut at = from;
    while let Some(word) = get_u32(bytes, at + 8) {
        if word >> 28 == 0 {
            // No record: room that was never written.
            at += RECORD_ALIGN;
            continue;
        }
        let length = (word & ((1 << 28) - 1)) as usize;
        let body = at + RECORD_HEADER_BYTES;
        if let Some(body) = bytes.get(body..body + length) {
            let crc = crc32c(body);
            put_u32(bytes, at + 12, crc);
        }
        mend(bytes, at, Some(RECORD_HEADER_BYTES));
        at += round_up((RECORD_HEADER_BYTES + length) as u64, RECORD_ALIGN as u64) as usize;
    }
}

fn mend_segment(file: &mut [u8]) {
    mend_segment_header(file.get_mut(..BLOCK).unwrap_or_default());
    let mut at = BLOCK;
    while let Some(magic) = get_u32(file, at + 4) {
        let length = get_u32(file, at + 40).unwrap_or(0) as usize;
        if magic != u32::from_le_bytes(*b"PHGR") {
            at += BLOCK;
            continue;
        }
        mend_group(file.get_mut(at..).unwrap_or_default());
        let bytes = (GROUP_HEADER_BYTES + length) as u64;
        at += round_up(bytes, BLOCK as u64) as usize;
    }
}

fn mend_log(file: &mut [u8]) {
    mend(file, 0, Some(32));
    mend_records(file, LOG_DATA_AT as usize);
}

fn dir() -> PathBuf {
    PathBuf::from("/store")
}

fn options() -> Options {
    Options {
        block_bytes: BLOCK as u32,
        io: IoMode::Buffered,
        journal_reserve_bytes: 0,
        ledger_reserve_bytes: 0,
        segment_bytes_first: 16 << 10,
        segment_bytes: 32 << 10,
        entry_bytes_max: 8 << 10,
        preallocate: Preallocate::Reserve,
        compact_bytes_per_s: u64::MAX,
        write_cache_bytes: 64 << 10,
        entry_log_bytes: 64 << 10,
        read_cache_bytes: 64 << 10,
        salvage: true,
        ..Options::default()
    }
}

/// The files that changes are made to, in order.
fn files(fs: &FaultFs) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for dir in ["journal", "ledgers"].map(|name| dir().join(name)) {
        let names = fs.mount().list(&dir).expect("memory");
        files.extend(names.iter().map(|name| dir.join(name)));
    }
    files.sort_unstable();
    files
}

/// A store with every kind of file, the same each time; its process was killed.
fn make_store() -> FaultFs {
    let fs = FaultFs::new(1);
    for (name, role) in [("journal", Role::Journal), ("ledgers", Role::Ledgers)] {
        let superblock = Superblock {
            block_bytes: BLOCK as u32,
            store_id: STORE_ID,
            role,
            number: 0,
        };
        write(&fs, &dir().join(name).join(VERSION), &superblock.encode());
    }
    let mut manual = Manual::open(fs.mount(), &dir(), options()).expect("a new store");
    for round in 0..3 {
        for durability in [Durability::Sync, Durability::Bypass] {
            let storage = Arc::clone(&manual.storage);
            let created = manual.run(storage.create(CreateOptions {
                durability,
                ..CreateOptions::default()
            }));
            let writer = created.expect("room in a new store");
            for length in [1, 100, 700] {
                writer
                    .append(Bytes::from(vec![7; length]))
                    .expect("room in a new store");
            }
            if round == 1 {
                manual.run(writer.close()).expect("room in a new store");
            }
        }
        manual.settle();
        if round < 2 {
            manual.pass(61_000_000_000);
            manual.settle();
            // Another start, another entry log.
            drop(manual);
            fs.restart();
            manual = open(&fs).expect("a store that was killed");
        }
    }
    drop(manual);
    fs.restart();
    fs
}

fn open(fs: &FaultFs) -> Option<Manual> {
    Manual::open(fs.mount(), &dir(), options()).ok()
}

fn write(fs: &FaultFs, path: &Path, bytes: &[u8]) {
    let file = fs.mount().open(path, OpenHow::CREATE).expect("memory");
    file.set_len(bytes.len() as u64).expect("memory");
    file.write_all_at(bytes, 0).expect("memory");
}

fn change(fs: &FaultFs, data: &[u8], mended: bool) {
    let files = files(fs);
    for change in data.as_chunks::<CHANGE_BYTES>().0 {
        let [file, kind, place @ .., _, _, _, _] = change;
        let Some(path) = files.get(usize::from(*file) % files.len()) else {
            continue;
        };
        let Some(mut bytes) = fs.bytes_of(path) else {
            continue;
        };
        let at = usize::from(u16::from_le_bytes(*place));
        let value = get_u32(change, 4).unwrap_or(0);
        match kind % 4 {
            0 => put(&mut bytes, at, &value.to_le_bytes()),
            1 => put(&mut bytes, at, &value.to_le_bytes()[..1]),
            2 => put(
                &mut bytes,
                at,
                &(u64::from(value) << 32 | 0xffff_ffff).to_le_bytes(),
            ),
            _ => bytes.truncate(at),
        }
        write(fs, path, &bytes);
    }
    for path in files.iter().filter(|_| mended) {
        let Some(mut bytes) = fs.bytes_of(path) else {
            continue;
        };
        match path.extension().and_then(|ending| ending.to_str()) {
            Some(SEGMENT) => mend_segment(&mut bytes),
            Some(LOG) => mend_log(&mut bytes),
            Some(INDEX) => mend_index(&mut bytes),
            _ if path.ends_with(CHECKPOINT) => {
                mend_checkpoint(&mut bytes);
                // Both copies, or the whole one would hide the other.
                let half = bytes.len() / 2;
                bytes.copy_within(..half, half);
            }
            _ => mend_superblock(&mut bytes),
        }
        write(fs, path, &bytes);
    }
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    let end = bytes.len().min(at + value.len());
    if let Some(room) = bytes.get_mut(at..end) {
        room.copy_from_slice(value.get(..room.len()).unwrap_or_default());
    }
}

fn use_store(fs: &FaultFs) {
    if let Ok(offline) = Offline::open_with(fs.mount(), &dir(), &options(), Access::Look) {
        // Errors are answers as well.
        drop(offline.check(&mut |_| {}));
    }
    let Some(mut manual) = open(fs) else { return };
    let storage = Arc::clone(&manual.storage);
    let listed = manual.run(storage.list()).unwrap_or_default();
    for id in listed {
        let mut next = 0;
        for _ in 0..READS_MAX {
            match manual.run(storage.read(id, EntryId(next), 10, 4096)) {
                Ok(found) => match found.last() {
                    Some(last) => next = last.id.0 + 1,
                    None => break,
                },
                Err(_) => next += 1,
            }
        }
        drop(manual.run(storage.recover(id)));
    }
    if let Ok(writer) = manual.run(storage.create(CreateOptions::default())) {
        drop(writer.append(Bytes::from_static(b"more")));
    }
    manual.settle();
    manual.run(storage.shutdown());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_store_has_every_kind_of_file_and_stays_what_it_is_when_mended() {
        let fs = make_store();
        let bytes = |fs: &FaultFs| files(fs).iter().map(|path| fs.bytes_of(path)).collect::<Vec<_>>();
        let before = bytes(&fs);
        let kinds = |ending| {
            let has = |path: &&PathBuf| path.extension().is_some_and(|found| found == ending);
            files(&fs).iter().filter(has).count()
        };
        assert_eq!([SEGMENT, LOG, INDEX].map(|ending| kinds(ending) > 0), [true; 3]);
        assert!(kinds(LOG) > 1, "{:?}", files(&fs));
        change(&fs, &[], true);
        for ((path, before), after) in files(&fs).iter().zip(before).zip(bytes(&fs)) {
            let (before, after) = (before.expect("a file"), after.expect("a file"));
            let differs = before.iter().zip(&after).position(|(one, other)| one != other);
            assert_eq!(
                differs,
                None,
                "mending changes nothing that was whole: {}",
                path.display()
            );
        }
        assert!(open(&fs).is_some());
    }

    /// The fixtures show the format as it is, and are where the fuzzer begins.
    #[test]
    fn the_fixtures_are_what_is_written_today() {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/storage");
        for (name, bytes) in examples() {
            let path = dir.join(name);
            if std::env::var_os("PHAROS_WRITE_FIXTURES").is_some() {
                std::fs::write(&path, &bytes).expect("a directory to write to");
            }
            let stored = std::fs::read(&path).unwrap_or_default();
            assert!(
                stored == bytes,
                "{} differs; PHAROS_WRITE_FIXTURES=1 writes it",
                path.display()
            );
            any_format(&bytes);
        }
    }

    #[test]
    fn changed_stores_open_or_say_why_not() {
        store(&[]);
        // Every file, some places, an absurd number each.
        for file in 0..files(&make_store()).len() as u8 {
            for place in [8u16, 16, 24, 40, 64, 72, 96, 100, 528, 560, 4112] {
                for value in [0, 1, 0x00ff_ffff, u32::MAX] {
                    let mut change = vec![file, 2];
                    change.extend(place.to_le_bytes());
                    change.extend(value.to_le_bytes());
                    store(&change);
                }
            }
        }
    }
}
