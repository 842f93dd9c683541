//! The verbs over a broker with two shards, all in memory, with clients that live on the shards.

#[path = "../../../broker/src/tests/harness/mod.rs"]
#[allow(dead_code, unused_imports, reason = "the tests of the broker use more of it")]
mod harness;

mod clients;
mod log;
mod partitioned;
mod placement;
mod subscriptions;
mod topics;

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use pharos_admin_api::TopicStats;
use pharos_broker::broker::start_among;
use pharos_broker::error::{ProducerError, SubscribeError, TopicError};
use pharos_broker::ids::ShardId;
use pharos_broker::options::Options;
use pharos_catalog::schema::{SchemaInfo, SchemaType};
use pharos_catalog::{Catalog, CatalogOptions};
use pharos_ledger::memory::MemoryEngine;
use pharos_metadata::{Memory, MetadataStore};
use pharos_runtime::clock;
use pharos_topic::{StartAt, SubscriptionType};
use pharos_types::{Position, TopicName};
use pharos_wire::message::{PulsarEntries, encode_entry};
use pharos_wire::proto::MessageMetadata;

use crate::*;
use harness::{
    CallEffect, Client, Life, Wish, World, entry, fill, is_whole, settled, subscription, topic, until,
};

/// A broker of two shards, and the verbs over it.
struct Bench {
    below: harness::Bench,
    admin: Resources,
}

impl Deref for Bench {
    type Target = harness::Bench;

    fn deref(&self) -> &Self::Target {
        &self.below
    }
}

impl Bench {
    fn of(broker: harness::Bench) -> Self {
        let admin = Resources::of(&broker.broker);
        Self { below: broker, admin }
    }

    async fn new() -> Self {
        Self::of(harness::Bench::new().await)
    }

    /// Starts a broker that is one of several, with this `ownership`.
    async fn among(ownership: Arc<dyn pharos_cluster::Ownership>) -> Self {
        let metadata: Arc<dyn MetadataStore> = Arc::new(Memory::new());
        let catalog = Catalog::open(metadata.clone(), CatalogOptions::default())
            .await
            .unwrap();
        let options = Options {
            shards: 2,
            ..Options::default()
        };
        let engine = Arc::new(MemoryEngine::new());
        let started = start_among(options, catalog, engine, metadata, &PulsarEntries, ownership);
        Self::of(harness::Bench::of(started.unwrap()))
    }

    /// With a topic.
    async fn with_topic(name: &str) -> (Self, TopicName) {
        let (bench, name) = harness::Bench::with_topic(name).await;
        (Self::of(bench), name)
    }

    /// A subscription by the admin verb, without properties.
    async fn make_subscription(&self, name: &TopicName, sub: &str, place: Place) {
        let (name, sub) = (name.clone(), subscription(sub));
        let subscriptions = &self.admin.subscriptions;
        let made = subscriptions.create_subscription(name, sub, place, BTreeMap::new(), false);
        made.await.unwrap();
    }

    async fn stats(&self, name: &TopicName) -> TopicStats {
        self.admin
            .stats
            .stats(name.clone(), StatsFlags::default())
            .await
            .unwrap()
    }

    /// Waits until stats say so.
    async fn stats_until(&self, name: &TopicName, is_true: impl Fn(&TopicStats) -> bool) -> TopicStats {
        for _ in 0..5_000 {
            let stats = self.stats(name).await;
            if is_true(&stats) {
                return stats;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        panic!("what was waited for did not come: {:?}", self.stats(name).await);
    }
}

/// A stored batch.
fn batch(count: i32) -> Bytes {
    let metadata = MessageMetadata {
        producer_name: "p".to_owned(),
        publish_time: clock::wall_ms(),
        num_messages_in_batch: Some(count),
        ..MessageMetadata::default()
    };
    encode_entry(&metadata, b"batch")
}
