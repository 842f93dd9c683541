//! Managed ledgers and cursor logs on the embedded engine and store, over kills and restarts.

#![expect(clippy::unwrap_used, reason = "a test that fails panics")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::join_all;
use futures_util::stream::{FuturesUnordered, StreamExt};
use pharos_ledger::LedgerEngine;
use pharos_managed_ledger::cursor_log::{CursorLogOptions, Record, RollEvent, Slot, SubscriptionId};
use pharos_managed_ledger::{
    AckState, CursorLog, MaintenanceEvent, ManagedLedger, OpenMode, Options, Retention, orphans,
};
use pharos_metadata::{Embedded, MetadataStore};
use pharos_storage::Storage;
use pharos_types::Ordinal;

const NAME: &str = "public/default/persistent/t";

struct Node {
    engine: Arc<Storage>,
    metadata: Arc<Embedded>,
}

impl Node {
    fn open(dir: &Path) -> Self {
        std::fs::create_dir_all(dir.join("ledgers")).unwrap();
        let metadata = Embedded::open(&dir.join("metadata"), &pharos_metadata::Options::default());
        let engine = Storage::open(&dir.join("ledgers"), pharos_storage::Options::default());
        Self {
            engine: engine.unwrap(),
            metadata: Arc::new(metadata.unwrap()),
        }
    }

    async fn topic(&self, name: &str, options: Options) -> ManagedLedger {
        let (engine, metadata) = (Arc::clone(&self.engine), Arc::clone(&self.metadata));
        ManagedLedger::open(name, engine, metadata, options, OpenMode::Create, 0)
            .await
            .unwrap()
    }

    async fn cursors(&self, topic: &ManagedLedger) -> CursorLog {
        CursorLog::open(topic, tiny(), 0).await.unwrap()
    }
}

fn small() -> Options {
    let cache_bytes_max = 2_000;
    Options {
        ledger_entries_max: 20,
        ledger_age_ms_min: 0,
        cache_bytes_max,
        ..Options::default()
    }
}

fn tiny() -> CursorLogOptions {
    CursorLogOptions {
        roll_bytes_min: 200,
        ..CursorLogOptions::default()
    }
}

fn run(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
        .block_on(test);
}

async fn maintain(topic: &mut ManagedLedger) {
    let mut steps = FuturesUnordered::new();
    loop {
        while let Some(step) = topic.take_maintenance(1) {
            steps.push(step);
        }
        let Some(done) = steps.next().await else { return };
        let event = topic.on_maintenance(done, 1);
        assert!(
            !matches!(event, MaintenanceEvent::Failed(_) | MaintenanceEvent::Retrying(_)),
            "{event:?}"
        );
    }
}

async fn commit(cursors: &mut CursorLog) {
    let ticket = cursors.commit();
    while let Some(step) = cursors.take_maintenance(1) {
        let done = step.await;
        let event = cursors.on_maintenance(done, 1);
        assert!(
            !matches!(event, RollEvent::Failed(_) | RollEvent::Retrying(_)),
            "{event:?}"
        );
    }
    ticket.durable().await.unwrap();
}

/// The directory as a process killed at a quiet moment leaves it.
fn killed(from: &Path, to: &Path) {
    for dir in ["metadata", "ledgers/journal", "ledgers/ledgers"] {
        std::fs::create_dir_all(to.join(dir)).unwrap();
        for entry in std::fs::read_dir(from.join(dir)).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_file() {
                std::fs::copy(entry.path(), to.join(dir).join(entry.file_name())).unwrap();
            }
        }
    }
}

async fn check(topic: &ManagedLedger, first: u64, end: u64) {
    assert_eq!(
        (topic.first(), topic.end(), topic.durable_end()),
        (Ordinal(first), Ordinal(end), Ordinal(end))
    );
    let mut at = topic.first();
    while at < topic.durable_end() {
        for entry in topic.read(at, 7, 1 << 20).await.unwrap() {
            assert_eq!(
                (entry.ordinal, entry.payload),
                (at, Bytes::from(at.0.to_string()))
            );
            at = at.next();
        }
    }
    let found = topic.find_first(|payload| payload.len() >= 3).await.unwrap();
    assert_eq!(found, Ordinal(100.max(first)));
}

#[test]
fn a_killed_node_finds_its_topics_and_cursors_again() {
    let (dir, kept) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    run(async {
        let node = Node::open(dir.path());
        let mut topic = node.topic(NAME, small()).await;
        let mut cursors = node.cursors(&topic).await;
        let subscription = SubscriptionId(0);
        let (name, properties) = ("s".to_owned(), BTreeMap::new());
        let created = Record::SubscriptionCreated {
            subscription,
            name,
            kind: 0,
            properties,
            facts: Vec::new(),
        };
        cursors.queue(created).unwrap();
        let (slot, acks) = (Slot(0), AckState::default());
        let consumer = String::new();
        cursors
            .queue(Record::CursorCreated {
                slot,
                subscription,
                consumer,
                facts: Vec::new(),
                acks,
            })
            .unwrap();
        for ordinal in 0..250u64 {
            topic.append(Bytes::from(ordinal.to_string())).unwrap();
            maintain(&mut topic).await;
            if ordinal % 10 == 9 {
                let acks = AckState::new(Ordinal(ordinal / 2));
                cursors.queue(Record::CursorMoved { slot, acks }).unwrap();
                commit(&mut cursors).await;
            }
        }
        topic.durable_watch().reaches(Ordinal(249)).await.unwrap();
        check(&topic, 0, 250).await;
        let trimmed = topic.trim(Ordinal(124), Retention::NONE, 1);
        assert!(trimmed.len() >= 2, "{trimmed:?}");
        maintain(&mut topic).await;
        let first = topic.first().0;
        killed(dir.path(), kept.path());

        let survivor = Node::open(kept.path());
        assert!(
            orphans(&*survivor.engine, &*survivor.metadata)
                .await
                .unwrap()
                .is_empty()
        );
        let again = survivor.topic(NAME, small()).await;
        check(&again, first, 250).await;
        let cursors = survivor.cursors(&again).await;
        assert_eq!(cursors.acks(slot), Some(&AckState::new(Ordinal(124))));
        cursors.close(1).await.unwrap();
        again.close().await.unwrap();
        survivor.engine.shutdown().await;
        survivor.metadata.shutdown().await;
    });
    run(async {
        let node = Node::open(kept.path());
        let topic = node.topic(NAME, small()).await;
        assert_eq!(topic.end(), Ordinal(250));
        assert_eq!(node.cursors(&topic).await.cursors().len(), 1);
        assert!(
            pharos_managed_ledger::exists(NAME, &*node.metadata)
                .await
                .unwrap()
        );
    });
}

#[test]
fn a_thousand_topics_open_together_and_again() {
    let dir = tempfile::tempdir().unwrap();
    run(async {
        let node = Node::open(dir.path());
        for round in 0..2 {
            let names: Vec<_> = (0..1_000)
                .map(|topic| format!("public/default/persistent/t-{topic}"))
                .collect();
            let mut topics = join_all(names.iter().map(|name| node.topic(name, Options::default()))).await;
            for topic in &mut topics {
                assert_eq!(topic.append(Bytes::from("x")).unwrap().ordinal, Ordinal(round));
            }
            join_all(
                topics
                    .iter()
                    .map(|topic| async { topic.durable_watch().reaches(Ordinal(round)).await.unwrap() }),
            )
            .await;
        }
        assert_eq!(node.engine.list().await.unwrap().len(), 2_000);
    });
}
