//! Ownership of a directory, and stray files in it.

use std::path::Path;

use pharos_runtime::fs::{FaultFs, OpenHow};
use pharos_storage::manual::Manual;
use pharos_storage::{OpenStoreError, Options, Storage};

use crate::{Store, dir, journal, ledgers, options, payload, segment};

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

/// The `VERSION` file of a directory, with another version in it.
fn set_version(fs: &FaultFs, dir: &Path, version: u8) {
    let path = dir.join("VERSION");
    let mut bytes = fs.bytes_of(&path).unwrap();
    for at in [0, 512] {
        bytes[at + 8] = version;
        let crc = crc_fast::crc32_iscsi(&bytes[at + 4..at + 32]);
        bytes[at..at + 4].copy_from_slice(&crc.to_le_bytes());
    }
    let file = fs.mount().open(&path, OpenHow::WRITE).unwrap();
    file.write_all_at(&bytes, 0).unwrap();
}

#[test]
fn an_unknown_version_is_refused_by_name() {
    for at in [ledgers(), journal()] {
        let fs = Store::new().stop();
        set_version(&fs, &at, 99);
        let error = refusal(&fs);
        let OpenStoreError::Version {
            dir,
            found: 99,
            known: 2,
        } = &error
        else {
            panic!("{error}");
        };
        assert_eq!(*dir, at);
    }
}

/// As the engine before this one wrote it: `VERSION` beside its segments, in the directory that is now the logs'.
#[test]
fn a_directory_of_format_version_1_is_refused_by_name() {
    let real = tempfile::tempdir().unwrap();
    let old = real.path().join("ledgers");
    std::fs::create_dir(&old).unwrap();
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/1");
    for entry in std::fs::read_dir(fixture).unwrap().map(Result::unwrap) {
        std::fs::copy(entry.path(), old.join(entry.file_name())).unwrap();
    }
    let error = Storage::open(real.path(), Options::default()).err().unwrap();
    assert!(
        error
            .to_string()
            .ends_with("has format version 1, this program understands version 2"),
        "{error}"
    );
}

#[test]
fn a_damaged_or_missing_version_file_is_refused() {
    let fs = Store::new().stop();
    let path = ledgers().join("VERSION");
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
    for name in ["00000009.tmp", "00000008.spare"] {
        fs.mount().open(&journal().join(name), OpenHow::CREATE).unwrap();
    }
    let store = Store::open(fs);
    let names = store.fs.mount().list(&journal()).unwrap();
    let known = |name: &String| name.ends_with(".seg") || name == "VERSION";
    assert!(names.iter().all(known), "{names:?}");
}

#[test]
fn an_unused_segment_is_never_used_under_the_same_id() {
    let mut store = Store::new();
    store.manual.settle();
    assert!(store.fs.bytes_of(&segment(2)).is_some(), "prepared");
    let store = store.restart();
    assert!(store.fs.bytes_of(&segment(2)).is_none());
    assert!(store.fs.bytes_of(&segment(3)).is_some());
}

#[test]
fn a_clean_stop_leaves_an_empty_journal_and_nothing_to_replay() {
    let no_spares = Options {
        spare_segments: 0,
        ..options()
    };
    let mut store = Store::open_with(FaultFs::new(1), no_spares);
    let writer = store.create();
    store.append(&*writer, 100);
    let id = writer.id();
    let fs = store.stop();
    assert!(fs.bytes() < 24 << 10, "{} bytes are left", fs.bytes());
    assert_eq!(fs.mount().list(&journal()).unwrap(), ["VERSION"]);
    let mut store = Store::open(fs);
    assert_eq!(store.manual.storage.stats().cache_bytes, 0);
    assert_eq!(store.recover(id).unwrap().entry_count, 1);
}

fn with_dirs(journals: &[&str], ledgers: &[&str]) -> Options {
    let paths = |names: &[&str]| names.iter().map(|name| dir().join(name)).collect();
    Options {
        journal_dirs: paths(journals),
        ledger_dirs: paths(ledgers),
        ..options()
    }
}

fn refused(fs: &FaultFs, options: Options) -> String {
    let error = Manual::open(fs.mount(), &dir(), options).err().unwrap();
    fs.restart();
    assert!(matches!(error, OpenStoreError::WrongDirectory { .. }), "{error}");
    error.to_string()
}

/// A store with some ledgers, killed or stopped.
fn grown(fs: FaultFs, options: Options, clean: bool) -> (FaultFs, Vec<pharos_types::LedgerId>) {
    let mut store = Store::open_with(fs, options);
    let mut ids = Vec::new();
    for _ in 0..12 {
        let writer = store.create();
        store.append(&*writer, 100);
        ids.push(writer.id());
    }
    let fs = if clean { store.stop() } else { store.kill() };
    (fs, ids)
}

#[test]
fn directories_are_kept_apart_and_in_order() {
    let (fs, _) = grown(FaultFs::new(1), with_dirs(&["a", "b"], &["x", "y"]), false);
    refused(&fs, with_dirs(&["b", "a"], &["x", "y"]));
    refused(&fs, with_dirs(&["a", "b"], &["y", "x"]));
    refused(&fs, with_dirs(&["a", "x"], &["b", "y"]));
    let (other, _) = grown(fs.clone(), with_dirs(&["c"], &["z"]), false);
    refused(&other, with_dirs(&["c", "b"], &["z"]));
    refused(&other, with_dirs(&["a", "b"], &["new", "y"]));
}

#[test]
fn a_journal_that_is_needed_must_be_there() {
    let (fs, _) = grown(FaultFs::new(1), with_dirs(&["a", "b"], &["x"]), false);
    refused(&fs, with_dirs(&["a"], &["x"]));
    refused(&fs, with_dirs(&["a", "new"], &["x"]));
}

#[test]
fn after_a_clean_stop_journals_may_be_moved_added_and_removed() {
    let (fs, mut all) = grown(FaultFs::new(1), with_dirs(&["a", "b"], &["x"]), true);
    for journals in [&["a"][..], &["new"], &["new", "p", "q"], &["other"]] {
        let (_, ids) = grown(fs.clone(), with_dirs(journals, &["x"]), true);
        all.extend(ids);
    }
    let mut store = Store::open_with(fs, with_dirs(&["other"], &["x"]));
    assert_eq!(store.list(), all);
    for id in all {
        assert_eq!(store.read(id, 0).unwrap().unwrap(), payload(id, 0, 100));
        assert_eq!(store.recover(id).unwrap().entry_count, 1);
    }
}

#[test]
fn ledger_directories_may_be_added_and_not_removed() {
    let (fs, mut all) = grown(FaultFs::new(1), with_dirs(&["a"], &["x"]), true);
    let (fs, ids) = grown(fs, with_dirs(&["a"], &["x", "y"]), true);
    all.extend(ids);
    refused(&fs, with_dirs(&["a"], &["x"]));
    let mut store = Store::open_with(fs, with_dirs(&["a"], &["x", "y"]));
    store.flush();
    for id in all {
        assert_eq!(store.read(id, 0).unwrap().unwrap(), payload(id, 0, 100));
    }
}
