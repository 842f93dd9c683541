//! Policies of single topics, read from events and said in events.

use std::sync::atomic::{AtomicU32, Ordering};

use futures_util::FutureExt as _;
use pharos_ledger::LedgerWriter;
use pharos_metadata::{BoxFuture, Fault};

use super::super::avro_value::AvroCodec;
use super::super::bytes_of::{MessageMetadata, StoredLedger, StoredManagedLedger};
use super::super::event_logs::{EventLog, EventLogError, EventLogs, TakenEventLog};
use super::super::event_message::NewEvent;
use super::super::policy_names;
use super::*;
use crate::policy;

const EVENTS: &str = "managed-ledgers/acme/cars/persistent/__change_events";

/// Takes logs over as managed ledgers do, in their plainest form: the ledgers are sealed, and a new one is named.
pub(super) struct Logs {
    store: Arc<Memory>,
    ledgers: Arc<MemoryEngine>,
    /// Number of next appends that find that another broker took the log over.
    lost: AtomicU32,
}

impl Logs {
    async fn take(&self, key: String, may_create: bool) -> Option<Box<dyn EventLog>> {
        let writer = loop {
            let found = self.store.get(&key).await.unwrap();
            if found.is_none() && !may_create {
                return None;
            }
            let expect = found
                .as_ref()
                .map_or(Expect::Absent, |found| Expect::Version(found.version));
            let value = found.map(|found| found.value).unwrap_or_default();
            let mut info = StoredManagedLedger::decode(value).unwrap();
            for ledger in &info.ledgers {
                let id = LedgerId(u64::try_from(ledger.ledger_id).unwrap());
                self.ledgers.recover(id).await.unwrap();
            }
            let writer = self.ledgers.create(CreateOptions::default()).await.unwrap();
            info.ledgers.push(StoredLedger {
                ledger_id: i64::try_from(writer.id().0).unwrap(),
                offload_context: None,
            });
            tokio::task::yield_now().await;
            let info = info.encode_to_vec().into();
            if self.store.put(&key, info, expect).await.is_ok() {
                break writer;
            }
        };
        let is_lost = self.lost.load(Ordering::Relaxed) > 0;
        if is_lost {
            self.lost.fetch_sub(1, Ordering::Relaxed);
            self.ledgers.recover(writer.id()).await.unwrap();
        }
        Some(Box::new(Log { writer, next: 0 }))
    }
}

impl EventLogs for Logs {
    fn open(&self, topic: &TopicName, may_create: bool) -> BoxFuture<'_, Result<TakenEventLog, Arc<Fault>>> {
        let path = format!("{}/persistent/{}", topic.namespace(), topic.local());
        async move { Ok(self.take(format!("managed-ledgers/{path}"), may_create).await) }.boxed()
    }
}

struct Log {
    writer: Arc<dyn LedgerWriter>,
    next: u64,
}

impl EventLog for Log {
    fn append(&mut self, entry: Bytes) -> BoxFuture<'_, Result<(u64, u64), EventLogError>> {
        async move {
            tokio::task::yield_now().await;
            self.writer.append(entry).map_err(|_| EventLogError::TakenOver)?;
            self.next += 1;
            Ok((self.writer.id().0, self.next - 1))
        }
        .boxed()
    }

    fn close(self: Box<Self>) -> BoxFuture<'static, ()> {
        async move {
            let _ = self.writer.close().await;
        }
        .boxed()
    }
}

impl Cluster {
    pub(super) fn logs(&self) -> Arc<Logs> {
        Arc::new(Logs {
            store: Arc::clone(&self.store),
            ledgers: Arc::clone(&self.ledgers),
            lost: AtomicU32::new(0),
        })
    }

    /// A broker of the cluster.
    pub(super) async fn broker(&self, logs: Arc<Logs>) -> Catalog {
        let options = CatalogOptions {
            cluster_name: "pc".into(),
            layout: MetadataLayout::Pulsar,
            ..CatalogOptions::default()
        };
        let facts = self.facts().with_events(logs, "pc");
        Catalog::open(Arc::new(facts), options).await.unwrap()
    }

