//! Operations that still work when a device is full to the last byte, or the process has all its files open; all of
//! them work again afterwards, without a restart.

use std::sync::Arc;

use pharos_ledger::{AppendError, CreateOptions, Durability, LedgerEngine, LedgerWriter};
use pharos_runtime::fs::OpenHow;
use pharos_storage::Options;

use crate::space::{keeping, store_with};
use crate::{Store, options, payload};

const SECOND: u64 = 1_000_000_000;

/// Appends to a ledger until that is refused, then takes all the room that is left.
fn fill_up(store: &mut Store, writer: &dyn LedgerWriter) -> u64 {
    store.fs.set_bytes_max(Some(store.fs.bytes() + (200 << 10)));
    let mut count = writer.tail().borrow().durable;
    let refused = loop {
        match writer.append(payload(writer.id(), count, 3000)) {
            Ok(_) => count += 1,
            Err(refused) => break refused,
        }
        store.manual.settle();
    };
    assert!(matches!(refused, AppendError::NoSpace { .. }), "{refused:?}");
    store.fs.set_bytes_max(Some(store.fs.bytes()));
    writer.tail().borrow().durable
}

#[test]
fn deletions_go_on_a_full_device_until_there_is_room() {
    let options = Options {
        journal_reserve_bytes: 64 << 10,
        ..keeping()
    };
    let mut store = store_with(options.clone());
    let kept = store.create();
    // Each deletion takes a block, and no segment has so many.
    let many: Vec<_> = (0..90).map(|_| store.create()).collect();
    for writer in &many {
        store.append(&**writer, 100);
    }
    let large = store.create();
    fill_up(&mut store, &*large);
    assert!(
        store
            .manual
            .storage
            .why_not_ready()
            .is_some_and(|fault| fault.is_transient())
    );
    for writer in &many {
        store.delete(writer.id());
    }
    store.delete(large.id());
    store.manual.pass(SECOND);
    store.manual.settle();
    assert_eq!(store.list(), [kept.id()]);
    assert!(store.manual.storage.why_not_ready().is_none());
    for _ in 0..10 {
        store.append(&*kept, 3000);
    }
    let kept = kept.id();
    let mut store = Store::open_with(store.kill(), options);
    assert_eq!(store.list(), [kept]);
    assert_eq!(store.recover(kept).unwrap().entry_count, 10);
}

#[test]
fn without_any_room_a_deletion_is_refused_and_not_forgotten() {
    // No reserve at all: what a deletion on a full device was before there was one, but for the answer.
    let mut store = store_with(options());
    let many: Vec<_> = (0..120).map(|_| store.create()).collect();
    let large = store.create();
    fill_up(&mut store, &*large);
    let storage = Arc::clone(&store.manual.storage);
    let refused = many.iter().find_map(|writer| {
        let deleted = store.manual.run(storage.delete(writer.id()));
        deleted.err().map(|error| (writer.id(), error))
    });
    let (id, error) = refused.unwrap();
    assert!(error.is_transient(), "{error}");
    assert!(store.list().contains(&id));
    store.fs.set_bytes_max(None);
    store.manual.pass(SECOND);
    store.manual.settle();
    store.delete(id);
    assert!(!store.list().contains(&id));
}

#[test]
fn what_waits_for_room_is_given_up_after_a_while() {
    let mut store = store_with(keeping());
    let (writer, other) = (store.create(), store.create());
    store.append(&*other, 100);
    store.fs.set_bytes_max(Some(store.fs.bytes()));
    for entry in 0..30 {
        writer.append(payload(writer.id(), entry, 4000)).unwrap();
    }
    store.manual.settle();
    let stuck = writer.tail().borrow().durable;
    assert!((1..30).contains(&stuck) && writer.tail().borrow().failed.is_none());
    // It is closed meanwhile, and that caller hears of it too.
    let closing = writer.close();
    store.manual.settle();
    store.manual.pass(4 * SECOND);
    store.manual.settle();
    let error = store.manual.run(closing).unwrap_err();
    assert!(matches!(error, AppendError::GivenUp { .. }), "{error}");
    let tail = writer.tail().borrow().clone();
    assert!(tail.failed.is_some_and(|fault| fault.is_transient()));
    assert_eq!(tail.durable, stuck);
    let again = writer.append(payload(writer.id(), 12, 100)).unwrap_err();
    assert!(
        again.is_transient() || matches!(again, AppendError::Closed { .. }),
        "{again}"
    );
    // The others have lost nothing, and what is left of it is sealed on a full device.
    assert_eq!(store.recover(writer.id()).unwrap().entry_count, stuck);
    assert!(!store.manual.storage.stats().poisoned);
    store.fs.set_bytes_max(None);
    store.manual.pass(SECOND);
    store.manual.settle();
    store.append(&*other, 3000);
    for entry in 0..stuck {
        let found = store.read(writer.id(), entry).unwrap().unwrap();
        assert_eq!(found, payload(writer.id(), entry, 4000));
    }
}

