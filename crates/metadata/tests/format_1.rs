//! A store of the release before this format: taken over, at any crash; damaged ones are refused.

#![expect(clippy::unwrap_used, reason = "a test that fails panics")]

use std::path::{Path, PathBuf};

use bytes::Bytes;
use pharos_metadata::{Embedded, Item, Manual, MetadataStore, OpenError, Options};
use pharos_runtime::fs::{FaultFs, OpenHow};

const OLD: &str = "/data/metadata.redb";
const DIR: &str = "/data/metadata";

fn fixture(name: &str) -> Vec<u8> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/metadata/1");
    std::fs::read(dir.join(name)).unwrap()
}

fn options() -> Options {
    Options {
        reserve_bytes: 16 << 10,
        format_1: Some(PathBuf::from(OLD)),
        ..Options::default()
    }
}

/// A file system with that file in it, durably.
fn with(seed: u64, bytes: &[u8]) -> FaultFs {
    let fs = FaultFs::new(seed);
    let mount = fs.mount();
    mount.create_dir_all(Path::new("/data")).unwrap();
    let file = mount.open(Path::new(OLD), OpenHow::CREATE).unwrap();
    file.write_all_at(bytes, 0).unwrap();
    file.sync_data().unwrap();
    mount.sync_dir(Path::new("/data")).unwrap();
    mount.sync_dir(Path::new("/")).unwrap();
    fs
}

fn items(store: &mut Manual) -> Vec<Item> {
    let call = std::sync::Arc::clone(&store.store);
    store.run(async move { call.scan("").await }).unwrap()
}

/// Entries that the program wrote into the fixtures.
fn written() -> Vec<(String, Bytes)> {
    let mut all: Vec<(String, Bytes)> = (0..40u32)
        .filter(|topic| topic % 4 != 0)
        .map(|topic| {
            let key = format!("managed-ledgers/public/default/persistent/topic-{topic}");
            (key, Bytes::from(vec![topic as u8; topic as usize * 13]))
        })
        .collect();
    all.push(("policies/public/default".into(), "retention: kept".into()));
    all.push(("empty".into(), Bytes::new()));
    all.push(("tenants/öffentlich".into(), "{}".into()));
    all.sort();
    all
}

fn pairs(items: Vec<Item>) -> Vec<(String, Bytes)> {
    items.into_iter().map(|item| (item.key, item.value)).collect()
}

#[test]
fn a_directory_of_the_release_before_opens_with_everything() {
    for name in ["metadata.redb", "killed.redb"] {
        let dir = tempfile::tempdir().unwrap();
        let old = dir.path().join("metadata.redb");
        std::fs::write(&old, fixture(name)).unwrap();
        let options = Options {
            format_1: Some(old.clone()),
            ..Options::default()
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for round in 0..2 {
            runtime.block_on(async {
                let store = Embedded::open(&dir.path().join("metadata"), &options).unwrap();
                let items = store.scan("").await.unwrap();
                assert!(items.iter().all(|item| item.version.0 > 0), "versions are kept");
                assert_eq!(pairs(items), written(), "{name}, round {round}");
            });
            assert!(!old.exists());
            assert_eq!(
                std::fs::read(dir.path().join("metadata.redb.migrated")).unwrap(),
                fixture(name)
            );
        }
    }
}

#[test]
fn a_crash_at_any_step_of_the_take_over_loses_nothing() {
    let old = fixture("metadata.redb");
    let mut all = None;
    for seed in 0..400 {
        let fs = with(seed, &old);
        fs.die_in(seed % 40);
        let died = Manual::open(&*fs.mount(), Path::new(DIR), &options()).is_err();
        assert!(died || !fs.is_dead());
        if seed % 5 == 0 {
            fs.restart();
        } else {
            fs.crash();
        }
        let mut store = Manual::open(&*fs.mount(), Path::new(DIR), &options())
            .unwrap_or_else(|error| panic!("seed {seed}: {error:?}"));
        let found = items(&mut store);
        assert_eq!(&found, all.get_or_insert(found.clone()), "seed {seed}");
        drop(store);
        fs.crash();
        assert!(fs.bytes_of(Path::new(OLD)).is_none(), "seed {seed}");
    }
    assert_eq!(pairs(all.unwrap()), written());
}

/// The damaged file is left as it is.
#[test]
fn a_damaged_one_is_refused_or_the_same() {
    let old = fixture("metadata.redb");
    let (mut refused, mut same) = (0, 0);
    // All of the first pages, where the headers are, and a part of the rest.
    let places = (0..512).chain((512..old.len()).step_by(211));
    // redb trips over its own assertions, which is caught but told.
    std::panic::set_hook(Box::new(|_| {}));
    let looks: Vec<_> = places
        .map(|at| {
            let mut bytes = old.clone();
            bytes[at] ^= 1 << (at % 8);
            let fs = with(1, &bytes);
            let look = Embedded::look(&*fs.mount(), Path::new(DIR), Some(Path::new(OLD)), None);
            assert!(fs.bytes_of(Path::new(OLD)).unwrap() == bytes);
            (at, look)
        })
        .collect();
    let _ = std::panic::take_hook();
    for (at, look) in looks {
        match look {
            Ok(look) => {
                assert_eq!(look.map(|look| pairs(look.items)), Some(written()), "byte {at}");
                same += 1;
            }
            Err(OpenError::Fault(_) | OpenError::UnknownFormat { .. }) => refused += 1,
            Err(error) => panic!("byte {at}: {error:?}"),
        }
    }
    assert!(refused > 20 && same > 20, "{refused} {same}");
}

#[test]
fn one_that_an_older_release_wrote_to_since_is_refused() {
    let fs = with(1, &fixture("metadata.redb"));
    let mut store = Manual::open(&*fs.mount(), Path::new(DIR), &options()).unwrap();
    let call = std::sync::Arc::clone(&store.store);
    store
        .run(async move { call.put("new", Bytes::new(), pharos_metadata::Expect::Any).await })
        .unwrap();
    drop(store);
    fs.restart();
    let mount = fs.mount();
    let file = mount.open(Path::new(OLD), OpenHow::CREATE).unwrap();
    file.write_all_at(&fixture("killed.redb"), 0).unwrap();
    let error = Manual::open(&*mount, Path::new(DIR), &options()).unwrap_err();
    let OpenError::Fault(fault) = error else {
        panic!("{error:?}");
    };
    assert!(
        fault.cause.contains("an older release has written to it"),
        "{fault}"
    );
}
