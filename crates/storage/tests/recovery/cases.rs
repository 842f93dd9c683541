//! The recovery cases: what is torn is cut, what is damaged is named, everything around it works.

use pharos_ledger::{Durability, OpenError, ReadError};
use pharos_runtime::fs::FaultFs;
use pharos_storage::Options;
use pharos_types::{EntryId, LedgerId};

use crate::{Store, journal, options, payload, segment};

const GROUP_HEADER: usize = 48;
const RECORD_HEADER: usize = 32;

/// The block in the first segment where the group with this entry begins: the entry was written as a group of its own.
fn block_of(fs: &FaultFs, id: LedgerId, entry: u64, bytes: usize) -> usize {
    let content = fs.bytes_of(&segment(1)).unwrap();
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
                    file.ends_with("00000001.seg") && byte_offset >= 512,
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
        fs.flip(&segment(1), torn, 0xff);
        let mut store = Store::open(fs);
        assert_eq!(store.damages(), 0);
        assert_eq!(store.recover(id).unwrap().entry_count, 1);
        // The cut is final, also when what is behind it looks whole again.
        let fs = store.kill();
        fs.flip(&segment(1), torn, 0xff);
        assert_eq!(Store::open(fs).recover(id).unwrap().entry_count, 1);
    }
}

#[test]
fn a_segment_with_nothing_but_torn_groups_is_never_missed() {
    let mut store = Store::new();
    let writer = store.create_with(Durability::Async);
    let (id, torn) = (writer.id(), segment(2));
    let is_begun = |fs: &FaultFs| {
        fs.bytes_of(&torn)
            .is_some_and(|bytes| bytes[512..1024] != [0; 512])
    };
    let mut count = 0;
    while !is_begun(&store.fs) {
        // The mark of the last checkpoint is at the end of the first segment.
        store.flush();
        store.append(&*writer, 900);
        count += 1;
    }
    // A group behind the one whose header will be gone: its number is used, and it does not call that one synced.
    store.append(&*writer, 900);
    let fs = store.kill();
    fs.flip(&torn, 512 + 20, 0xff);
    // One start cuts it, and the next may let the segment go; the header behind it still counts its number.
    let mut store = Store::open(fs);
    for start in 0..4 {
        store.manual.settle();
        assert_eq!(store.damages(), 0, "start {start}");
        assert_eq!(store.read(id, 0).unwrap().unwrap(), payload(id, 0, 900));
        store = store.restart();
    }
    // Once something newer is in the logs, it goes.
    let writer = store.create();
    store.append(&*writer, 100);
    store.flush();
    assert!(store.fs.bytes_of(&torn).is_none());
    assert_eq!(store.restart().recover(id).unwrap().entry_count, count - 1);
}

#[test]
fn a_damaged_body_hides_one_entry() {
    let (fs, id) = five_entries();
    let at = block_of(&fs, id, 2, 100);
    fs.flip(&segment(1), at + GROUP_HEADER + RECORD_HEADER + 5, 1);
    check_only_lost(&mut Store::open(fs), id, 5, 2);
}

#[test]
fn a_damaged_record_header_hides_one_entry() {
    let (fs, id) = five_entries();
    let at = block_of(&fs, id, 2, 100);
    fs.flip(&segment(1), at + GROUP_HEADER + 10, 1);
    check_only_lost(&mut Store::open(fs), id, 5, 2);
}

#[test]
fn a_damaged_group_header_hides_that_group() {
    let (fs, id) = five_entries();
    let at = block_of(&fs, id, 2, 100);
    fs.flip(&segment(1), at + 20, 1);
    let mut store = Store::open(fs);
    check_only_lost(&mut store, id, 5, 2);
    // And still says so when everything around it is in the logs and the segment is not needed any more.
    store.flush();
    assert!(store.fs.bytes_of(&segment(1)).is_none());
    let kept = journal().join("00000001.damaged");
    assert!(store.fs.bytes_of(&kept).is_some(), "for a person to look at");
    let mut store = Store::open(store.kill());
    assert!(store.damages() > 0);
    assert!(matches!(store.read(id, 2), Err(ReadError::Damaged { .. })));
    assert_eq!(store.read(id, 3).unwrap().unwrap(), payload(id, 3, 100));
    assert_eq!(store.recover(id).unwrap().entry_count, 5);
}

#[test]
fn damage_that_may_hide_a_ledgers_end_is_not_passed_over() {
    let (fs, id) = five_entries();
    let at = block_of(&fs, id, 4, 100);
    fs.flip(&segment(1), at + 20, 1);
    let mut store = Store::open(fs.snapshot());
    let refused = store.recover(id);
    assert!(matches!(refused, Err(OpenError::Fault(_))), "{refused:?}");
    assert_eq!(store.read(id, 3).unwrap().unwrap(), payload(id, 3, 100));
    // A ledger created after the damage is not concerned.
    let young = store.create();
    assert_eq!(store.recover(young.id()).unwrap().entry_count, 0);
    // It is not forgotten either when a checkpoint has passed the damage.
    store.flush();
    let mut store = Store::open(store.kill());
    assert!(matches!(store.recover(id), Err(OpenError::Fault(_))));
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
    store.manual.step_journal(0);
    let fs = store.kill();
    let at = block_of(&fs, id, 0, 100);
    fs.flip(&segment(1), at + GROUP_HEADER + RECORD_HEADER, 1);
    let mut store = Store::open(fs);
    assert_eq!(store.damages(), 1);
    assert!(matches!(store.read(id, 0), Err(ReadError::Damaged { .. })));
}

