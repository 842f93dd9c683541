//! Calls that fail, and what a start makes of it: of each mend the shortest history that needed it.

use pharos_runtime::fs::{Fault, FaultFs, FaultOp, Plan};
use pharos_storage::manual::Manual;

use crate::{Store, dir, index, journal, options, payload, segment};

#[test]
fn what_a_failed_sync_left_in_the_page_cache_is_written_again_by_the_next_start() {
    for seed in 0..20 {
        let mut store = Store::open(FaultFs::new(seed));
        let writer = store.create();
        let id = writer.id();
        store.append(&*writer, 300);
        store.fs.fail_sync_in(0);
        writer.append(payload(id, 1, 300)).unwrap();
        store.manual.settle();
        assert!(store.manual.storage.stats().poisoned);
        // The process ends, the machine runs on: the page cache still has what the device has not.
        let mut store = store.restart();
        let count = store.recover(id).unwrap().entry_count;
        assert_eq!(count, 2, "it is there, so it stays");
        store.manual.settle();
        store.fs.crash();
        let mut store = Store::open(store.fs);
        assert_eq!(store.damages(), 0, "seed {seed}");
        assert_eq!(store.recover(id).unwrap().entry_count, count);
        assert_eq!(store.read(id, 1).unwrap().unwrap(), payload(id, 1, 300));
    }
}

#[test]
fn a_prepared_segment_that_was_passed_over_is_not_missed() {
    for op in [FaultOp::SyncDir, FaultOp::Open] {
        let mut store = Store::new();
        let writer = store.create();
        store
            .fs
            .plan(Plan::one_in(op, Fault::NoSpace, 1).under(&journal()));
        // The next segment gets its name and then cannot be used.
        for entry in 0..4 {
            writer.append(payload(writer.id(), entry, 4000)).unwrap();
        }
        store.manual.settle();
        store.fs.forget_plans();
        // Less than what is queued waits for room.
        store.manual.pass(2_000_000_000);
        store.manual.settle();
        assert!(!store.manual.storage.stats().poisoned);
        for _ in 4..8 {
            store.append(&*writer, 4000);
        }
        let mut store = store.restart();
        assert_eq!(store.damages(), 0, "{op:?}");
        assert_eq!(store.recover(writer.id()).unwrap().entry_count, 8);
        assert!(op == FaultOp::Open || store.fs.counts().hits_of(op, Fault::NoSpace) > 0);
    }
}

#[test]
fn an_end_that_cannot_be_read_is_damage_and_not_torn() {
    let mut store = Store::new();
    let writer = store.create();
    let id = writer.id();
    // Beyond the first page, which has the ledger's creation.
    for _ in 0..6 {
        store.append(&*writer, 900);
    }
    let fs = store.kill();
    assert!(fs.fail_range(&segment(1), 4096, 8192));
    let mut store = Store::open(fs.snapshot());
    assert!(store.damages() > 0);
    assert!(store.recover(id).is_err(), "it is not known how long it was");
    // Nothing was cut: once the device reads again, all of it is there.
    fs.heal_ranges();
    assert_eq!(Store::open(fs).recover(id).unwrap().entry_count, 6);
}

#[test]
fn an_index_that_cannot_be_opened_for_now_is_not_made_again() {
    let mut store = Store::new();
    let writer = store.create();
    store.append(&*writer, 900);
    store.flush();
    let fs = store.kill();
    fs.plan(Plan::one_in(FaultOp::Open, Fault::TooManyFiles, 1).under(&index(0)));
    assert!(Manual::open(fs.mount(), &dir(), options()).is_err());
    fs.restart();
    let store = Store::open(fs);
    assert_eq!(store.manual.storage.stats().indexes_rebuilt, 0);
}

#[test]
fn an_old_segment_that_could_not_be_removed_does_not_make_empty_ones_missing() {
    let mut store = Store::new();
    for _ in 0..3 {
        store = store.restart();
    }
    // None has a group. The oldest stays, those behind it go.
    for op in [FaultOp::Rename, FaultOp::Remove] {
        let plan = Plan::one_in(op, Fault::Io, 1);
        store.fs.plan(plan.under(&segment(1)));
    }
    store.manual.settle();
    assert!(store.fs.bytes_of(&segment(1)).is_some());
    assert!(store.fs.bytes_of(&segment(2)).is_none());
    let mut store = store.restart();
    assert_eq!(store.damages(), 0);
    let writer = store.create();
    store.append(&*writer, 100);
    assert_eq!(store.restart().recover(writer.id()).unwrap().entry_count, 1);
}

#[test]
fn a_segment_whose_first_sync_was_a_lie_is_not_taken_for_unused() {
    let mut store = Store::new();
    // The header of the second segment and its first group go in one sync, which the device answers and does not do.
    let lie = Plan::next(FaultOp::SyncFile, Fault::Lost, 0);
    store.fs.plan(lie.under(&segment(2)));
    let writer = store.create();
    let lies = |store: &Store| store.fs.counts().hits_of(FaultOp::SyncFile, Fault::Lost);
    while lies(&store) == 0 {
        store.append(&*writer, 900);
    }
    store.append(&*writer, 900);
    store.fs.crash();
    let mut store = Store::open(store.fs);
    assert!(store.damages() > 0);
    let count = writer.tail().borrow().durable;
    assert!((0..count).any(|entry| store.read(writer.id(), entry).is_err()));
}
