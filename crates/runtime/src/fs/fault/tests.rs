//! Tests of the effects that the faulty file system may and may not have.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::world::SECTOR;
use super::*;
use crate::fs::{AlignedBuf, DIRECT_ALIGN, is_no_space};

const DIR: &str = "/d";

fn after_crash(seed: u64, sync: bool, sync_dir: bool) -> Option<Vec<u8>> {
    let fs = FaultFs::new(seed);
    let path = Path::new(DIR).join("f");
    let file = fs.mount().open(&path, OpenHow::CREATE).unwrap();
    file.write_all_at(&[7; 2000], 0).unwrap();
    if sync {
        file.sync_data().unwrap();
    }
    if sync_dir {
        fs.mount().sync_dir(Path::new(DIR)).unwrap();
    }
    fs.crash();
    assert!(file.read_at(&mut [0], 0).is_err(), "old handles are dead");
    fs.bytes_of(&path)
}

#[test]
fn what_was_synced_survives_and_the_rest_may_not() {
    let (mut lost_name, mut lost_bytes, mut torn) = (0, 0, 0);
    for seed in 0..200 {
        assert_eq!(after_crash(seed, true, true), Some(vec![7; 2000]), "seed {seed}");
        lost_name += u32::from(after_crash(seed, true, false).is_none());
        let bytes = after_crash(seed, false, true).unwrap();
        lost_bytes += u32::from(bytes.is_empty());
        torn += u32::from(!bytes.is_empty() && bytes != [7; 2000]);
    }
    assert!(
        lost_name > 20 && lost_bytes > 20 && torn > 20,
        "{lost_name} {lost_bytes} {torn}"
    );
}

#[test]
fn the_same_seed_crashes_the_same_way() {
    for seed in 0..50 {
        assert_eq!(after_crash(seed, false, false), after_crash(seed, false, false));
    }
}

#[test]
fn it_dies_when_told_and_fills_up_and_fails_a_sync() {
    let fs = FaultFs::new(1);
    let path = Path::new(DIR).join("f");
    let file = fs.mount().open(&path, OpenHow::CREATE).unwrap();
    fs.set_bytes_max(Some(100));
    let full = file.write_all_at(&[1; 101], 0).unwrap_err();
    assert!(is_no_space(&full));
    file.write_all_at(&[1; 100], 0).unwrap();
    fs.fail_sync_in(1);
    file.sync_data().unwrap();
    assert!(file.sync_data().is_err());
    file.sync_data().unwrap();
    fs.die_in(1);
    file.write_all_at(&[2], 0).unwrap();
    assert!(file.write_all_at(&[3], 0).is_err());
    assert!(fs.is_dead() && file.sync_data().is_err());
}

fn file_on(fs: &FaultFs, name: &str) -> Arc<dyn FsFile> {
    fs.mount().open(&path(name), OpenHow::CREATE).unwrap()
}

fn path(name: &str) -> PathBuf {
    Path::new(DIR).join(name)
}

/// A synced file of these bytes.
fn synced(fs: &FaultFs, name: &str, bytes: &[u8]) -> Arc<dyn FsFile> {
    let file = file_on(fs, name);
    file.write_all_at(bytes, 0).unwrap();
    file.sync_data().unwrap();
    fs.mount().sync_dir(Path::new(DIR)).unwrap();
    file
}

fn read(file: &Arc<dyn FsFile>, bytes: usize) -> Vec<u8> {
    let mut buf = vec![0; bytes];
    let count = file.read_at(&mut buf, 0).unwrap();
    buf.truncate(count);
    buf
}

#[test]
fn a_failed_sync_loses_what_was_unsynced_and_no_later_one_brings_it_back() {
    let (mut whole, mut in_part) = (0, 0);
    for seed in 0..100 {
        let fs = FaultFs::new(seed);
        let file = synced(&fs, "f", &[1; 4 * SECTOR]);
        file.write_all_at(&[2; 4 * SECTOR], 0).unwrap();
        fs.fail_sync_in(0);
        assert_eq!(
            file.sync_data().unwrap_err().kind(),
            io::Error::from(rustix::io::Errno::IO).kind()
        );
        file.sync_data().unwrap();
        assert_eq!(read(&file, 9999), [2; 4 * SECTOR], "the page cache still has it");
        if seed % 2 == 0 {
            fs.drop_caches();
        } else {
            fs.crash();
        }
        let left = fs.bytes_of(&path("f")).unwrap();
        whole += u32::from(left == [1; 4 * SECTOR]);
        in_part += u32::from(left.contains(&1) && left.contains(&2));
    }
    assert!(whole > 20 && in_part > 20, "{whole} {in_part}");

    // A gentle device has it wait for the next sync.
    let fs = FaultFs::gentle(1);
    let file = synced(&fs, "f", &[1]);
    file.write_all_at(&[2], 0).unwrap();
    fs.fail_sync_in(0);
    assert!(file.sync_data().is_err());
    file.sync_data().unwrap();
    fs.crash();
    assert_eq!(fs.bytes_of(&path("f")).unwrap(), [2]);
}

