//! Room that deleted ledgers leave comes back while the engine is in use.

use pharos_ledger::LedgerWriter;
use pharos_runtime::fs::{Fault, FaultFs, FaultOp, Plan};
use pharos_storage::Options;
use pharos_types::LedgerId;

use super::{Store, journal, log, options, payload};

const ENTRY_BYTES: usize = 2000;

/// A ledger that fills most of an entry log.
fn fill(store: &mut Store) -> LedgerId {
    let writer = store.create();
    for entry in 0..30 {
        writer.append(payload(writer.id(), entry, ENTRY_BYTES)).unwrap();
    }
    store.manual.settle();
    writer.id()
}

/// Logs that are there, by number.
fn logs(store: &Store) -> Vec<u32> {
    (0..64)
        .filter(|id| store.fs.bytes_of(&log(*id)).is_some())
        .collect()
}

#[test]
fn a_small_ledger_that_lives_holds_no_logs_of_deleted_ones() {
    let mut store = Store::new();
    let small = store.create();
    let mut gone = Vec::new();
    for _ in 0..8 {
        store.append(&*small, 16);
        gone.push(fill(&mut store));
        store.flush();
    }
    assert!(logs(&store).len() >= 8, "{:?}", logs(&store));
    gone.into_iter().for_each(|id| store.delete(id));
    // Long before a compaction is due.
    store.manual.pass(16_000_000_000);
    store.manual.settle();
    assert!(logs(&store).len() <= 2, "{:?}", logs(&store));
    let id = small.id();
    drop(small);
    let mut store = store.restart();
    for entry in 0..8 {
        assert_eq!(store.read(id, entry).unwrap().unwrap(), payload(id, entry, 16));
    }
    assert_eq!(store.damages(), 0);
}

/// Appends to a ledger until the journal waits for room in the write cache: until the next flush is due.
fn press(store: &mut Store, busy: &dyn LedgerWriter) {
    loop {
        while store.manual.step_journal(0) || store.manual.step_preparer(0) {}
        if store.manual.storage.stats().queued >= 20 {
            return;
        }
        busy.append(payload(busy.id(), 0, ENTRY_BYTES)).unwrap();
    }
}

#[test]
fn dead_logs_go_while_a_flush_is_always_due() {
    let mut store = Store::new();
    let small = store.create();
    store.append(&*small, 16);
    let gone: Vec<LedgerId> = (0..4).map(|_| fill(&mut store)).collect();
    store.flush();
    let mut dead = logs(&store);
    // It is still written.
    dead.pop();
    gone.into_iter().for_each(|id| store.delete(id));
    let busy = store.create();
    for _ in 0..4_000 {
        press(&mut store, &*busy);
        store.manual.pass(20_000_000);
        store.manual.step_flusher();
        if !logs(&store).iter().any(|log| dead.contains(log)) {
            return;
        }
    }
    panic!("of {dead:?} there are still {:?}", logs(&store));
}

#[test]
fn while_a_device_has_no_room_compaction_takes_breath() {
    const BYTES: usize = 4200;
    // A log holds three entries and is full to four fifths, as is every copy of it: there is always something to do.
    let options = Options {
        entry_log_bytes: 16 << 10,
        major_compaction_percent: 90,
        ..options()
    };
    let mut store = Store::open_with(FaultFs::new(1), options);
    let kept = store.create();
    for _ in 0..12 {
        store.append(&*kept, BYTES);
    }
    store.flush();
    for op in [
        FaultOp::Create,
        FaultOp::Allocate,
        FaultOp::SetLen,
        FaultOp::Rename,
    ] {
        store
            .fs
            .plan(Plan::one_in(op, Fault::NoSpace, 1).under(&journal()));
    }
    let busy = store.create();
    let entry = payload(busy.id(), 0, ENTRY_BYTES);
    while busy.append(entry.clone()).is_ok() {
        // It comes to rest: without a pause it never would.
        store.manual.settle();
    }
    let moved = |store: &Store| store.manual.storage.stats().bytes_moved;
    let mut rounds = 0;
    for _ in 0..20 {
        let before = moved(&store);
        store.manual.pass(500_000_000);
        store.manual.settle();
        rounds += u32::from(moved(&store) > before);
    }
    assert!((8..=11).contains(&rounds), "{rounds} in ten seconds");
    for entry in 0..12 {
        assert_eq!(
            store.read(kept.id(), entry).unwrap().unwrap(),
            payload(kept.id(), entry, BYTES)
        );
    }
}
