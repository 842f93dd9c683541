//! Whose directory it is, and what lies around in it.

use pharos_runtime::fs::{FaultFs, OpenHow};
use pharos_storage::manual::Manual;
use pharos_storage::{OpenStoreError, Options, Storage};

use crate::{Store, dir, options, segment, side_file};

fn refusal(fs: &FaultFs) -> OpenStoreError {
    Manual::open(fs.mount(), &dir(), options()).err().unwrap()
}

#[test]
fn a_directory_in_use_is_refused() {
    let real = tempfile::tempdir().unwrap();
    let first = Storage::open(real.path(), Options::default()).unwrap();
    let second = Storage::open(real.path(), Options::default()).err().unwrap();
    assert!(matches!(second, OpenStoreError::Locked(_)), "{second}");
    drop(first);
    Storage::open(real.path(), Options::default()).unwrap();
}

#[test]
fn an_unknown_version_is_refused_by_name() {
    let fs = Store::new().stop();
    let path = dir().join("VERSION");
    let mut bytes = fs.bytes_of(&path).unwrap();
    for at in [0, 512] {
        bytes[at + 8] = 99;
        let crc = crc_fast::crc32_iscsi(&bytes[at + 4..at + 32]);
        bytes[at..at + 4].copy_from_slice(&crc.to_le_bytes());
    }
    let file = fs.mount().open(&path, OpenHow::WRITE).unwrap();
    file.write_all_at(&bytes, 0).unwrap();
    let error = refusal(&fs);
    assert!(
        matches!(
            error,
            OpenStoreError::Version {
                found: 99,
                known: 1,
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn a_damaged_or_missing_version_file_is_refused() {
    let fs = Store::new().stop();
    let path = dir().join("VERSION");
    fs.flip(&path, 5, 1);
    drop(Store::open(fs.clone()).kill());
    fs.flip(&path, 517, 1);
    assert!(matches!(refusal(&fs), OpenStoreError::Damaged(_)));
    fs.restart();
    fs.mount().remove(&path).unwrap();
    assert!(matches!(refusal(&fs), OpenStoreError::NoVersion(_)));
}

#[test]
fn what_was_never_finished_is_removed() {
    let fs = Store::new().stop();
    for name in [
        "00000009.tmp",
        "00000008.spare",
        "00000007.idx",
        "00000007.tmp-idx",
    ] {
        fs.mount().open(&dir().join(name), OpenHow::CREATE).unwrap();
    }
    let store = Store::open(fs);
    let names = store.fs.mount().list(&dir()).unwrap();
    let known = |name: &String| name.ends_with(".seg") || name == "VERSION" || name == "00000000.idx";
    assert!(names.iter().all(known), "{names:?}");
}

#[test]
fn an_unused_segment_is_never_used_under_the_same_id() {
    let mut store = Store::new();
    store.manual.settle();
    assert!(store.fs.bytes_of(&segment(1)).is_some(), "prepared");
    let store = store.restart();
    assert!(store.fs.bytes_of(&segment(1)).is_none());
    assert!(store.fs.bytes_of(&segment(2)).is_some());
}

#[test]
fn a_clean_stop_leaves_little_and_needs_no_scan() {
    let mut store = Store::new();
    let writer = store.create();
    store.append(&*writer, 100);
    let id = writer.id();
    let fs = store.stop();
    assert!(fs.bytes() < 16 << 10, "{} bytes are left", fs.bytes());
    assert!(fs.bytes_of(&side_file(0)).is_some());
    let mut store = Store::open(fs);
    assert_eq!(store.recover(id).unwrap().entry_count, 1);
}
