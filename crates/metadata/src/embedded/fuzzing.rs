//! The format as a fuzzer sees it: bytes that may have any origin.
//!
//! Random bytes rarely have the right checksum, so each check runs twice: on the bytes as they are, and on bytes whose
//! checksums were put right. A disk does not do that, but a bug of another release can, and it is what reaches the code
//! behind the checksums.
//!
//! Always true: a check ends by returning, or it has found a bug.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use pharos_runtime::fs::{FaultFs, OpenHow};

use super::decode::decode;
use super::format::{
    BLOCK, DATA_AT, GROUP_HEADER_BYTES, GroupHeader, HEADER_BYTES, Header, RECORD_HEADER_BYTES, crc32c,
    decode_records, get_u32, push_record, put_u32,
};
use super::witness::Beside;
use super::{Embedded, Manual, Options};
use crate::{Expect, MetadataStore as _};

const DIR: &str = "/data/metadata";
const WITNESS: &str = "/data/ledgers/METADATA";
const FILES: [&str; 3] = ["/data/metadata/copy-1", "/data/metadata/copy-2", WITNESS];
/// Bytes of an input that say one change.
const CHANGE_BYTES: usize = 8;
/// Bytes of a witness that its checksum goes over, with it.
const WITNESS_BYTES: usize = 48;

/// A header, then a group with its records, as a file has them; and all of it part by part.
pub fn any_format(data: &[u8]) {
    let mut mended = data.to_vec();
    mend(&mut mended);
    for file in [data, &mended] {
        decode(file, true, &mut drop);
        if let Ok(header) = Header::decode(file) {
            assert_eq!(Header::decode(&header.encode()), Ok(header));
        }
        let Some((group, raw)) = GroupHeader::decode(file, DATA_AT) else {
            continue;
        };
        let Some(records) = decode_records(group.store_id, group.records, raw) else {
            continue;
        };
        let mut again = vec![0; GROUP_HEADER_BYTES];
        for record in &records {
            let value = record.value.as_deref();
            push_record(&mut again, &record.key, value, record.version, record.crc);
        }
        let again = [vec![0; DATA_AT as usize], group.finish(again)].concat();
        let (found, raw) = GroupHeader::decode(&again, DATA_AT).expect("it was just written");
        assert_eq!(found, group);
        assert_eq!(decode_records(group.store_id, group.records, raw), Some(records));
    }
}

/// A small store of which some bytes were changed: looked at, opened beside its ledgers or alone, read, written to and stopped.
///
/// `data`: changes of 8 bytes each: file, kind, place (2), value (4).
pub fn store(data: &[u8]) {
    let made = make_store();
    for mended in [false, true] {
        let fs = made.snapshot();
        change(&fs, data, mended);
        for beside in [Some(false), Some(true), None] {
            use_store(&fs.snapshot(), beside);
        }
    }
}

fn options(accept: Option<bool>) -> Options {
    Options {
        reserve_bytes: 0,
        beside: accept.map(|accept| Beside {
            witness: PathBuf::from(WITNESS),
            has_ledgers: true,
            next_ledger: 9,
            accept,
        }),
        ..Options::default()
    }
}

/// A store with a snapshot and groups after it, the same each time but for its id; its process was killed.
fn make_store() -> FaultFs {
    let fs = FaultFs::new(1);
    fs.mount()
        .create_dir_all(Path::new("/data/ledgers"))
        .expect("memory");
    for life in 0..2 {
        let mut options = options(Some(false));
        if let Some(beside) = options.beside.as_mut().filter(|_| life == 0) {
            (beside.has_ledgers, beside.next_ledger) = (false, 0);
        }
        let mut store = Manual::open(&*fs.mount(), Path::new(DIR), &options).expect("a new store");
        for number in 0..5 {
            write_one(&mut store, number * 40);
        }
        drop(store);
        fs.restart();
    }
    fs
}

/// Writes one value, whatever the outcome.
fn write_one(store: &mut Manual, bytes: usize) {
    let call = Arc::clone(&store.store);
    let key = format!("key/{bytes}");
    let value = Bytes::from(vec![7; bytes]);
    let _ = store.run(async move { call.put(&key, value, Expect::Any).await });
    let call = Arc::clone(&store.store);
    let _ = store.run(async move { call.delete("key/40", Expect::Any).await });
}

fn use_store(fs: &FaultFs, accept: Option<bool>) {
    let options = options(accept);
    let dir = Path::new(DIR);
    let _ = Embedded::look(&*fs.mount(), dir, None, options.beside.as_ref());
    for file in FILES {
        decode(&fs.bytes_of(Path::new(file)).unwrap_or_default(), true, &mut drop);
    }
    let Ok(mut store) = Manual::open(&*fs.mount(), dir, &options) else {
        return;
    };
    write_one(&mut store, 100);
    let call = Arc::clone(&store.store);
    let before = store.run(async move { call.scan("").await });
    let call = Arc::clone(&store.store);
    store.run(async move { call.shutdown().await });
    drop(store);
    fs.restart();
    let mut again = Manual::open(&*fs.mount(), dir, &options).expect("it was open and was stopped");
    let call = Arc::clone(&again.store);
    let after = again.run(async move { call.scan("").await });
    let items =
        |found: Result<Vec<crate::Item>, _>| found.map_err(|error: crate::ReadError| error.to_string());
    let (before, after) = (items(before), items(after));
    assert_eq!(format!("{before:?}"), format!("{after:?}"));
}