    /// The last event: its metadata, and what it says.
    async fn last_event(&self) -> (MessageMetadata, Value) {
        let info = self.store.get(EVENTS).await.unwrap().unwrap();
        let info = StoredManagedLedger::decode(info.value).unwrap();
        let mut last = None;
        for ledger in info.ledgers {
            let id = LedgerId(u64::try_from(ledger.ledger_id).unwrap());
            let entries = self.ledgers.read(id, EntryId(0), 100, 1 << 20).await.unwrap();
            last = entries.into_iter().last().or(last);
        }
        taken_apart(&last.unwrap().payload)
    }
}

/// The metadata of a message, and its value by the recorded schema.
fn taken_apart(entry: &[u8]) -> (MessageMetadata, Value) {
    assert_eq!(entry[..2], [0x0e, 0x01]);
    let sum = u32::from_be_bytes(entry[2..6].try_into().unwrap());
    assert_eq!(sum, pharos_types::hash::crc32c(&entry[6..]));
    let size = usize::try_from(u32::from_be_bytes(entry[6..10].try_into().unwrap())).unwrap();
    let metadata = MessageMetadata::decode(&entry[10..10 + size]).unwrap();
    let value = match &entry[10 + size..] {
        [] => Value::Null,
        value => recorded_schema().read(value).unwrap(),
    };
    (metadata, value)
}

fn recorded_schema() -> AvroCodec {
    let stored = SchemaEntry::decode(&*entries()[&1][0]).unwrap();
    let info = SchemaInfo::decode(&*stored.schema_data).unwrap();
    assert_eq!(
        info.schema,
        include_bytes!("../pulsar_event.json"),
        "what is added where there is none"
    );
    AvroCodec::new(&info.schema).unwrap()
}

#[tokio::test]
async fn policies_of_topics_are_read_from_events() {
    let cluster = Cluster::recorded().await;
    let catalog = cluster.catalog().await;
    let policies = |name: &str| Value::Object(catalog.topic_policies(&topic(name)).0.clone());
    let plain = "persistent://acme/cars/plain";
    let retention = json!({"retentionSizeInMB": 9, "retentionTimeInMinutes": 7});
    assert_eq!(policies(plain), json!({"messageTTL": 33, "retention": retention}));
    let parts = json!({"maxConsumers": 12, "deduplicationEnabled": true});
    assert_eq!(policies("persistent://acme/cars/parts-partition-1"), parts);
    assert_eq!(
        policies("persistent://acme/cars/with-properties"),
        json!({}),
        "it was deleted"
    );
    // Without what was compacted it is the same: here nothing was trimmed yet.
    cluster
        .store
        .delete(
            "managed-ledgers/acme/cars/persistent/__change_events/__compaction",
            Expect::Any,
        )
        .await
        .unwrap();
    let again = cluster.catalog().await;
    assert_eq!(
        again.topic_policies(&topic(plain)),
        catalog.topic_policies(&topic(plain))
    );
}

#[tokio::test]
async fn what_was_compacted_counts_where_its_events_are_gone() {
    let cluster = Cluster::recorded().await;
    // All ledgers of the topic were trimmed.
    let key = "managed-ledgers/acme/cars/persistent/__change_events";
    cluster
        .store
        .put(key, Bytes::from_static(b"\x0a\x04\x08\x03\x20\x00"), Expect::Any)
        .await
        .unwrap();
    let catalog = cluster.catalog().await;
    let plain = catalog.topic_policies(&topic("persistent://acme/cars/plain"));
    assert_eq!(plain.get("messageTTL"), Some(&json!(33)));
}

