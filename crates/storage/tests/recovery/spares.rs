//! Files of old segments that are written again: over a stop, over a crash, and what they hold is never taken for new.

use std::path::PathBuf;

use pharos_runtime::fs::{FaultFs, OpenHow};
use pharos_storage::Options;

use crate::{Store, journal, options, payload, segment};

fn spares(fs: &FaultFs) -> Vec<PathBuf> {
    let names = fs.mount().list(&journal()).unwrap();
    let spares = names.iter().filter(|name| name.ends_with(".spare"));
    spares.map(|name| journal().join(name)).collect()
}

/// A store whose spares hold entries of a ledger, which is returned with their number.
fn build() -> (Store, pharos_types::LedgerId, u64) {
    let mut store = Store::new();
    let (ledger, count) = store.fill_segments(6);
    store.flush();
    (store, ledger, count)
}

#[test]
fn old_segments_become_spares_and_spares_new_segments() {
    let (mut store, _, _) = build();
    assert_eq!(spares(&store.fs).len(), 2, "as many as the options say");
    let before = store.manual.storage.stats().segments_reused;
    store.fill_segments(4);
    assert!(store.manual.storage.stats().segments_reused >= before + 2);
}

#[test]
fn spares_outlive_a_stop_and_a_crash() {
    for killed in [false, true] {
        let (store, ledger, count) = build();
        let fs = if killed { store.kill() } else { store.stop() };
        assert_eq!(spares(&fs).len(), 2, "killed: {killed}");
        let mut store = Store::open(fs);
        let (other, more) = store.fill_segments(4);
        assert!(
            store.manual.storage.stats().segments_reused >= 2,
            "killed: {killed}"
        );
        // Once more, and nothing but what was appended is found.
        let mut store = store.restart();
        assert_eq!(store.recover(ledger).unwrap().entry_count, count);
        assert_eq!(store.recover(other).unwrap().entry_count, more);
        for (ledger, count) in [(ledger, count), (other, more)] {
            for entry in 0..count {
                let found = store.read(ledger, entry).unwrap();
                assert_eq!(found, Some(payload(ledger, entry, 900)), "{ledger:?} {entry}");
            }
        }
        assert_eq!(store.damages(), 0);
    }
}

#[test]
fn what_was_prepared_and_not_used_is_a_spare_too() {
    let mut store = Store::new();
    store.manual.settle();
    let prepared = segment(2);
    assert!(store.fs.bytes_of(&prepared).is_some());
    let fs = store.kill();
    let store = Store::open(fs);
    assert_eq!(spares(&store.fs), [prepared.with_extension("spare")]);
}

#[test]
fn the_ids_of_spares_are_not_given_again() {
    let (store, _, _) = build();
    let fs = store.stop();
    let spare = spares(&fs).remove(0);
    let named = journal().join("000000ff.spare");
    fs.mount().rename(&spare, &named).unwrap();
    let store = Store::open(fs);
    assert!(store.fs.bytes_of(&segment(0x100)).is_some());
}

#[test]
fn what_is_too_many_or_too_short_is_removed() {
    let (store, _, _) = build();
    let fs = store.stop();
    let short = journal().join("000000ff.spare");
    fs.mount().open(&short, OpenHow::CREATE).unwrap();
    let fewer = Options {
        spare_segments: 1,
        ..options()
    };
    let store = Store::open_with(fs, fewer);
    assert_eq!(spares(&store.fs).len(), 1);
    assert!(store.fs.bytes_of(&short).is_none());
}

#[test]
fn a_spare_that_was_removed_is_done_without() {
    let (mut store, _, _) = build();
    for spare in spares(&store.fs) {
        store.fs.mount().remove(&spare).unwrap();
    }
    let (ledger, count) = store.fill_segments(4);
    assert!(!store.manual.storage.stats().poisoned);
    let mut store = store.restart();
    assert_eq!(store.recover(ledger).unwrap().entry_count, count);
}

#[test]
fn spares_go_when_entry_logs_have_no_room() {
    let (mut store, _, _) = build();
    assert_eq!(spares(&store.fs).len(), 2);
    let writer = store.create();
    let stays = store.fs.bytes();
    // Too little for another entry log; enough when both spares are gone.
    store.fs.set_bytes_max(Some(stays + (20 << 10)));
    let mut appended = 0;
    while appended < 20 && writer.append(payload(writer.id(), appended, 900)).is_ok() {
        appended += 1;
        store.manual.settle();
    }
    assert_eq!(appended, 20);
    store.manual.pass(61_000_000_000);
    store.manual.settle();
    assert!(spares(&store.fs).is_empty());
    assert!(store.manual.storage.stats().no_space);
    // It tries again after a moment.
    store.manual.pass(1_000_000_000);
    store.manual.settle();
    assert!(!store.manual.storage.stats().no_space);
    assert_eq!(store.manual.storage.stats().cache_bytes, 0);
    assert_eq!(writer.tail().borrow().durable, appended);
}

fn without_spares() -> Options {
    Options {
        spare_segments: 0,
        removal_step_bytes: 12 << 10,
        ..options()
    }
}

/// Bytes in the files of old segments that are on their way out.
fn leaving(fs: &FaultFs) -> usize {
    let names = fs.mount().list(&journal()).unwrap();
    let leaving = names.iter().filter(|name| name.ends_with(".gone.tmp"));
    let bytes = |name| fs.bytes_of(&journal().join(name)).unwrap().len();
    leaving.map(bytes).sum()
}

#[test]
fn what_becomes_no_spare_gets_shorter_step_by_step() {
    let mut store = Store::open_with(FaultFs::new(1), without_spares());
    store.fill_segments(6);
    store.flush();
    let mut left = leaving(&store.fs);
    assert!(left > 100 << 10, "{left}");
    while left > 0 {
        store.manual.pass(8_000_000);
        store.manual.settle();
        let now = leaving(&store.fs);
        assert!(now < left && left - now <= 12 << 10, "from {left} to {now}");
        left = now;
    }
    let names = store.fs.mount().list(&journal()).unwrap();
    assert!(!names.iter().any(|name| name.ends_with(".tmp")), "{names:?}");
    assert!(spares(&store.fs).is_empty());
}

#[test]
fn a_stop_and_a_start_remove_what_was_getting_shorter() {
    for killed in [false, true] {
        let mut store = Store::open_with(FaultFs::new(1), without_spares());
        let (ledger, count) = store.fill_segments(6);
        store.flush();
        store.manual.pass(8_000_000);
        store.manual.settle();
        assert!(leaving(&store.fs) > 0);
        let fs = if killed { store.kill() } else { store.stop() };
        assert_eq!(leaving(&fs) > 0, killed);
        let mut store = Store::open_with(fs, without_spares());
        assert_eq!((leaving(&store.fs), store.damages()), (0, 0));
        assert_eq!(store.recover(ledger).unwrap().entry_count, count);
        for entry in 0..count {
            assert_eq!(
                store.read(ledger, entry).unwrap(),
                Some(payload(ledger, entry, 900))
            );
        }
    }
}

#[test]
fn what_is_getting_shorter_goes_at_once_when_room_is_needed() {
    let mut store = Store::open_with(FaultFs::new(1), without_spares());
    store.fill_segments(6);
    store.flush();
    let before = leaving(&store.fs);
    assert!(before > 64 << 10);
    // Not enough for the next segment; no time passes.
    store.fs.set_bytes_max(Some(store.fs.bytes() + (8 << 10)));
    store.fill_segments(4);
    // What became free after that may take its time.
    assert!(leaving(&store.fs) <= before / 2);
    assert!(!store.manual.storage.stats().no_space);
}
