//! A full device: appends are refused before they are queued, deletions still go, and room brings everything back.

use std::sync::Arc;

use futures_util::FutureExt;

use pharos_ledger::{AppendError, CreateError, CreateOptions, LedgerEngine};
use pharos_runtime::fs::FaultFs;
use pharos_storage::Options;

use crate::{Store, options, payload};

/// With room kept back, as every store has it.
pub(crate) fn keeping() -> Options {
    Options {
        journal_reserve_bytes: 8 << 10,
        ledger_reserve_bytes: 16 << 10,
        ..options()
    }
}

/// A store whose reserves are there.
pub(crate) fn store_with(options: Options) -> Store {
    let mut store = Store::open_with(FaultFs::new(1), options);
    store.manual.settle();
    store
}

#[test]
fn a_full_device_refuses_appends_until_something_is_deleted() {
    let mut store = store_with(keeping());
    let (large, kept) = (store.create(), store.create());
    while store.manual.storage.stats().segments < 3 {
        store.append(&*large, 4000);
    }
    store.flush();
    store.fs.set_bytes_max(Some(store.fs.bytes()));
    let refused = loop {
        let entry = kept.tail().borrow().durable;
        match kept.append(payload(kept.id(), entry, 3000)) {
            Ok(_) => store.manual.settle(),
            Err(refused) => break refused,
        }
    };
    assert!(matches!(refused, AppendError::NoSpace { .. }), "{refused:?}");
    assert!(store.manual.storage.stats().no_space);
    let storage = Arc::clone(&store.manual.storage);
    let created = store.manual.run(storage.create(CreateOptions::default()));
    assert!(matches!(created.err(), Some(CreateError::NoSpace) | None));
    let count = kept.tail().borrow().durable;
    assert_eq!(
        store.read(kept.id(), count - 1).unwrap().unwrap(),
        payload(kept.id(), count - 1, 3000)
    );

    store.delete(large.id());
    store.manual.settle();
    assert!(!store.manual.storage.stats().no_space, "it clears by itself");
    for _ in 0..3 {
        store.append(&*kept, 3000);
    }
    assert!(!store.manual.storage.stats().poisoned);
    let mut store = Store::open_with(store.kill(), keeping());
    assert_eq!(store.recover(kept.id()).unwrap().entry_count, count + 3);
}

#[test]
fn what_was_queued_when_the_device_filled_up_waits_for_room() {
    let mut store = store_with(keeping());
    let writer = store.create();
    store.manual.settle();
    store.fs.set_bytes_max(Some(store.fs.bytes()));
    // Queued at once, before the engine knows that there is no room for all.
    for entry in 0..12 {
        writer.append(payload(writer.id(), entry, 4000)).unwrap();
    }
    store.manual.settle();
    let stuck = writer.tail().borrow().durable;
    assert!((1..12).contains(&stuck), "{stuck}");
    assert!(writer.tail().borrow().failed.is_none());
    store.fs.set_bytes_max(None);
    store.manual.pass(1_000_000_000);
    store.manual.settle();
    assert_eq!(writer.tail().borrow().durable, 12);
    for entry in 0..12 {
        assert_eq!(
            store.read(writer.id(), entry).unwrap().unwrap(),
            payload(writer.id(), entry, 4000)
        );
    }
}

#[test]
fn a_stop_on_a_full_device_does_not_hang() {
    let mut store = store_with(keeping());
    let writer = store.create();
    store.manual.settle();
    store.fs.set_bytes_max(Some(store.fs.bytes()));
    for entry in 0..12 {
        writer.append(payload(writer.id(), entry, 4000)).unwrap();
    }
    store.manual.settle();
    let durable = writer.tail().borrow().durable;
    let fs = store.stop();
    let mut store = Store::open_with(fs, keeping());
    assert_eq!(store.recover(writer.id()).unwrap().entry_count, durable);
}