#[test]
fn what_pulsar_said_is_said_in_the_same_bytes() {
    let schema = recorded_schema();
    for entry in &entries()[&0] {
        let (metadata, value) = taken_apart(entry);
        let size = metadata.encoded_len();
        assert_eq!(metadata.encode_to_vec(), entry[10..10 + size], "{metadata:?}");
        let payload = (!value.is_null()).then(|| {
            let policies = value["topicPoliciesEvent"]["policies"].as_object().unwrap();
            let ours = policy_names::to_event(&policy_names::of_event(policies.clone()), false);
            let mut event = value.clone();
            event["topicPoliciesEvent"]["policies"] = ours.into();
            schema.write(&event).unwrap()
        });
        assert_eq!(payload.as_deref().unwrap_or_default(), &entry[10 + size..]);
        let ours = NewEvent {
            key: metadata.partition_key.clone().unwrap(),
            cluster: Some("pc"),
            schema: 0,
            payload,
            time_ms: metadata.publish_time,
        };
        let (mut said, same) = taken_apart(&ours.to_entry());
        assert_eq!(same, value);
        said.producer_name.clone_from(&metadata.producer_name);
        said.sequence_id = metadata.sequence_id;
        assert_eq!(said, metadata);
    }
}

/// Each policy that a topic can have, as a client sets it.
fn one_of_each() -> Vec<(&'static str, Value)> {
    let rate = json!({
        "dispatchThrottlingRateInMsg": 5, "dispatchThrottlingRateInByte": 6_i64 << 40, "relativeToPublishRate": true,
        "ratePeriodInSecond": 2,
    });
    vec![
        (
            "retention",
            json!({"retentionTimeInMinutes": 7, "retentionSizeInMB": -1}),
        ),
        ("messageTTL", json!(33)),
        (
            "backlogQuota",
            json!({"destination_storage": {"limit": 9, "policy": "producer_exception"},
                "message_age": {"limitTime": 60, "policy": "consumer_backlog_eviction"}}),
        ),
        ("subscriptionExpirationTime", json!(10)),
        (
            "inactiveTopicPolicies",
            json!({"inactiveTopicDeleteMode": "delete_when_subscriptions_caught_up", "maxInactiveDurationSeconds": 5,
                "deleteWhileInactive": true}),
        ),
        ("maxProducers", json!(3)),
        ("maxConsumers", json!(4)),
        ("maxConsumersPerSubscription", json!(5)),
        ("maxSubscriptionsPerTopic", json!(6)),
        ("maxUnackedMessagesOnConsumer", json!(7)),
        ("maxUnackedMessagesOnSubscription", json!(8)),
        ("maxMessageSize", json!(9)),
        (
            "publishRate",
            json!({"publishThrottlingRateInMsg": 1, "publishThrottlingRateInByte": 2}),
        ),
        ("dispatchRate", rate.clone()),
        ("subscriptionDispatchRate", rate.clone()),
        ("replicatorDispatchRate", rate),
        (
            "subscribeRate",
            json!({"subscribeThrottlingRatePerConsumer": 3, "ratePeriodInSecond": 4}),
        ),
        (
            "delayedDelivery",
            json!({"active": false, "tickTime": 50, "maxDeliveryDelayInMillis": 60}),
        ),
        ("subscriptionTypesEnabled", json!(["Shared", "Key_Shared"])),
        (
            "autoSubscriptionCreation",
            json!({"allowAutoSubscriptionCreation": false}),
        ),
        ("schemaCompatibilityStrategy", json!("FULL_TRANSITIVE")),
        ("schemaValidationEnforced", json!(true)),
        (
            "persistence",
            json!({"bookkeeperEnsemble": 3, "bookkeeperWriteQuorum": 2, "bookkeeperAckQuorum": 1,
                "managedLedgerMaxMarkDeleteRate": 1.5}),
        ),
        (
            "offloadPolicies",
            json!({"managedLedgerOffloadDriver": "aws-s3", "s3ManagedLedgerOffloadBucket": "b",
                "managedLedgerOffloadedReadPriority": "bookkeeper-first", "managedLedgerOffloadThresholdInBytes": 5}),
        ),
        ("replication", json!(["pc"])),
        ("deduplicationEnabled", json!(true)),
        ("deduplicationSnapshotInterval", json!(11)),
        ("compactionThreshold", json!(12)),
        ("dispatcherPauseOnAckStatePersistent", json!(true)),
        ("entryFilters", json!({"entryFilterNames": "a,b"})),
    ]
}

