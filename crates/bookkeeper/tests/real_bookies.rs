//! The laws of the `ledger` contract on Apache's bookies and ZooKeeper. Run by tests/bookkeeper/run.sh.

#![expect(clippy::unwrap_used, reason = "a test")]

mod servers;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use pharos_bookkeeper::{BookKeeper, LedgerStore, Options};
use pharos_ledger::conformance::{Subject, run_all};
use pharos_ledger::{AppendError, BoxFuture, CreateOptions, LedgerEngine};
use pharos_types::EntryId;

/// Time-outs are no part of the laws.
fn patient() -> Options {
    Options {
        add_timeout: Duration::from_secs(20),
        read_timeout: Duration::from_secs(20),
        speculative_after: Duration::from_secs(20),
        ..Options::default()
    }
}

struct OnBookies(Arc<BookKeeper>);

/// A cluster without ledgers.
fn fresh() -> OnBookies {
    servers::run(async {
        let ledgers = LedgerStore::new(servers::store().await, "ledgers");
        for ledger in ledgers.list().await.unwrap() {
            ledgers.delete(ledger).await.unwrap();
        }
        OnBookies(Arc::new(servers::engine(patient()).await))
    })
}

impl Subject for OnBookies {
    fn engine(&self) -> Arc<dyn LedgerEngine> {
        Arc::clone(&self.0) as Arc<dyn LedgerEngine>
    }

    /// Another process takes over; the first one did not say goodbye.
    fn crash(&mut self) -> BoxFuture<'_, ()> {
        async { self.0 = Arc::new(servers::engine(patient()).await) }.boxed()
    }

    /// Bookies take frames of 5 MiB, unless they are told otherwise.
    fn takes_large_entries(&self) -> bool {
        false
    }

    /// The last entries of a ledger do not say of themselves that they are confirmed.
    fn knows_open_ledgers(&self) -> bool {
        false
    }
}

#[test]
fn the_laws_hold_on_apaches_bookies() {
    run_all(fresh);
}

#[test]
fn the_largest_entry_is_one_that_bookies_take() {
    servers::run(async {
        let engine = servers::engine(patient()).await;
        let writer = engine.create(CreateOptions::default()).await.unwrap();
        let size = patient().entry_bytes_max;
        let largest = Bytes::from((0..size).map(|at| (at >> 8) as u8).collect::<Vec<_>>());
        writer.append(largest.clone()).unwrap();
        let refused = writer.append(Bytes::from(vec![0; size + 1]));
        assert!(
            matches!(refused, Err(AppendError::TooLarge { .. })),
            "{refused:?}"
        );
        writer.append(Bytes::from_static(b"x")).unwrap();
        servers::durable(&*writer, 2).await;
        writer.close().await.unwrap();
        let found = engine.read(writer.id(), EntryId(0), 1, 1).await.unwrap();
        assert!(found[0].payload == largest, "it comes back byte for byte");
    });
}
