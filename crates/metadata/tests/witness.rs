//! The metadata store and the ledgers beside it: a store that is missing, foreign or older is refused, and gives no proof against
//! ledgers; a crash at any step of a start is none of that.

#![expect(clippy::unwrap_used, reason = "a test that fails panics")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use pharos_metadata::{Beside, Expect, Manual, MetadataStore, Mismatch, OpenError, Options};
use pharos_runtime::fs::{FaultFs, OpenHow};

const DIR: &str = "/data/metadata";
const WITNESS: &str = "/data/ledgers/METADATA";

fn options(ledgers: u64, accept: bool) -> Options {
    Options {
        reserve_bytes: 16 << 10,
        beside: Some(Beside {
            witness: PathBuf::from(WITNESS),
            has_ledgers: ledgers > 0,
            next_ledger: ledgers,
            accept,
        }),
        ..Options::default()
    }
}

fn new_fs(seed: u64) -> FaultFs {
    let fs = FaultFs::new(seed);
    fs.mount().create_dir_all(Path::new("/data/ledgers")).unwrap();
    fs.mount().sync_dir(Path::new("/data")).unwrap();
    fs
}

fn open(fs: &FaultFs, ledgers: u64) -> Result<Manual, OpenError> {
    Manual::open(&*fs.mount(), Path::new(DIR), &options(ledgers, false))
}

fn put(store: &mut Manual, count: u64) {
    for number in 0..count {
        let call = Arc::clone(&store.store);
        let key = format!("key/{}", number % 7);
        store
            .run(async move { call.put(&key, Bytes::from("value"), Expect::Any).await })
            .unwrap();
    }
}

fn stop(mut store: Manual) {
    let call = Arc::clone(&store.store);
    store.run(async move { call.shutdown().await });
}

/// A stopped store with something in it, beside ledgers 0 to 4.
fn filled() -> FaultFs {
    let fs = new_fs(1);
    let mut store = open(&fs, 0).unwrap();
    assert!(
        store.store.matches_ledgers().unwrap().covers(0),
        "new beside none"
    );
    put(&mut store, 10);
    stop(store);
    fs.restart();
    fs
}

fn refusal(fs: &FaultFs, ledgers: u64) -> Mismatch {
    match open(fs, ledgers) {
        Err(OpenError::NotOfTheseLedgers { why, witness }) => {
            assert_eq!(witness, Path::new(WITNESS));
            why
        }
        other => panic!("{other:?}"),
    }
}

/// Puts files as they were in `from`; those that were not there go.
fn put_back(fs: &FaultFs, from: &FaultFs, paths: &[&str]) {
    for path in paths.iter().map(Path::new) {
        let _ = fs.mount().remove(path);
        let Some(bytes) = from.bytes_of(path) else {
            continue;
        };
        let file = fs.mount().open(path, OpenHow::CREATE).unwrap();
        file.write_all_at(&bytes, 0).unwrap();
    }
}

const COPIES: [&str; 2] = ["/data/metadata/copy-1", "/data/metadata/copy-2"];

#[test]
fn a_missing_store_is_refused_beside_its_ledgers() {
    let fs = filled();
    for ledgers in [0, 5] {
        let fs = fs.snapshot();
        put_back(&fs, &new_fs(2), &COPIES);
        assert_eq!(refusal(&fs, ledgers), Mismatch::Missing);
        assert!(fs.bytes_of(Path::new(COPIES[0])).is_none(), "nothing was made");
    }
    // Ledgers of a release that had no witness, and no metadata at all.
    assert_eq!(refusal(&new_fs(3), 5), Mismatch::Missing);
}

#[test]
fn a_foreign_store_is_refused() {
    let (fs, other) = (filled(), filled());
    put_back(&fs, &other, &COPIES);
    assert_eq!(refusal(&fs, 5), Mismatch::Foreign);
    put_back(&fs, &new_fs(1), &[WITNESS]);
    assert_eq!(refusal(&fs, 5), Mismatch::NoWitness);
}

/// By the epoch, after a start; by the last group, after a stop; and in a run that was killed, when it is far behind.
#[test]
fn an_older_store_is_refused() {
    let old = filled();
    for (puts, stops) in [(1, true), (0, false), (600, false)] {
        let fs = old.snapshot();
        let mut store = open(&fs, 5).unwrap();
        assert!(store.store.matches_ledgers().unwrap().covers(0));
        let middle = fs.snapshot();
        put(&mut store, puts);
        if stops {
            stop(store);
        }
        fs.restart();
        if puts > 0 {
            let fs = fs.snapshot();
            put_back(&fs, &middle, &COPIES);
            assert_eq!(refusal(&fs, 5), Mismatch::Older, "of the same run");
        }
        let newer = fs.snapshot();
        drop(open(&newer, 5).unwrap());
        newer.restart();
        put_back(&fs, &old, &COPIES);
        assert_eq!(refusal(&fs, 5), Mismatch::Older, "of a run before");
        drop(open(&newer, 5).unwrap());
        newer.restart();
        put_back(&newer, &old, &[WITNESS]);
        assert_eq!(refusal(&newer, 5), Mismatch::LedgersOlder);
    }
}

#[test]
fn what_is_accepted_all_the_same_spares_all_ledgers_that_were_there() {
    let fs = filled();
    put_back(&fs, &new_fs(2), &COPIES);
    let store = Manual::open(&*fs.mount(), Path::new(DIR), &options(5, true)).unwrap();
    let proof = store.store.matches_ledgers().unwrap();
    assert!(!proof.covers(4) && proof.covers(5));
    stop(store);
    for _ in 0..2 {
        fs.restart();
        let store = open(&fs, 9).unwrap();
        assert_eq!(store.store.matches_ledgers().unwrap(), proof, "for good");
    }
    let alone = Manual::open(&*new_fs(1).mount(), Path::new(DIR), &Options::default()).unwrap();
    assert!(alone.store.matches_ledgers().is_none());
}

#[test]
fn a_crash_at_any_step_of_any_start_is_no_mismatch() {
    for seed in 0..1500 {
        let fs = new_fs(seed);
        for life in 0..4 {
            fs.die_in((seed * 7 + life * 13) % 50);
            match open(&fs, 0) {
                Ok(mut store) => {
                    for number in 0..life * 100 {
                        let call = Arc::clone(&store.store);
                        let key = format!("key/{}", number % 5);
                        let value = Bytes::from("value");
                        let _ = store.run(async move { call.put(&key, value, Expect::Any).await });
                    }
                }
                Err(error) => assert!(fs.is_dead(), "seed {seed}: {error:?}"),
            }
            match seed % 4 {
                0 => fs.restart(),
                _ => fs.crash(),
            }
        }
        let store = open(&fs, 0).unwrap_or_else(|error| panic!("seed {seed}: {error:?}"));
        assert!(store.store.matches_ledgers().is_some());
    }
}

#[test]
fn every_flipped_byte_of_the_witness_is_harmless() {
    let fs = filled();
    for at in 0..fs.bytes_of(Path::new(WITNESS)).unwrap().len() {
        let hurt = fs.snapshot();
        hurt.flip(Path::new(WITNESS), at, 0x20);
        drop(open(&hurt, 5).unwrap());
    }
}
