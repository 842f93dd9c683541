//! Damage at rest: every byte, missing and shortened files, files put back from elsewhere, writes that were lost.
//!
//! One thing that is wrong is harmless, because there are two copies; two things that hit the same group are refused with file
//! and place. Never is there another state, and nothing panics.

#![expect(clippy::unwrap_used, reason = "a test that fails panics")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use pharos_metadata::{Embedded, Expect, Item, Look, Manual, MetadataStore, OpenError, Options};
use pharos_runtime::fs::{Fault, FaultFs, FaultOp, OpenHow, Plan};

const DIR: &str = "/data/metadata";

fn dir() -> &'static Path {
    Path::new(DIR)
}

fn copy(number: u32) -> PathBuf {
    dir().join(format!("copy-{number}"))
}

fn options() -> Options {
    Options {
        reserve_bytes: 16 << 10,
        ..Options::default()
    }
}

fn open(fs: &FaultFs) -> Result<Manual, OpenError> {
    Manual::open(&*fs.mount(), dir(), &options())
}

fn put(store: &mut Manual, key: &str, value: &str) {
    let call = Arc::clone(&store.store);
    let (key, value) = (key.to_owned(), Bytes::from(value.to_owned()));
    store
        .run(async move { call.put(&key, value, Expect::Any).await })
        .unwrap();
}

fn items(store: &mut Manual) -> Vec<Item> {
    let call = Arc::clone(&store.store);
    store.run(async move { call.scan("").await }).unwrap()
}

/// A store with a snapshot and some groups after it. `stop`: it was closed.
fn filled(stop: bool) -> (FaultFs, Vec<Item>) {
    let fs = FaultFs::new(1);
    for life in 0..2 {
        let mut store = open(&fs).unwrap();
        for number in 0..8 {
            put(
                &mut store,
                &format!("life/{life}/{number}"),
                &"value ".repeat(number * 9),
            );
        }
        put(&mut store, "last", &format!("{life}"));
        let all = items(&mut store);
        if life == 1 {
            if stop {
                let call = Arc::clone(&store.store);
                store.run(async move { call.shutdown().await });
            }
            fs.restart();
            return (fs, all);
        }
        // What one copy lacks is written again by the next start, so that there is a snapshot with something in it.
        fs.restart();
        fs.mount().remove(&copy(1)).unwrap();
        let store = open(&fs).unwrap();
        drop(store);
        fs.restart();
        fs.mount().remove(&copy(2)).unwrap();
    }
    unreachable!()
}

fn look(fs: &FaultFs) -> Result<Option<Look>, OpenError> {
    Embedded::look(&*fs.mount(), dir(), None, None)
}

/// Opens it, and once more after that: what was found must be `all`, or a refusal that names a file.
fn is_whole_or_refused(fs: &FaultFs, all: &[Item], what: &str) -> bool {
    let looked = look(fs);
    for round in 0..2 {
        match open(fs) {
            Ok(mut store) => {
                assert!(items(&mut store) == all, "{what}: another state, round {round}");
                assert!(looked.as_ref().unwrap().as_ref().unwrap().items == all, "{what}");
            }
            Err(OpenError::Damaged { file, .. }) => {
                assert!(file.starts_with(dir()), "{what}: {}", file.display());
                assert!(looked.is_err(), "{what}: the look is another one");
                assert_eq!(round, 0, "{what}");
                return false;
            }
            Err(error) => panic!("{what}: {error:?}"),
        }
        fs.restart();
    }
    true
}

#[test]
fn every_flipped_byte_of_a_copy_is_harmless() {
    for stop in [false, true] {
        let (fs, all) = filled(stop);
        for number in [1, 2] {
            let bytes = fs.bytes_of(&copy(number)).unwrap().len();
            let data = bytes.min(16 << 10);
            for at in 0..data {
                let mask = 1 << (at % 8);
                let what = format!("copy {number}, byte {at}, stopped {stop}");
                // What a look reads is what a start takes; every few bytes both are compared.
                if at % 16 == 0 {
                    let hurt = fs.snapshot();
                    hurt.flip(&copy(number), at, mask);
                    assert!(is_whole_or_refused(&hurt, &all, &what), "{what}: refused");
                } else {
                    fs.flip(&copy(number), at, mask);
                    assert!(look(&fs).unwrap().unwrap().items == all, "{what}");
                    fs.flip(&copy(number), at, mask);
                }
            }
        }
    }
}

