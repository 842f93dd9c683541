//! Stores that outlive a broker, and a topic that is whole or not there.

use std::sync::Arc;

use pharos_broker::options::Options;
use pharos_ledger::memory::MemoryEngine;
use pharos_metadata::{Memory, MetadataStore as _};
use pharos_topic::StartAt;
use pharos_types::TopicName;

use super::{Bench, Life, until};

/// State that outlives a broker.
pub(crate) struct World {
    pub(crate) engine: MemoryEngine,
    store: Arc<Memory>,
}

impl World {
    pub(crate) fn new() -> Self {
        Self {
            engine: MemoryEngine::new(),
            store: Arc::new(Memory::new()),
        }
    }

    pub(crate) async fn start(&self, life: &Life) -> Bench {
        self.start_with(life, |_| ()).await
    }

    /// With other settings.
    pub(crate) async fn start_with(&self, life: &Life, change: impl FnOnce(&mut Options)) -> Bench {
        let engine = life.engine(Arc::new(self.engine.clone()));
        Bench::on_stores(engine, life.store(self.store.clone()), change).await
    }

    /// Keys of the store that have to do with topic `t` of the default namespace.
    pub(crate) async fn keys(&self) -> Vec<String> {
        let keys = self.store.list("").await.unwrap();
        let is_of_topic = |key: &String| {
            key.split('/')
                .any(|part| part == "t" || part.starts_with("t-partition-"))
        };
        keys.into_iter().filter(is_of_topic).collect()
    }
}

/// Fills a topic: two subscriptions, three messages.
pub(crate) async fn fill(bench: &Bench, name: &TopicName) {
    for sub in ["a", "b"] {
        bench.create_subscription(name, sub, StartAt::Earliest).await;
    }
    bench.publish(bench.home(name), name, &["1", "2", "3"]).await;
}

/// True if a topic exists with everything that [`fill`] created; panics if it exists with less.
pub(crate) async fn is_whole(bench: &Bench, name: &TopicName) -> bool {
    if !bench.catalog().topic_exists(name) {
        return false;
    }
    let wanted = [("a".to_owned(), 3), ("b".to_owned(), 3)];
    assert_eq!(bench.backlogs(name).await, wanted.into(), "{name}");
    true
}

/// Waits until nothing that was begun is left to be finished.
pub(crate) async fn settled(bench: &Bench) {
    until(|| bench.catalog().deletions().unfinished().is_empty()).await;
}