#[test]
fn each_policy_of_a_topic_is_said_in_an_event_and_read_again() {
    let schema = recorded_schema();
    let all = one_of_each();
    for row in policy::all() {
        let Some(at) = row.topic else { continue };
        let (_, value) = all
            .iter()
            .find(|(name, _)| *name == at.path)
            .unwrap_or_else(|| panic!("{} is not tried", at.path));
        let value = (row.check)(at.path, value.clone()).unwrap();
        for (prefix, is_everywhere) in [("", false), (crate::GLOBAL, true)] {
            let policies = serde_json::Map::from_iter([(format!("{prefix}{}", at.path), value.clone())]);
            let said = Value::Object(policy_names::to_event(&policies, is_everywhere));
            let event = json!({"topicPoliciesEvent": {"policies": said}});
            let bytes = schema
                .write(&event)
                .unwrap_or_else(|error| panic!("{}: {error}", at.path));
            let mut read = schema.read(&bytes).unwrap();
            let Value::Object(read) = read["topicPoliciesEvent"]["policies"].take() else {
                panic!("{}", at.path);
            };
            let mut again = policy_names::of_event(read);
            if at.path == "offloadPolicies" {
                // Both words are one.
                let word =
                    &mut again[&format!("{prefix}offloadPolicies")]["managedLedgerOffloadedReadPriority"];
                assert_eq!(word.take(), "BOOKKEEPER_FIRST");
                *word = json!("bookkeeper-first");
            }
            assert_eq!(again, policies);
        }
    }
}

#[tokio::test]
async fn what_is_set_on_a_topic_is_an_event_that_every_broker_hears_of() {
    let cluster = Cluster::recorded().await;
    let (ours, other) = (
        cluster.broker(cluster.logs()).await,
        cluster.broker(cluster.logs()).await,
    );
    let plain = topic("persistent://acme/cars/plain");
    let follower = other.clone();
    let hears = async |catalog: &Catalog, wanted: Value| {
        let heard = async {
            while Value::Object(catalog.topic_policies(&plain).0.clone()) != wanted {
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            }
        };
        let heard = tokio::time::timeout(std::time::Duration::from_secs(20), heard).await;
        assert!(heard.is_ok(), "{:?}", catalog.topic_policies(&plain));
    };
    let story = async {
        let retention = json!({"retentionSizeInMB": 9, "retentionTimeInMinutes": 7});
        ours.set_topic_policy(&plain, "messageTTL", json!(44))
            .await
            .unwrap();
        let (metadata, event) = cluster.last_event().await;
        assert_eq!(
            metadata.partition_key.as_deref(),
            Some("persistent://acme/cars/plain")
        );
        assert_eq!(metadata.replicate_to, ["pc"]);
        let said = &event["topicPoliciesEvent"];
        assert_eq!(
            (&said["tenant"], &said["topic"]),
            (&json!("acme"), &json!("plain"))
        );
        assert_eq!(said["policies"]["messageTTLInSeconds"], 44);
        assert_eq!(said["policies"]["retentionPolicies"], retention);
        assert_eq!(said["policies"]["isGlobal"], false);
        hears(&other, json!({"messageTTL": 44, "retention": retention})).await;
        // The other one goes on from there, for all clusters.
        other
            .set_topic_policy(&plain, "global/maxConsumers", json!(5))
            .await
            .unwrap();
        let (metadata, event) = cluster.last_event().await;
        assert_eq!(
            metadata.partition_key.as_deref(),
            Some("__G__persistent://acme/cars/plain")
        );
        assert!(metadata.replicate_to.is_empty());
        assert_eq!(event["replicateTo"], Value::Null);
        assert_eq!(event["topicPoliciesEvent"]["policies"]["isGlobal"], true);
        // It has not heard of that, and its change comes on top all the same.
        ours.set_topic_policy(&plain, "messageTTL", Value::Null)
            .await
            .unwrap();
        let all = json!({"retention": retention, "global/maxConsumers": 5});
        hears(&ours, all.clone()).await;
        hears(&other, all.clone()).await;
        let later = cluster.broker(cluster.logs()).await;
        assert_eq!(Value::Object(later.topic_policies(&plain).0.clone()), all);
    };
    tokio::select! {
        () = follower.follow() => panic!("it follows no more"),
        () = story => {}
    }
}

