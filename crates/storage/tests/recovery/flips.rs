//! Every byte of a small store flipped in turn: what comes back is what was written, or the caller is told.

use std::path::{Path, PathBuf};

use pharos_ledger::{Durability, ReadError};
use pharos_runtime::fs::FaultFs;
use pharos_storage::OpenStoreError;
use pharos_storage::manual::Manual;
use pharos_types::LedgerId;

use crate::{Store, dir, journal, ledgers, options, payload, segment};

/// A ledger of the store under test: how many entries of 40 bytes, or none when it was deleted.
type Content = Vec<(LedgerId, Option<u64>)>;

/// Part of it is in the logs, part only in the journal.
fn build() -> (Store, Content) {
    let mut store = Store::new();
    let (sealed, open, gone) = (store.create(), store.create(), store.create());
    let relaxed = store.create_with(Durability::Async);
    let bypass = store.create_with(Durability::Bypass);
    for writer in [&sealed, &open, &relaxed, &bypass] {
        store.append(&**writer, 40);
        store.append(&**writer, 40);
    }
    store.flush();
    // Several records in one group as well.
    for writer in [&sealed, &open, &gone, &relaxed] {
        writer
            .append(payload(writer.id(), writer.tail().borrow().durable, 40))
            .unwrap();
    }
    store.manual.settle();
    store.recover(sealed.id()).unwrap();
    store.delete(gone.id());
    // Everything is synced, and said to be.
    store.manual.pass(2_000_000_000);
    store.manual.step_journal(0);
    store.manual.pass(2_000_000_000);
    store.manual.step_journal(0);
    let content = vec![
        (sealed.id(), Some(3)),
        (open.id(), Some(3)),
        (gone.id(), None),
        (relaxed.id(), Some(3)),
        (bypass.id(), Some(2)),
    ];
    (store, content)
}

/// True if everything is as it was written. Panics if something is not and no caller was told.
fn check(fs: FaultFs, content: &Content, what: &str) -> bool {
    let mut store = match Manual::open(fs.mount(), &dir(), options()) {
        Ok(manual) => Store { fs, manual },
        Err(OpenStoreError::Damaged(_)) => return false,
        Err(error) => panic!("{what}: {error}"),
    };
    let told = store.damages() > 0;
    let listed = store.list();
    let mut intact = true;
    for (id, count) in content {
        let expected = count.is_some();
        if listed.contains(id) != expected {
            assert!(told, "{what}: ledger {id} is there: {}, and no damage", !expected);
            intact = false;
            continue;
        }
        let Some(count) = *count else { continue };
        match store.recover(*id) {
            Ok(sealed) if sealed.entry_count == count => {}
            Ok(sealed) => panic!("{what}: ledger {id} has {sealed:?}"),
            Err(_) => {
                assert!(told, "{what}: ledger {id} cannot be recovered, and no damage");
                intact = false;
            }
        }
        for entry in 0..count {
            match store.read(*id, entry) {
                Ok(Some(found)) => assert_eq!(
                    found,
                    payload(*id, entry, 40),
                    "{what}: ledger {id} entry {entry}"
                ),
                Err(ReadError::Damaged { .. }) => intact = false,
                other => {
                    assert!(
                        told,
                        "{what}: ledger {id} entry {entry}: {other:?}, and no damage"
                    );
                    intact = false;
                }
            }
        }
    }
    intact
}

fn flip_all(fs: &FaultFs, content: &Content, path: &Path, end: usize) -> usize {
    let mut noticed = 0;
    for at in 0..end {
        let hurt = fs.snapshot();
        assert!(hurt.flip(path, at, 0x41));
        noticed += usize::from(!check(hurt, content, &format!("{} byte {at}", path.display())));
    }
    noticed
}

fn files(fs: &FaultFs) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for dir in [journal(), ledgers()] {
        let names = fs.mount().list(&dir).unwrap();
        files.extend(names.into_iter().map(|name| dir.join(name)));
    }
    files
}

#[test]
fn every_flipped_byte_after_a_crash_is_noticed_or_harmless() {
    let (store, content) = build();
    let fs = store.kill();
    assert!(check(fs.snapshot(), &content, "whole"));
    for path in files(&fs) {
        let bytes = fs.bytes_of(&path).unwrap();
        // Room that was never written is zeros and long.
        let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1);
        let noticed = flip_all(&fs, &content, &path, end);
        let name = path.file_name().unwrap().to_str().unwrap();
        let least = match name {
            "00000000.log" => 8 * 72,
            _ if path == segment(1) => 300,
            _ => 0,
        };
        assert!(noticed >= least, "only {noticed} flips of {name} mattered");
    }
}

#[test]
fn every_flipped_byte_after_a_clean_stop_is_noticed_or_harmless() {
    let (store, content) = build();
    let fs = store.stop();
    assert!(check(fs.snapshot(), &content, "whole"));
    let found = files(&fs);
    let names: Vec<_> = found.iter().map(|path| path.file_name().unwrap()).collect();
    let journal = ["00000002.spare", "VERSION"];
    let ledgers = ["00000000.idx", "00000000.log", "CHECKPOINT", "VERSION"];
    assert_eq!(names, [&journal[..], &ledgers].concat());
    // What a spare holds is not read; the recovery cases of spares show that.
    for path in found
        .into_iter()
        .filter(|path| path.extension() != Some("spare".as_ref()))
    {
        let end = fs.bytes_of(&path).unwrap().len();
        flip_all(&fs, &content, &path, end);
    }
}