#[test]
fn a_segment_without_a_header_is_still_read() {
    let (fs, id) = five_entries();
    for at in [8, 256 + 8] {
        fs.flip(&segment(1), at, 1);
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
    let (id, count) = store.fill_segments(3);
    let fs = store.kill();
    // The last group of the first segment: nothing in that file proves it synced, the header of the next one does.
    let last = (0..count).rev().find(|entry| contains(&fs, id, *entry)).unwrap();
    let at = block_of(&fs, id, last, 900);
    fs.flip(&segment(1), at + 4, 1);
    let mut store = Store::open(fs);
    assert!(store.damages() > 0);
    assert!(matches!(store.read(id, last), Err(ReadError::Damaged { .. })));
    for entry in (0..count).filter(|entry| *entry != last) {
        assert_eq!(store.read(id, entry).unwrap().unwrap(), payload(id, entry, 900));
    }
}

fn contains(fs: &FaultFs, id: LedgerId, entry: u64) -> bool {
    let content = fs.bytes_of(&segment(1)).unwrap();
    let wanted = payload(id, entry, 900);
    content
        .windows(wanted.len())
        .step_by(8)
        .any(|window| window == wanted)
}

#[test]
fn a_missing_segment_is_damage() {
    let mut store = Store::new();
    let (id, count) = store.fill_segments(3);
    let fs = store.kill();
    fs.mount().remove(&segment(2)).unwrap();
    let mut store = Store::open(fs);
    assert!(store.damages() > 0);
    let damaged = (0..count).filter(|entry| store.read(id, *entry).is_err()).count();
    assert!(damaged > 5, "{damaged}");
    assert_eq!(store.read(id, 0).unwrap().unwrap(), payload(id, 0, 900));
    assert_eq!(
        store.read(id, count - 1).unwrap().unwrap(),
        payload(id, count - 1, 900)
    );
}

#[test]
fn a_missing_last_segment_without_a_trace_is_a_shorter_journal() {
    // All segments gone is noticed, because every start makes one.
    let mut store = Store::new();
    let writer = store.create();
    store.append(&*writer, 100);
    store.flush();
    store.append(&*writer, 100);
    let fs = store.kill();
    for name in fs.mount().list(&journal()).unwrap() {
        if name.ends_with(".seg") {
            fs.mount().remove(&journal().join(name)).unwrap();
        }
    }
    let refused = pharos_storage::manual::Manual::open(fs.mount(), &crate::dir(), options());
    assert!(matches!(
        refused.err().unwrap(),
        pharos_storage::OpenStoreError::WrongDirectory { .. }
    ));
}

#[test]
fn damage_in_the_journal_of_what_is_in_the_logs_is_harmless() {
    let mut store = Store::new();
    let writer = store.create();
    let id = writer.id();
    for _ in 0..5 {
        store.append(&*writer, 100);
    }
    store.flush();
    store.append(&*writer, 100);
    let fs = store.kill();
    let at = block_of(&fs, id, 2, 100);
    for hurt in [20, GROUP_HEADER + 10, GROUP_HEADER + RECORD_HEADER + 5] {
        let fs = fs.snapshot();
        fs.flip(&segment(1), at + hurt, 1);
        let mut store = Store::open(fs);
        assert_eq!(store.damages(), 0);
        for entry in 0..6 {
            assert_eq!(store.read(id, entry).unwrap().unwrap(), payload(id, entry, 100));
        }
        assert_eq!(store.recover(id).unwrap().entry_count, 6);
    }
}

#[test]
fn a_journal_larger_than_memory_is_replayed_in_parts() {
    let mut store = Store::new();
    let writers = [store.create(), store.create()];
    for _ in 0..40 {
        for writer in &writers {
            store.append(&**writer, 2000);
        }
    }
    let small = Options {
        write_cache_bytes: 16 << 10,
        ..options()
    };
    let mut store = Store::open_with(store.kill(), small);
    let stats = store.manual.storage.stats();
    assert!(stats.flushes > 5 && stats.cache_bytes < 16 << 10, "{stats:?}");
    for writer in &writers {
        let id = writer.id();
        assert_eq!(store.recover(id).unwrap().entry_count, 40);
        for entry in 0..40 {
            assert_eq!(store.read(id, entry).unwrap().unwrap(), payload(id, entry, 2000));
        }
    }
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
        store.flush();
        let stats = store.manual.storage.stats();
        assert_eq!((stats.logs, stats.cache_bytes), (0, 0), "reclaimed");
        store = store.restart();
    }
    let names = store.fs.mount().list(&journal()).unwrap();
    assert!(names.len() < 8, "{names:?}");
}