#[tokio::test]
async fn a_log_that_another_broker_took_over_is_taken_again() {
    let cluster = Cluster::recorded().await;
    let logs = cluster.logs();
    let ours = cluster.broker(Arc::clone(&logs)).await;
    let plain = topic("persistent://acme/cars/plain");
    logs.lost.store(3, Ordering::Relaxed);
    ours.set_topic_policy(&plain, "maxProducers", json!(1))
        .await
        .unwrap();
    assert_eq!(logs.lost.load(Ordering::Relaxed), 0);
    let later = cluster.catalog().await;
    assert_eq!(later.topic_policies(&plain).get("maxProducers"), Some(&json!(1)));
    // For ever it is not tried.
    logs.lost.store(1000, Ordering::Relaxed);
    let error = ours
        .set_topic_policy(&plain, "maxProducers", json!(2))
        .await
        .unwrap_err();
    let source = std::error::Error::source(&error).map(ToString::to_string);
    assert!(
        format!("{error} {source:?}").contains("took the log over"),
        "{error:?}"
    );
}

#[tokio::test]
async fn two_brokers_that_change_at_once_lose_nothing_of_each_other() {
    let cluster = Cluster::recorded().await;
    let brokers = [
        cluster.broker(cluster.logs()).await,
        cluster.broker(cluster.logs()).await,
    ];
    let plain = topic("persistent://acme/cars/plain");
    for round in 0..20 {
        let [first, second] = &brokers;
        let (one, two) = tokio::join!(
            first.set_topic_policy(&plain, "maxProducers", json!(round)),
            second.set_topic_policy(&plain, "maxConsumers", json!(round)),
        );
        one.unwrap();
        two.unwrap();
        let policies = cluster.catalog().await.topic_policies(&plain);
        assert_eq!(policies.get("maxProducers"), Some(&json!(round)));
        assert_eq!(policies.get("maxConsumers"), Some(&json!(round)));
    }
}

#[tokio::test]
async fn policies_of_a_topic_that_is_deleted_are_removed_in_an_event() {
    let cluster = Cluster::recorded().await;
    let catalog = cluster.broker(cluster.logs()).await;
    let parts = topic("persistent://acme/cars/parts");
    catalog
        .set_topic_policy(&parts, "global/messageTTL", json!(3))
        .await
        .unwrap();
    catalog.partitioned().begin_delete(&parts).await.unwrap();
    catalog.partitioned().delete(&parts).await.unwrap();
    let (metadata, event) = cluster.last_event().await;
    assert_eq!(
        (metadata.null_value, event),
        (Some(true), Value::Null),
        "{metadata:?}"
    );
    assert!(cluster.catalog().await.topic_policies(&parts).0.is_empty());
    // A topic of the same name begins without.
    catalog
        .set_topic_policy(&parts, "maxConsumers", json!(1))
        .await
        .unwrap();
    let again = cluster.catalog().await.topic_policies(&parts);
    assert_eq!(Value::Object(again.0.clone()), json!({"maxConsumers": 1}));
}

#[tokio::test]
async fn a_namespace_without_events_gets_their_topic_and_its_schema_with_the_first_policy() {
    let cluster = Cluster::recorded().await;
    let catalog = cluster.broker(cluster.logs()).await;
    let first = topic("persistent://public/default/first");
    // Nothing is removed where there is nothing.
    catalog
        .set_topic_policy(&first, "messageTTL", Value::Null)
        .await
        .unwrap();
    let events = "managed-ledgers/public/default/persistent/__change_events";
    assert!(cluster.store.get(events).await.unwrap().is_none());
    catalog
        .set_topic_policy(&first, "messageTTL", json!(3))
        .await
        .unwrap();
    assert!(cluster.store.get(events).await.unwrap().is_some());
    let again = cluster.catalog().await;
    assert_eq!(again.topic_policies(&first).get("messageTTL"), Some(&json!(3)));
    let log = topic("persistent://public/default/__change_events");
    let schema = again.schemas().latest(&log).unwrap();
    assert_eq!(schema.schema.kind, SchemaType::Avro);
    assert_eq!(schema.schema.properties["__alwaysAllowNull"], "true");
    // What is kept of them is not for brokers of Pharos to say.
    assert_eq!(again.effective_policies(&log).retention.bytes, None);
    assert_eq!(again.effective_policies(&first).retention.bytes, Some(0));
}

