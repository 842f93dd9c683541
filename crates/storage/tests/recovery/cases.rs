//! The recovery cases: what is torn is cut, what is damaged is named, everything around it works.

use pharos_ledger::{OpenError, ReadError};
use pharos_runtime::fs::FaultFs;
use pharos_storage::Options;
use pharos_types::{EntryId, LedgerId};

use crate::{Store, dir, options, payload, segment, side_file};

const GROUP_HEADER: usize = 48;
const RECORD_HEADER: usize = 32;

/// The block in segment 0 where the group with this entry begins: the entry was written as a group of its own.
fn block_of(fs: &FaultFs, id: LedgerId, entry: u64, bytes: usize) -> usize {
    let content = fs.bytes_of(&segment(0)).unwrap();
    let wanted = payload(id, entry, bytes);
    let found = (0..content.len()).step_by(512).find(|at| {
        let start = at + GROUP_HEADER + RECORD_HEADER;
        content.get(start..start + bytes) == Some(&wanted[..])
    });
    found.unwrap()
}

/// Five entries of 100 bytes in one ledger, each its own group, then something to prove them synced.
fn five_entries() -> (FaultFs, LedgerId) {
    let mut store = Store::new();
    let (writer, other) = (store.create(), store.create());
    for _ in 0..5 {
        store.append(&*writer, 100);
    }
    store.append(&*other, 10);
    (store.kill(), writer.id())
}

fn check_only_lost(store: &mut Store, id: LedgerId, count: u64, lost: u64) {
    assert!(store.damages() > 0);
    for entry in 0..count {
        let read = store.read(id, entry);
        if entry != lost {
            assert_eq!(read.unwrap().unwrap(), payload(id, entry, 100), "entry {entry}");
            continue;
        }
        match read {
            Err(ReadError::Damaged {
                entry: named,
                file,
                byte_offset,
                ..
            }) => {
                assert_eq!(named, EntryId(lost));
                assert!(
                    file.ends_with("00000000.seg") && byte_offset >= 512,
                    "{file} {byte_offset}"
                );
            }
            other => panic!("entry {entry}: {other:?}"),
        }
    }
    assert_eq!(store.recover(id).unwrap().entry_count, count);
    let writer = store.create();
    store.append(&*writer, 50);
}

#[test]
fn a_torn_last_group_is_cut_and_is_no_damage() {
    let mut store = Store::new();
    let writer = store.create();
    store.append(&*writer, 100);
    store.append(&*writer, 1500);
    let id = writer.id();
    let fs = store.kill();
    let at = block_of(&fs, id, 1, 1500);
    for torn in [
        at + 3,
        at + GROUP_HEADER + 3,
        at + 700,
        at + GROUP_HEADER + RECORD_HEADER + 1499,
    ] {
        let fs = fs.snapshot();
        fs.flip(&segment(0), torn, 0xff);
        let mut store = Store::open(fs);
        assert_eq!(store.damages(), 0);
        assert_eq!(store.recover(id).unwrap().entry_count, 1);
        // The cut is final, also when what is behind it looks whole again.
        let fs = store.kill();
        fs.flip(&segment(0), torn, 0xff);
        assert_eq!(Store::open(fs).recover(id).unwrap().entry_count, 1);
    }
}

#[test]
fn a_damaged_body_hides_one_entry() {
    let (fs, id) = five_entries();
    let at = block_of(&fs, id, 2, 100);
    fs.flip(&segment(0), at + GROUP_HEADER + RECORD_HEADER + 5, 1);
    check_only_lost(&mut Store::open(fs), id, 5, 2);
}

#[test]
fn a_damaged_record_header_hides_one_entry() {
    let (fs, id) = five_entries();
    let at = block_of(&fs, id, 2, 100);
    fs.flip(&segment(0), at + GROUP_HEADER + 10, 1);
    check_only_lost(&mut Store::open(fs), id, 5, 2);
}

#[test]
fn a_damaged_group_header_hides_that_group() {
    let (fs, id) = five_entries();
    let at = block_of(&fs, id, 2, 100);
    fs.flip(&segment(0), at + 20, 1);
    let mut store = Store::open(fs);
    check_only_lost(&mut store, id, 5, 2);
    // And still says so after another start, from the side file.
    let fs = store.kill();
    let mut store = Store::open(fs);
    assert!(matches!(store.read(id, 2), Err(ReadError::Damaged { .. })));
}

#[test]
fn damage_that_may_hide_a_ledgers_end_is_not_passed_over() {
    let (fs, id) = five_entries();
    let at = block_of(&fs, id, 4, 100);
    fs.flip(&segment(0), at + 20, 1);
    let mut store = Store::open(fs.snapshot());
    let refused = store.recover(id);
    assert!(matches!(refused, Err(OpenError::Fault(_))), "{refused:?}");
    assert_eq!(store.read(id, 3).unwrap().unwrap(), payload(id, 3, 100));
    // A ledger created after the damage is not concerned.
    let young = store.create();
    assert_eq!(store.recover(young.id()).unwrap().entry_count, 0);
    let salvage = Options {
        salvage: true,
        ..options()
    };
    let mut store = Store::open_with(store.kill(), salvage);
    assert_eq!(store.recover(id).unwrap().entry_count, 4);
    assert_eq!(store.restart().recover(id).unwrap().entry_count, 4);
}