#[test]
fn every_call_can_be_refused_in_every_way() {
    use FaultOp::{
        Allocate, Create, CreateDir, List, Lock, Open, Read, Remove, Rename, SetLen, SyncDir, SyncFile, Write,
    };
    let call = |fs: &FaultFs, op: FaultOp| -> io::Result<()> {
        let mount = fs.mount();
        let file = || file_on(fs, "a");
        match op {
            Open => mount.open(&path("a"), OpenHow::READ).map(drop),
            Create => mount.open(&path("new"), OpenHow::CREATE).map(drop),
            Read => file().read_at(&mut [0; 4], 0).map(drop),
            Write => file().write_all_at(&[9; 4], 0),
            SetLen => file().set_len(7),
            Allocate => file().allocate(99),
            SyncFile => file().sync_data(),
            Rename => mount.rename(&path("a"), &path("b")),
            Remove => mount.remove(&path("a")),
            List => mount.list(Path::new(DIR)).map(drop),
            CreateDir => mount.create_dir_all(Path::new(DIR)),
            SyncDir => mount.sync_dir(Path::new(DIR)),
            Lock => mount.lock(&path("L")).map(drop),
        }
    };
    let ops = [
        Open, Create, Read, Write, SetLen, Allocate, SyncFile, Rename, Remove, List, CreateDir, SyncDir, Lock,
    ];
    for op in ops {
        for fault in [Fault::Io, Fault::NoSpace, Fault::TooManyFiles] {
            let fs = FaultFs::new(1);
            synced(&fs, "a", &[1; 8]);
            // Another kind of call, and another place, are not concerned.
            fs.plan(Plan::next(op, fault, 0).under(Path::new("/elsewhere")));
            fs.plan(Plan::next(op, fault, 1));
            let told = || fs.counts().hits_of(op, fault);
            if !matches!(op, Create | Rename | Remove) {
                call(&fs, op).unwrap();
                assert_eq!(told(), 0, "{op:?}");
            } else {
                fs.forget_plans();
                fs.plan(Plan::one_in(op, fault, 1).under(Path::new(DIR)));
            }
            let error = call(&fs, op).unwrap_err();
            assert_eq!(is_no_space(&error), fault == Fault::NoSpace, "{op:?} {error}");
            assert_eq!(told(), 1);
            fs.forget_plans();
            call(&fs, op).unwrap();
        }
    }
}

#[test]
fn a_probability_is_the_seeds() {
    let hits = |seed: u64| {
        let fs = FaultFs::new(seed);
        fs.plan(Plan::one_in(FaultOp::Write, Fault::NoSpace, 4));
        let file = file_on(&fs, "f");
        (0..100)
            .map(|n| file.write_all_at(&[1; 9], n).is_err())
            .collect::<Vec<_>>()
    };
    assert_eq!(hits(1), hits(1));
    assert_ne!(hits(1), hits(2));
    let count = hits(3).iter().filter(|hit| **hit).count();
    assert!((10..45).contains(&count), "{count}");
}

#[test]
fn a_write_that_fails_may_be_done_in_part() {
    let mut parts = std::collections::BTreeSet::new();
    for seed in 0..50 {
        let fs = FaultFs::new(seed);
        let file = synced(&fs, "f", &[1; 16]);
        fs.plan(Plan::next(FaultOp::Write, Fault::NoSpace, 0));
        file.write_all_at(&[2; 16], 0).unwrap_err();
        parts.insert(read(&file, 16).iter().filter(|byte| **byte == 2).count());
    }
    assert!(parts.len() > 10, "{parts:?}");
    let fs = FaultFs::new(1);
    let file = file_on(&fs, "f");
    fs.set_bytes_max(Some(100));
    assert!(is_no_space(&file.write_all_at(&[1; 120], 0).unwrap_err()));
    assert_eq!(file.len().unwrap(), 100, "what fits is written");
    assert!(is_no_space(&file.allocate(101).unwrap_err()));
    assert_eq!((fs.counts().refused_bytes, fs.counts().partial_writes), (2, 1));
}

#[test]
fn files_open_at_once_have_a_limit() {
    let fs = FaultFs::new(1);
    let mount = fs.mount();
    fs.set_handles_max(Some(2));
    let first = file_on(&fs, "a");
    let lock = mount.lock(&path("L")).unwrap().unwrap();
    assert_eq!(fs.handles(), 2);
    for refused in [
        mount.open(&path("a"), OpenHow::READ).map(drop),
        mount.open(&path("b"), OpenHow::CREATE).map(drop),
        mount.list(Path::new(DIR)).map(drop),
        mount.sync_dir(Path::new(DIR)),
        mount.lock(&path("M")).map(drop),
    ] {
        assert_eq!(refused.unwrap_err().raw_os_error(), Some(24));
    }
    first.write_all_at(&[1], 0).unwrap();
    drop(lock);
    drop(mount.open(&path("a"), OpenHow::READ).unwrap());
    mount.sync_dir(Path::new(DIR)).unwrap();
    fs.crash();
    drop(first);
    assert_eq!(fs.handles(), 0, "those of the old life count no more");
}