#[tokio::test]
async fn events_that_have_partitions_are_found_and_said_in_the_right_one() {
    let cluster = Cluster::recorded().await;
    let whole = json!({"partitions": 4, "deleted": false});
    let key = "admin/partitioned-topics/public/default/persistent/__change_events";
    let whole = serde_json::to_vec(&whole).unwrap();
    cluster
        .store
        .put(key, whole.into(), Expect::Absent)
        .await
        .unwrap();
    let catalog = cluster.broker(cluster.logs()).await;
    let names = ["a", "b", "c", "d", "e"].map(|name| topic(&format!("persistent://public/default/{name}")));
    for (number, name) in names.iter().enumerate() {
        for policy in ["maxConsumers", "global/maxConsumers"] {
            catalog
                .set_topic_policy(name, policy, json!(number))
                .await
                .unwrap();
        }
    }
    let again = cluster.catalog().await;
    for (number, name) in names.iter().enumerate() {
        let wanted = json!({"maxConsumers": number, "global/maxConsumers": number});
        assert_eq!(
            Value::Object(again.topic_policies(name).0.clone()),
            wanted,
            "{name}"
        );
    }
    // As Java's clients choose it: the hash of "persistent://public/default/a" modulo 4.
    let hash = pharos_types::hash::java_string_hash("persistent://public/default/a");
    let events = format!(
        "managed-ledgers/public/default/persistent/__change_events-partition-{}",
        hash % 4
    );
    assert!(cluster.store.get(&events).await.unwrap().is_some());
    assert!(
        cluster
            .store
            .get("managed-ledgers/public/default/persistent/__change_events")
            .await
            .unwrap()
            .is_none()
    );
}

#[tokio::test]
async fn what_a_broker_of_pulsar_says_later_counts() {
    let cluster = Cluster::recorded().await;
    let catalog = cluster.broker(cluster.logs()).await;
    let plain = topic("persistent://acme/cars/plain");
    catalog
        .set_topic_policy(&plain, "messageTTL", json!(44))
        .await
        .unwrap();
    // The same events as before, in a ledger of later.
    let writer = cluster.ledgers.create(CreateOptions::default()).await.unwrap();
    for entry in &entries()[&0] {
        writer.append(entry.clone()).unwrap();
    }
    writer.close().await.unwrap();
    let info = cluster.store.get(EVENTS).await.unwrap().unwrap().value;
    let mut info = StoredManagedLedger::decode(info).unwrap();
    info.ledgers.push(StoredLedger {
        ledger_id: i64::try_from(writer.id().0).unwrap(),
        offload_context: None,
    });
    let info = info.encode_to_vec().into();
    cluster.store.put(EVENTS, info, Expect::Any).await.unwrap();
    let later = cluster.catalog().await;
    assert_eq!(later.topic_policies(&plain).get("messageTTL"), Some(&json!(33)));
}

#[tokio::test]
async fn facts_that_are_only_read_change_no_policies_of_topics() {
    let cluster = Cluster::recorded().await;
    let catalog = cluster.catalog().await;
    let plain = topic("persistent://acme/cars/plain");
    let refused = catalog.set_topic_policy(&plain, "messageTTL", json!(44)).await;
    assert!(refused.is_err());
    let again = cluster.catalog().await;
    assert_eq!(again.topic_policies(&plain).get("messageTTL"), Some(&json!(33)));
}