#[test]
fn the_same_byte_flipped_in_both_copies_is_refused_or_harmless() {
    for stop in [false, true] {
        let (fs, all) = filled(stop);
        let (mut refused, mut harmless) = (0, 0);
        for at in (0..14 << 10).step_by(3) {
            let hurt = fs.snapshot();
            hurt.flip(&copy(1), at, 0x40);
            hurt.flip(&copy(2), at, 0x40);
            match is_whole_or_refused(&hurt, &all, &format!("byte {at}, stopped {stop}")) {
                true => harmless += 1,
                false => refused += 1,
            }
        }
        assert!(refused > 500 && harmless > 500, "{refused} {harmless}");
    }
}

/// A damaged copy loses nothing, not even the last groups: a separate header records that they existed. If both are
/// damaged the store is refused.
#[test]
fn a_missing_shortened_or_emptied_copy_is_harmless_and_both_are_refused() {
    let (fs, all) = filled(false);
    let length = fs.bytes_of(&copy(1)).unwrap().len() as u64;
    let cuts = (0..40).map(|cut| cut * length.min(16 << 10) / 40);
    for cut in cuts.map(Some).chain([None]) {
        for which in [&[1][..], &[2], &[1, 2]] {
            let hurt = fs.snapshot();
            let mount = hurt.mount();
            for number in which {
                match cut {
                    None => mount.remove(&copy(*number)).unwrap(),
                    Some(cut) => mount
                        .open(&copy(*number), OpenHow::WRITE)
                        .unwrap()
                        .set_len(cut)
                        .unwrap(),
                }
            }
            hurt.restart();
            if which.len() == 2 && cut.is_none() {
                // Nothing is left to tell it from a new store but the witness beside the ledgers.
                continue;
            }
            let what = format!("cut at {cut:?} of {which:?}");
            let whole = is_whole_or_refused(&hurt, &all, &what);
            assert!(whole || which.len() == 2, "{what}");
        }
    }
}

/// The last group is damaged in both copies: it was answered, so this is no torn write.
#[test]
fn the_last_group_damaged_in_both_copies_is_refused_by_place() {
    let (fs, _) = filled(false);
    for number in [1, 2] {
        let bytes = fs.bytes_of(&copy(number)).unwrap();
        let last = bytes.windows(4).rposition(|part| part == b"last").unwrap();
        fs.flip(&copy(number), last, 1);
    }
    let Err(OpenError::Damaged {
        file,
        byte_offset,
        what,
    }) = open(&fs)
    else {
        panic!("opens");
    };
    assert!(file.starts_with(dir()) && byte_offset >= 1024, "{what}");
    assert!(what.contains("is in neither copy"), "{what}");
}

#[test]
fn a_copy_put_back_from_before_is_written_again() {
    let (old, _) = filled(true);
    let (fs, _) = (old.snapshot(), ());
    let mut store = open(&fs).unwrap();
    for number in 0..5 {
        put(&mut store, &format!("later/{number}"), "x");
    }
    let all = items(&mut store);
    drop(store);
    fs.restart();
    for number in [1, 2] {
        let hurt = fs.snapshot();
        let bytes = old.bytes_of(&copy(number)).unwrap();
        let file = hurt.mount().open(&copy(number), OpenHow::WRITE).unwrap();
        file.write_all_at(&bytes, 0).unwrap();
        let flaws = look(&hurt).unwrap().unwrap().flaws;
        assert!(flaws.iter().any(|flaw| !flaw.by_crash), "{flaws:?}");
        assert!(is_whole_or_refused(&hurt, &all, "put back"));
        assert_eq!(look(&hurt).unwrap().unwrap().flaws, [], "it is whole again");
    }
}