#[test]
fn names_survive_in_any_order_and_a_rename_whole_or_not_at_all() {
    let (mut only_later, mut neither_old) = (0, 0);
    for seed in 0..600 {
        let fs = FaultFs::new(seed);
        let mount = fs.mount();
        synced(&fs, "kept", &[1]);
        synced(&fs, "renamed", &[2]);
        drop(file_on(&fs, "first"));
        drop(file_on(&fs, "second"));
        mount.rename(&path("renamed"), &path("kept")).unwrap();
        // Follows the rename: not without it.
        file_on(&fs, "renamed").write_all_at(&[3], 0).unwrap();
        fs.crash();
        let has = |name: &str| fs.bytes_of(&path(name));
        only_later += u32::from(has("first").is_none() && has("second").is_some());
        match (has("kept").unwrap()[0], has("renamed")) {
            (1, Some(old)) => assert_eq!(old, [2], "seed {seed}"),
            (2, new) => neither_old += u32::from(new.is_some()),
            other => panic!("seed {seed}: half a rename: {other:?}"),
        }
    }
    assert!(only_later > 50 && neither_old > 50, "{only_later} {neither_old}");
    let gentle = |seed| {
        let fs = FaultFs::gentle(seed);
        drop((file_on(&fs, "first"), file_on(&fs, "second")));
        fs.crash();
        fs.paths().len() != 1 || fs.paths() == [path("first")]
    };
    assert!((0..100).all(gentle), "gently the order is kept");
}

#[test]
fn sectors_are_torn() {
    let torn = |fs: FaultFs| {
        let file = synced(&fs, "f", &[1; 8 * SECTOR]);
        file.write_all_at(&[2; 8 * SECTOR], 0).unwrap();
        fs.crash();
        let left = fs.bytes_of(&path("f")).unwrap();
        let mixed = left
            .chunks(SECTOR)
            .filter(|sector| sector.iter().any(|byte| *byte != sector[0]));
        mixed.count()
    };
    assert!((0..100).any(|seed| torn(FaultFs::new(seed)) > 1));
    assert!((0..100).all(|seed| torn(FaultFs::gentle(seed)) <= 1));
}

#[test]
fn lost_and_misdirected_writes_are_seen_in_the_cache_and_not_on_the_device() {
    for direct in [false, true] {
        for fault in [Fault::Lost, Fault::Misdirected] {
            let fs = FaultFs::new(7);
            synced(&fs, "f", &[1; 2 * DIRECT_ALIGN]);
            synced(&fs, "other", &[5; 2 * DIRECT_ALIGN]);
            let how = OpenHow::WRITE.direct(direct);
            let file = fs.mount().open(&path("f"), how).unwrap();
            fs.plan(Plan::next(FaultOp::Write, fault, 0));
            let mut buf = AlignedBuf::zeroed(DIRECT_ALIGN);
            buf.bytes_mut().fill(2);
            file.write_all_at(buf.bytes(), 0).unwrap();
            file.sync_data().unwrap();
            let seen = fs.bytes_of(&path("f")).unwrap();
            if !direct {
                assert_eq!(seen[..DIRECT_ALIGN], [2; DIRECT_ALIGN], "the page cache has it");
            }
            fs.drop_caches();
            let device = [
                fs.bytes_of(&path("f")).unwrap(),
                fs.bytes_of(&path("other")).unwrap(),
            ]
            .concat();
            assert!(device[..SECTOR] != [2; SECTOR], "it is not where it was to be");
            let found = device.contains(&2);
            assert_eq!(found, fault == Fault::Misdirected);
            fs.crash();
            let after = [
                fs.bytes_of(&path("f")).unwrap(),
                fs.bytes_of(&path("other")).unwrap(),
            ]
            .concat();
            assert!(device == after);
        }
    }
}

#[test]
fn a_lost_sync_is_answered_and_nothing_is_there() {
    let fs = FaultFs::new(3);
    let file = synced(&fs, "f", &[1; 8]);
    file.write_all_at(&[2; 8], 0).unwrap();
    fs.plan(Plan::next(FaultOp::SyncFile, Fault::Lost, 0));
    file.sync_data().unwrap();
    fs.crash();
    assert_eq!(fs.bytes_of(&path("f")).unwrap(), [1; 8]);
}

#[test]
fn a_range_that_cannot_be_read_can_be_when_it_was_written_again() {
    let fs = FaultFs::new(3);
    let file = synced(&fs, "f", &[1; 100]);
    assert!(fs.fail_range(&path("f"), 10, 20));
    assert!(!fs.fail_range(&path("g"), 10, 20));
    assert_eq!(file.read_at(&mut [0; 10], 0).unwrap(), 10);
    assert!(file.read_at(&mut [0; 11], 0).is_err());
    fs.crash();
    let file = file_on(&fs, "f");
    assert!(file.read_at(&mut [0; 1], 19).is_err());
    assert_eq!(file.read_at(&mut [0; 100], 20).unwrap(), 80);
    file.write_all_at(&[2; 10], 10).unwrap();
    assert_eq!(read(&file, 11)[10], 2);
}
