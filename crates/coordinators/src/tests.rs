//! Coordinators over stores that outlive their broker.

use std::sync::Arc;
use std::time::Duration;

use pharos_broker::ids::ShardId;
use pharos_broker::{Broker, Options, Threads};
use pharos_catalog::{Catalog, CatalogOptions};
use pharos_ledger::LedgerEngine as _;
use pharos_ledger::memory::MemoryEngine;
use pharos_managed_ledger::cursor_log::Record;
use pharos_metadata::Memory;
use pharos_transactions::keys;
use pharos_types::{TopicName, TxnId, TxnOutcome};

use super::*;
use crate::log::{LogFailed, durable};

const LIMITS: CoordinatorLimits = CoordinatorLimits {
    active_max: 2,
    active_of_role_max: 0,
    timeout_max_ms: 60_000,
};

struct World {
    engine: Arc<MemoryEngine>,
    metadata: Arc<Memory>,
}

/// Run of a broker, from start to stop.
struct Life {
    broker: Broker,
    threads: Threads,
    transactions: Arc<Transactions>,
}

impl World {
    async fn begin(&self, coordinators: u32, serving: u32) -> Life {
        let catalog = Catalog::open(self.metadata.clone(), CatalogOptions::default())
            .await
            .unwrap();
        let options = Options {
            transaction_coordinators: coordinators,
            ..Options::default()
        };
        let codec = &pharos_wire::message::PulsarEntries;
        let (broker, threads) = pharos_broker::start(
            options,
            catalog,
            self.engine.clone(),
            self.metadata.clone(),
            codec,
        )
        .unwrap();
        let transactions = Transactions::open(&broker, serving, LIMITS).await.unwrap();
        Life {
            broker,
            threads,
            transactions,
        }
    }
}

impl Life {
    async fn make_topic(&self) {
        let catalog = &self.broker.shared.catalog;
        catalog.ensure_topic(&topic(), true).await.unwrap();
    }

    /// On the first shard, where the coordinators are.
    async fn on_shard<R, F>(&self, work: impl FnOnce(Arc<Transactions>) -> F + Send + 'static) -> R
    where
        R: Send + 'static,
        F: Future<Output = R> + 'static,
    {
        let transactions = self.transactions.clone();
        let done = self.broker.call(ShardId(0), move |_| work(transactions));
        done.await.unwrap()
    }

    async fn until(&self, what: &str, is_so: impl Fn(&Transactions) -> bool) {
        for _ in 0..6000 {
            if is_so(&self.transactions) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("never happened: {what}");
    }

    async fn end(self) {
        drop(self.transactions);
        let threads = self.threads;
        tokio::task::spawn_blocking(move || threads.stop()).await.unwrap();
    }
}

fn world() -> World {
    World {
        engine: Arc::new(MemoryEngine::new()),
        metadata: Arc::new(Memory::new()),
    }
}

fn topic() -> TopicName {
    "persistent://public/default/t".parse().unwrap()
}

async fn begin(life: &Life, timeout_ms: u64) -> Result<TxnId, TxnError> {
    life.on_shard(move |all| async move { all.begin(0, Some("me"), timeout_ms).await })
        .await
}

/// Stores a decision as if the process had died right after, before a participant received it.
async fn decide(life: &Life, txn: TxnId, outcome: TxnOutcome) {
    life.on_shard(move |all| async move {
        let log = all.log(txn.most).unwrap().clone();
        let changed = log.change(|records| {
            all.coordinators().with(txn.most, |state| {
                state.end(txn, outcome).unwrap();
                let value = state.get(txn).unwrap().encode();
                let key = keys::live(txn.least);
                records.push(Record::Noted { key, value });
            });
            Ok::<(), LogFailed>(())
        });
        durable(&log, changed.unwrap().1).await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_decided_is_finished_by_the_next_broker_and_what_was_open_is_as_it_was() {
    let world = world();
    let life = world.begin(1, 1).await;
    life.make_topic().await;
    let (decided, open) = (
        begin(&life, 60_000).await.unwrap(),
        begin(&life, 60_000).await.unwrap(),
    );
    assert!(matches!(begin(&life, 1).await, Err(TxnError::TooMany { .. })));
    assert!(matches!(
        begin(&life, 60_001).await,
        Err(TxnError::TooLong { .. })
    ));
    life.on_shard(move |all| async move {
        let topics = vec![CalledTopic::from(topic())];
        all.add(decided, Some("me"), topics.clone(), Vec::new())
            .await
            .unwrap();
        let refused = all.add(decided, Some("other"), topics, Vec::new()).await;
        assert!(matches!(refused, Err(AddError::Txn(TxnError::NotFound(_)))));
    })
    .await;
    decide(&life, decided, TxnOutcome::Committed).await;
    assert_eq!(life.transactions.status(decided), Some(TxnStatus::Committing));
    life.end().await;

    let life = world.begin(1, 1).await;
    life.until("the end of what was decided", |all| all.status(decided).is_none())
        .await;
    assert_eq!(life.transactions.status(open), Some(TxnStatus::Open));
    let next = begin(&life, 60_000).await.unwrap();
    assert!(next > open, "an id is given out once");
    life.transactions.abort(next).await.unwrap();
    assert!(matches!(
        life.transactions.abort(next).await,
        Err(TxnError::NotFound(_))
    ));
    life.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_is_gone_has_nothing_to_end() {
    let world = world();
    let life = world.begin(1, 1).await;
    life.make_topic().await;
    let txn = begin(&life, 60_000).await.unwrap();
    life.on_shard(move |all| async move {
        let topics = vec![CalledTopic::from(topic())];
        all.add(txn, Some("me"), topics, Vec::new()).await.unwrap();
    })
    .await;
    life.broker.delete_topic(ShardId(0), topic(), true).await.unwrap();
    let ended =
        life.on_shard(move |all| async move { all.end(txn, Some("me"), TxnOutcome::Committed).await });
    ended.await.unwrap();
    life.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn coordinators_that_serve_no_more_end_what_they_have() {
    let world = world();
    let life = world.begin(2, 2).await;
    let txn = life
        .on_shard(|all| async move { all.begin(1, None, 300).await })
        .await
        .unwrap();
    life.end().await;
    assert_eq!(stored_coordinators(&*world.metadata).await, Ok(2));
    let life = world.begin(2, 0).await;
    assert!(matches!(begin(&life, 1).await, Err(TxnError::NoCoordinator(0))));
    life.until("its time is over", |all| all.status(txn).is_none())
        .await;
    life.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_end_of_a_transaction_is_answered_while_the_log_takes_nothing() {
    let world = world();
    let life = world.begin(1, 1).await;
    let txn = begin(&life, 60_000).await.unwrap();
    // Another broker fences every ledger: the log takes no more records.
    for id in world.engine.list().await.unwrap() {
        world.engine.recover(id).await.unwrap();
    }
    for _ in 0..3 {
        let ended =
            life.on_shard(move |all| async move { all.end(txn, Some("me"), TxnOutcome::Committed).await });
        let ended = tokio::time::timeout(Duration::from_secs(60), ended).await;
        assert!(matches!(ended, Ok(Err(TxnError::Log(_)))), "{ended:?}");
    }
    life.end().await;

    // Nothing of the decision was stored: the next broker has the transaction open, and ends it.
    let life = world.begin(1, 1).await;
    life.make_topic().await;
    let ended = life.on_shard(move |all| async move { all.end(txn, Some("me"), TxnOutcome::Aborted).await });
    ended.await.unwrap();
    life.end().await;
}