#[test]
fn an_idle_store_notes_that_its_last_group_was_synced() {
    let mut store = Store::new();
    let writer = store.create();
    store.append(&*writer, 100);
    let id = writer.id();
    store.manual.pass(2_000_000_000);
    store.manual.step_journal();
    let fs = store.kill();
    let at = block_of(&fs, id, 0, 100);
    fs.flip(&segment(0), at + GROUP_HEADER + RECORD_HEADER, 1);
    let mut store = Store::open(fs);
    assert_eq!(store.damages(), 1);
    assert!(matches!(store.read(id, 0), Err(ReadError::Damaged { .. })));
}

#[test]
fn a_lost_side_file_is_made_again_from_the_segment() {
    let mut store = Store::new();
    let (sealed, open, gone) = (store.create(), store.create(), store.create());
    for writer in [&sealed, &open, &gone] {
        for _ in 0..3 {
            store.append(&**writer, 60);
        }
    }
    store.recover(sealed.id()).unwrap();
    store.delete(gone.id());
    let fs = store.stop();
    let whole = fs.bytes_of(&side_file(0)).unwrap();
    for hurt in [false, true] {
        let fs = fs.snapshot();
        if hurt {
            fs.flip(&side_file(0), 30, 1);
        } else {
            fs.mount().remove(&side_file(0)).unwrap();
        }
        let mut store = Store::open(fs);
        assert_eq!(store.damages(), 0);
        assert_eq!(store.list(), [sealed.id(), open.id()]);
        assert_eq!(store.recover(sealed.id()).unwrap().entry_count, 3);
        assert_eq!(
            store.read(open.id(), 2).unwrap().unwrap(),
            payload(open.id(), 2, 60)
        );
        let made = store.fs.bytes_of(&side_file(0)).unwrap();
        assert_eq!(made.len(), whole.len());
    }
}

#[test]
fn a_segment_without_a_header_is_still_read() {
    let (fs, id) = five_entries();
    for at in [8, 256 + 8] {
        fs.flip(&segment(0), at, 1);
    }
    let mut store = Store::open(fs);
    assert_eq!(store.recover(id).unwrap().entry_count, 5);
    for entry in 0..5 {
        assert_eq!(store.read(id, entry).unwrap().unwrap(), payload(id, entry, 100));
    }
}

#[test]
fn damage_in_an_older_segment_is_told_from_its_end() {
    let mut store = Store::new();
    let writer = store.create();
    let id = writer.id();
    while store.manual.storage.stats().segments < 3 {
        store.append(&*writer, 900);
    }
    let count = writer.tail().borrow().durable;
    let fs = store.kill();
    fs.mount().remove(&side_file(0)).unwrap();
    // The last group of segment 0: nothing in that file proves it synced, the header of segment 1 does.
    let last = (0..count).rev().find(|entry| contains(&fs, id, *entry)).unwrap();
    let at = block_of(&fs, id, last, 900);
    fs.flip(&segment(0), at + 4, 1);
    let mut store = Store::open(fs);
    assert!(store.damages() > 0);
    assert!(matches!(store.read(id, last), Err(ReadError::Damaged { .. })));
    for entry in (0..count).filter(|entry| *entry != last) {
        assert_eq!(store.read(id, entry).unwrap().unwrap(), payload(id, entry, 900));
    }
}

fn contains(fs: &FaultFs, id: LedgerId, entry: u64) -> bool {
    let content = fs.bytes_of(&segment(0)).unwrap();
    let wanted = payload(id, entry, 900);
    content
        .windows(wanted.len())
        .step_by(8)
        .any(|window| window == wanted)
}

#[test]
fn ledger_ids_rise_when_everything_was_deleted_and_reclaimed() {
    let mut store = Store::new();
    let mut last = None;
    for _ in 0..4 {
        let writer = store.create();
        assert!(Some(writer.id()) > last);
        last = Some(writer.id());
        while store.manual.storage.stats().segments < 3 {
            store.append(&*writer, 2000);
        }
        store.delete(writer.id());
        store.manual.settle();
        assert!(store.manual.storage.stats().segments < 3, "reclaimed");
        store = store.restart();
    }
    assert!(store.fs.mount().list(&dir()).unwrap().len() < 8);
}

#[test]
fn a_mostly_dead_segment_is_emptied_and_its_entries_stay() {
    let mut store = Store::new();
    let (kept, gone) = (store.create(), store.create());
    store.append(&*kept, 400);
    while store.manual.storage.stats().segments < 2 {
        store.append(&*gone, 2000);
    }
    store.append(&*kept, 400);
    store.delete(gone.id());
    store.manual.settle();
    assert!(store.manual.storage.stats().bytes_moved > 0);
    assert!(
        store.fs.bytes_of(&segment(0)).is_none(),
        "the emptied segment is gone"
    );
    for _ in 0..2 {
        for entry in 0..2 {
            assert_eq!(
                store.read(kept.id(), entry).unwrap().unwrap(),
                payload(kept.id(), entry, 400)
            );
        }
        assert_eq!(store.list(), [kept.id()]);
        store = store.restart();
    }
    assert_eq!(store.recover(kept.id()).unwrap().entry_count, 2);
}
