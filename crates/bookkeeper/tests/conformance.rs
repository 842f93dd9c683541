//! The laws of the `ledger` contract, on bookies that speak the protocol over TCP.

mod cluster;

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use pharos_bookkeeper::{BookKeeper, Options};
use pharos_ledger::conformance::{Subject, run_all};
use pharos_ledger::{BoxFuture, LedgerEngine};

use cluster::{Cluster, options};

struct OnBookies {
    cluster: Cluster,
    engine: Arc<BookKeeper>,
}

/// Time-outs are no part of the laws.
fn patient() -> Options {
    Options {
        add_timeout: Duration::from_secs(20),
        read_timeout: Duration::from_secs(20),
        speculative_after: Duration::from_secs(20),
        ..options()
    }
}

fn fresh() -> OnBookies {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let cluster = Cluster::start(3).await;
        let engine = Arc::new(cluster.engine(patient()).await);
        OnBookies { cluster, engine }
    })
}

impl Subject for OnBookies {
    fn engine(&self) -> Arc<dyn LedgerEngine> {
        Arc::clone(&self.engine) as Arc<dyn LedgerEngine>
    }

    /// Another process takes over; the first one did not say goodbye.
    fn crash(&mut self) -> BoxFuture<'_, ()> {
        async {
            self.engine = Arc::new(self.cluster.engine(patient()).await);
        }
        .boxed()
    }

    /// The last entries of a ledger do not say of themselves that they are confirmed.
    fn knows_open_ledgers(&self) -> bool {
        false
    }
}

#[test]
fn the_bookkeeper_engine_keeps_the_laws() {
    run_all(fresh);
}