#[test]
fn a_store_opens_on_a_full_device_and_recovers_when_there_is_room() {
    let mut store = store_with(keeping());
    let writer = store.create();
    store.append(&*writer, 100);
    let id = writer.id();
    let fs = store.stop();
    fs.set_bytes_max(Some(fs.bytes()));
    let mut store = Store::open_with(fs, keeping());
    assert_eq!(store.read(id, 0).unwrap().unwrap(), payload(id, 0, 100));
    // What was kept back is enough to open a topic, whose log can then be read; nothing can be published.
    assert_eq!(store.recover(id).unwrap().entry_count, 1);
    let other = store.create();
    let refused = other.append(payload(other.id(), 0, 100));
    assert!(matches!(refused, Err(AppendError::NoSpace { .. })), "{refused:?}");
    store.fs.set_bytes_max(None);
    store.manual.pass(1_000_000_000);
    store.manual.settle();
    store.append(&*other, 100);
    let writer = store.create();
    store.append(&*writer, 100);
}

#[test]
fn a_full_write_cache_holds_appends_back_and_lets_facts_pass() {
    let small = Options {
        write_cache_bytes: 32 << 10,
        ..keeping()
    };
    let mut store = store_with(small);
    let (writer, other) = (store.create(), store.create());
    for entry in 0..40 {
        writer.append(payload(writer.id(), entry, 2000)).unwrap();
    }
    // Nothing is flushed.
    for _ in 0..200 {
        store.manual.step_journal(0);
        store.manual.step_preparer(0);
    }
    let stats = store.manual.storage.stats();
    let stuck = writer.tail().borrow().durable;
    assert!((1..40).contains(&stuck), "{stuck}");
    assert!(stats.cache_bytes <= 16 << 10, "{stats:?}");
    assert!(stats.queued_bytes > 40_000 && !stats.no_space, "{stats:?}");
    // A ledger can be made, sealed and deleted all the same, and reads go on.
    let storage = Arc::clone(&store.manual.storage);
    let mut create = storage.create(CreateOptions::default());
    let mut seal = other.close();
    let mut delete = None;
    for _ in 0..20 {
        store.manual.step_journal(0);
        if let Some(made) = (&mut create).now_or_never() {
            delete = Some(storage.delete(made.unwrap().id()));
            break;
        }
    }
    let mut delete = delete.unwrap();
    let (mut sealed, mut deleted) = (false, false);
    for _ in 0..20 {
        sealed = sealed || (&mut seal).now_or_never().is_some();
        deleted = deleted || (&mut delete).now_or_never().is_some();
        store.manual.step_journal(0);
    }
    assert!(sealed && deleted);
    assert_eq!(writer.tail().borrow().durable, stuck);
    assert!(store.read(writer.id(), stuck - 1).unwrap().is_some());
    store.manual.settle();
    assert_eq!(writer.tail().borrow().durable, 40);
    for entry in 0..40 {
        assert_eq!(
            store.read(writer.id(), entry).unwrap().unwrap(),
            payload(writer.id(), entry, 2000)
        );
    }
}

#[test]
fn a_ledger_directory_without_room_refuses_appends_and_recovers() {
    let small = Options {
        write_cache_bytes: 32 << 10,
        ..keeping()
    };
    let mut store = store_with(small);
    let (large, kept) = (store.create(), store.create());
    for _ in 0..30 {
        store.append(&*large, 3000);
    }
    store.flush();
    // Segments have room, logs have none.
    store.fs.set_bytes_max(Some(store.fs.bytes()));
    let mut count = 0;
    let refused = loop {
        match kept.append(payload(kept.id(), count, 3000)) {
            Ok(_) => count += 1,
            Err(refused) => break refused,
        }
        store.manual.settle();
    };
    assert!(matches!(refused, AppendError::NoSpace { .. }), "{refused:?}");
    let acknowledged = kept.tail().borrow().durable;
    assert!(store.read(large.id(), 3).unwrap().is_some(), "reads go on");
    // Deleting makes room in the logs, without a write there first.
    store.delete(large.id());
    store.manual.pass(1_000_000_000);
    store.manual.settle();
    let stats = store.manual.storage.stats();
    assert!(!stats.no_space && stats.logs_removed > 0, "{stats:?}");
    assert_eq!(kept.tail().borrow().durable, count);
    assert!(acknowledged <= count);
    store.append(&*kept, 3000);
    store.fs.set_bytes_max(None);
    let mut store = Store::open_with(store.kill(), keeping());
    assert_eq!(store.recover(kept.id()).unwrap().entry_count, count + 1);
}