fn change(fs: &FaultFs, data: &[u8], mended: bool) {
    for change in data.as_chunks::<CHANGE_BYTES>().0 {
        let [file, kind, place @ .., _, _, _, _] = change;
        let path = Path::new(FILES[usize::from(*file) % FILES.len()]);
        let mut bytes = fs.bytes_of(path).unwrap_or_default();
        let at = usize::from(u16::from_le_bytes(*place));
        let value = change.get(4..).unwrap_or_default();
        match kind % 4 {
            0 => put(&mut bytes, at, value),
            1 => put(&mut bytes, at, value.get(..1).unwrap_or_default()),
            2 => put(&mut bytes, at, &[value, &[0xff; 4]].concat()),
            _ => bytes.truncate(at),
        }
        write(fs, path, &bytes);
    }
    for path in FILES.map(Path::new).into_iter().filter(|_| mended) {
        let mut bytes = fs.bytes_of(path).unwrap_or_default();
        mend(&mut bytes);
        write(fs, path, &bytes);
    }
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    let end = bytes.len().min(at + value.len());
    if let Some(room) = bytes.get_mut(at..end) {
        room.copy_from_slice(value.get(..room.len()).unwrap_or_default());
    }
}

fn write(fs: &FaultFs, path: &Path, bytes: &[u8]) {
    let file = fs.mount().open(path, OpenHow::CREATE).expect("memory");
    file.set_len(bytes.len() as u64).expect("memory");
    file.write_all_at(bytes, 0).expect("memory");
}

/// Puts the checksums of a file right: those of headers or a witness, of records, then of their groups.
fn mend(file: &mut [u8]) {
    let is_witness = (file.len() as u64) <= DATA_AT;
    let bytes = if is_witness { WITNESS_BYTES } else { HEADER_BYTES };
    for at in [0, BLOCK as usize] {
        mend_at(file, at, bytes);
    }
    let mut at = DATA_AT as usize;
    while at < file.len() {
        if get_u32(file, at + 4) == Some(u32::from_le_bytes(*b"PHMG")) {
            let bytes = get_u32(file, at + 8).unwrap_or(0) as usize;
            let store_id = file.get(at + 16..at + 24).map(<[u8]>::to_vec).unwrap_or_default();
            let end = at.saturating_add(bytes).min(file.len());
            if let Some(records) = file
                .get_mut(at..end)
                .and_then(|group| group.get_mut(GROUP_HEADER_BYTES..))
            {
                mend_records(records, &store_id);
            }
            mend_at(file, at, bytes);
        }
        at += BLOCK as usize;
    }
}

fn mend_at(file: &mut [u8], at: usize, bytes: usize) {
    let end = at.saturating_add(bytes);
    let Some(part) = file.get_mut(at..end).filter(|part| part.len() > 4) else {
        return;
    };
    if part.iter().any(|byte| *byte != 0) {
        let crc = crc32c(&[part.get(4..).unwrap_or_default()]);
        put_u32(part, 0, crc);
    }
}

fn mend_records(mut records: &mut [u8], store_id: &[u8]) {
    while records.len() >= RECORD_HEADER_BYTES {
        let key = records
            .get(6..8)
            .map_or(0, |key| usize::from(key[0]) | usize::from(key[1]) << 8);
        let value = get_u32(records, 8).unwrap_or(0) as usize;
        let end = (RECORD_HEADER_BYTES + key)
            .saturating_add(value)
            .min(records.len());
        let (record, rest) = records.split_at_mut(end);
        let crc = crc32c(&[store_id, record.get(4..).unwrap_or_default()]);
        put_u32(record, 0, crc);
        records = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_stores_open_or_say_why_not() {
        let mut number = 0x9e37_79b9_7f4a_7c15_u64;
        for round in 0..400 {
            let mut data = Vec::new();
            for _ in 0..1 + round % 4 {
                number = number.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(round + 1);
                let change = number.to_be_bytes();
                // Near the beginning of a file, where there is something.
                let place = [change[2], change[3] % 12];
                data.extend([&change[..2], &place[..], &change[4..]].concat());
            }
            store(&data);
            any_format(&data);
        }
    }

    #[test]
    fn the_files_of_a_store_are_understood() {
        let fs = make_store();
        for file in FILES {
            let bytes = fs.bytes_of(Path::new(file)).unwrap();
            any_format(&bytes);
            let (mut kinds, mut whole) = (Vec::new(), true);
            let told = decode(&bytes, true, &mut |part| {
                kinds.push(part.kind);
                whole &= part.whole;
            });
            assert!(told && whole, "{file}: {kinds:?}");
            let wanted: &[&str] = match file {
                WITNESS => &["witness"],
                _ => &["header", "snapshot part", "group", "put", "delete"],
            };
            for kind in wanted {
                assert!(kinds.contains(kind), "{file}: {kinds:?}");
            }
        }
    }
}
