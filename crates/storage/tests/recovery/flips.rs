//! Every byte of a small store flipped in turn: what comes back is what was written, or somebody is told.

use std::path::Path;

use pharos_ledger::{Durability, ReadError};
use pharos_runtime::fs::FaultFs;
use pharos_types::LedgerId;

use crate::{Store, dir, payload, segment};

/// A ledger of the store under test: how many entries of 40 bytes, or none when it was deleted.
type Content = Vec<(LedgerId, Option<u64>)>;

fn build() -> (Store, Content) {
    let mut store = Store::new();
    let (sealed, open, gone) = (store.create(), store.create(), store.create());
    let relaxed = store.create_with(Durability::Async);
    for writer in [&sealed, &open, &relaxed] {
        store.append(&**writer, 40);
    }
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
    store.manual.step_journal();
    store.manual.pass(2_000_000_000);
    store.manual.step_journal();
    let content = vec![
        (sealed.id(), Some(2)),
        (open.id(), Some(2)),
        (gone.id(), None),
        (relaxed.id(), Some(2)),
    ];
    (store, content)
}

/// Whether everything is as it was written. Panics when something is not and nobody was told.
fn check(fs: FaultFs, content: &Content, what: &str) -> bool {
    let mut store = Store::open(fs);
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

#[test]
fn every_flipped_byte_after_a_crash_is_noticed_or_harmless() {
    let (store, content) = build();
    let used = store.manual.storage.stats().used_bytes as usize;
    let fs = store.kill();
    assert!(check(fs.snapshot(), &content, "whole"));
    let noticed = flip_all(&fs, &content, &segment(0), used);
    assert!(noticed > 500, "only {noticed} flips mattered");
}

#[test]
fn every_flipped_byte_after_a_clean_stop_is_noticed_or_harmless() {
    let (store, content) = build();
    let fs = store.stop();
    assert!(check(fs.snapshot(), &content, "whole"));
    let mut names = fs.mount().list(&dir()).unwrap();
    names.retain(|name| name != "LOCK");
    assert_eq!(names, ["00000000.idx", "00000000.seg", "VERSION"]);
    let mut noticed = 0;
    for name in names {
        let path = dir().join(name);
        let end = fs.bytes_of(&path).unwrap().len();
        noticed += flip_all(&fs, &content, &path, end);
    }
    assert!(noticed >= 6 * 40, "only {noticed} flips mattered");
}