#[test]
fn copies_of_two_stores_and_in_each_other_s_place_are_refused() {
    let (fs, _) = filled(true);
    let (other, _) = filled(true);
    let first = fs.bytes_of(&copy(1)).unwrap();
    let second = fs.bytes_of(&copy(2)).unwrap();
    let foreign = other.bytes_of(&copy(2)).unwrap();
    for (one, two) in [(&first, &foreign), (&second, &first)] {
        let hurt = fs.snapshot();
        for (number, bytes) in [(1, one), (2, two)] {
            let file = hurt.mount().open(&copy(number), OpenHow::WRITE).unwrap();
            file.write_all_at(bytes, 0).unwrap();
        }
        assert!(matches!(open(&hurt), Err(OpenError::Damaged { .. })));
    }
}

/// A device that answers a write or a sync and does not do it, or does it elsewhere. What is lost in one copy is in the other; a
/// write that lands on the same group of the other copy takes both, which is refused.
#[test]
fn one_lie_of_the_device_is_harmless_or_refused() {
    let (mut noticed, mut refused) = (0, 0);
    for seed in 0..1500 {
        let fs = FaultFs::new(seed);
        let mut store = open(&fs).unwrap();
        for number in 0..6 {
            put(&mut store, &format!("before/{number}"), "value");
        }
        let (op, fault) = [
            (FaultOp::Write, Fault::Lost),
            (FaultOp::Write, Fault::Misdirected),
            (FaultOp::SyncFile, Fault::Lost),
        ][seed as usize % 3];
        fs.plan(Plan::next(op, fault, seed / 3 % 30).under(dir()));
        for number in 0..6 {
            put(
                &mut store,
                &format!("key/{}", number % 4),
                &format!("{seed} {number}"),
            );
        }
        let all = items(&mut store);
        drop(store);
        fs.crash();
        noticed += u64::from(look(&fs).is_ok_and(|look| look.is_some_and(|look| !look.flaws.is_empty())));
        let whole = is_whole_or_refused(&fs, &all, &format!("seed {seed}"));
        assert!(whole || fault == Fault::Misdirected, "seed {seed}");
        refused += u64::from(!whole);
    }
    eprintln!("noticed {noticed}, refused {refused}");
    assert!(noticed > 200 && refused < 50, "{noticed} {refused}");
}

/// A sync that failed shows bytes that the device does not have. After a restart they are written to it before they are relied on.
#[test]
fn what_a_failed_sync_left_is_written_again() {
    for seed in 0..2000 {
        let fs = FaultFs::new(seed);
        let mut store = open(&fs).unwrap();
        for number in 0..12 {
            put(&mut store, &format!("key/{number}"), &"v".repeat(1000));
        }
        fs.fail_sync_in(seed % 7);
        for number in 0..12 {
            let call = Arc::clone(&store.store);
            let key = format!("key/{number}");
            let value = Bytes::from(format!("{seed} {}", "w".repeat(900)));
            let _ = store.run(async move { call.put(&key, value, Expect::Any).await });
        }
        assert!(store.store.fault().is_some());
        let before = items(&mut store);
        drop(store);
        fs.restart();
        let mut store = open(&fs).unwrap();
        let after = items(&mut store);
        let same = |one: &Item| before.iter().any(|other| other == one);
        assert!(
            after.iter().filter(|item| !same(item)).count() <= 1,
            "seed {seed}"
        );
        put(&mut store, "more", "x");
        let all = items(&mut store);
        drop(store);
        fs.crash();
        // Both copies have everything, by themselves: nothing was only read from memory.
        let flaws = look(&fs).unwrap().unwrap().flaws;
        assert!(flaws.iter().all(|flaw| flaw.by_crash), "seed {seed}: {flaws:?}");
        assert!(
            is_whole_or_refused(&fs, &all, &format!("seed {seed}")),
            "seed {seed}"
        );
    }
}