#[test]
fn places_of_consumers_are_stored_while_publishing_is_refused() {
    let mut store = store_with(keeping());
    let storage = Arc::clone(&store.manual.storage);
    let places = CreateOptions {
        is_background: true,
        durability: Durability::Sync,
        ..CreateOptions::default()
    };
    let places = store.manual.run(storage.create(places)).unwrap();
    let large = store.create();
    let acknowledged = fill_up(&mut store, &*large);
    for _ in 0..5 {
        store.append(&*places, 100);
    }
    // They end before deletions do.
    let taken = loop {
        let entry = places.tail().borrow().durable;
        match places.append(payload(places.id(), entry, 100)) {
            Ok(_) => store.manual.settle(),
            Err(refused) => {
                assert!(matches!(refused, AppendError::NoSpace { .. }), "{refused:?}");
                break entry;
            }
        }
        if entry > 10_000 {
            // Room comes back as fast as it is taken: flushed, and the journal goes on in a new reserve.
            break entry;
        }
    };
    assert!(taken >= 5);
    let refused = large.append(payload(large.id(), acknowledged, 100)).unwrap_err();
    assert!(matches!(refused, AppendError::NoSpace { .. }), "{refused:?}");
    store.delete(large.id());
    let places = places.id();
    let mut store = Store::open_with(store.kill(), keeping());
    assert_eq!(store.recover(places).unwrap().entry_count, taken);
}

#[test]
fn a_stop_on_a_full_device_loses_nothing_that_was_acknowledged() {
    let mut store = store_with(keeping());
    let (large, small) = (store.create(), store.create());
    store.append(&*small, 100);
    let acknowledged = fill_up(&mut store, &*large);
    let (large, small) = (large.id(), small.id());
    let fs = store.stop();
    let mut store = Store::open_with(fs, keeping());
    assert_eq!(store.recover(large).unwrap().entry_count, acknowledged);
    assert_eq!(store.recover(small).unwrap().entry_count, 1);
    for entry in 0..acknowledged {
        let found = store.read(large, entry).unwrap().unwrap();
        assert_eq!(found, payload(large, entry, 3000));
    }
}

#[test]
fn a_store_without_free_files_waits_and_goes_on() {
    let small = Options {
        write_cache_bytes: 32 << 10,
        ..keeping()
    };
    let mut store = store_with(small.clone());
    let writer = store.create();
    store.append(&*writer, 3000);
    store.fs.set_handles_max(Some(0));
    // More than segments and memory have room for, so segments and logs are needed.
    for entry in 1..40 {
        writer.append(payload(writer.id(), entry, 3000)).unwrap();
    }
    for _ in 0..10 {
        store.manual.settle();
        store.manual.pass(SECOND);
    }
    let stuck = writer.tail().borrow().durable;
    assert!((1..40).contains(&stuck), "{stuck}");
    let fault = store.manual.storage.why_not_ready().unwrap();
    assert!(
        fault.is_transient() && !store.manual.storage.stats().poisoned,
        "{fault}"
    );
    assert!(writer.tail().borrow().failed.is_none());
    assert!(store.read(writer.id(), 0).unwrap().is_some(), "reads go on");

    store.fs.set_handles_max(None);
    for _ in 0..10 {
        store.manual.pass(SECOND);
        store.manual.settle();
    }
    assert_eq!(writer.tail().borrow().durable, 40);
    assert!(store.manual.storage.why_not_ready().is_none());
    let names = store.fs.mount().list(&crate::journal()).unwrap();
    let segments = names.iter().filter(|name| name.ends_with(".seg")).count() as u64;
    assert!(
        segments <= store.manual.storage.stats().segments + 1,
        "none was left lying about: {names:?}"
    );
    store.flush();
    let id = writer.id();
    let mut store = Store::open_with(store.kill(), small);
    assert_eq!(store.recover(id).unwrap().entry_count, 40);
}

#[test]
fn a_stop_without_files_ends_and_loses_nothing() {
    let mut store = store_with(keeping());
    let writer = store.create();
    store.append(&*writer, 3000);
    store.fs.set_handles_max(Some(0));
    let id = writer.id();
    let fs = store.stop();
    fs.set_handles_max(None);
    let mut store = Store::open_with(fs, keeping());
    assert_eq!(store.recover(id).unwrap().entry_count, 1);
}

#[test]
fn removing_the_reserves_loses_nothing_but_them() {
    let mut store = store_with(keeping());
    let writer = store.create();
    store.append(&*writer, 100);
    let id = writer.id();
    let fs = store.kill();
    for dir in [crate::journal(), crate::ledgers()] {
        fs.mount().remove(&dir.join("RESERVE")).unwrap();
    }
    let mut store = Store::open_with(fs, keeping());
    assert_eq!(store.recover(id).unwrap().entry_count, 1);
    store.manual.settle();
    for (dir, bytes) in [(crate::journal(), 8 << 10), (crate::ledgers(), 16 << 10)] {
        let reserve = store
            .fs
            .mount()
            .open(&dir.join("RESERVE"), OpenHow::READ)
            .unwrap();
        assert_eq!(reserve.len().unwrap(), bytes);
    }
}
