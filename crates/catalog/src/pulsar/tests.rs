//! Data that Apache Pulsar 4.2.4 wrote, read and written again: `fixtures/pulsar-4.2`.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use pharos_ledger::memory::MemoryEngine;
use pharos_ledger::{CreateOptions, LedgerEngine};
use pharos_metadata::{Expect, Memory, MetadataLayout, MetadataStore};
use pharos_types::{EntryId, LedgerId, NamespaceName, TopicName};
use prost::Message;
use serde_json::{Value, json};

use super::PulsarFacts;
use super::bytes_of::{
    CursorInfo, KeyValue, LongProperty, SchemaEntry, SchemaInfo, SchemaLocator, StoredManagedLedger,
};
use crate::policy::BrokerPolicies;
use crate::schema::{SchemaInfo as Schema, SchemaType, SchemaVersion};
use crate::{Catalog, CatalogOptions};

mod open_ledgers;
mod topic_policies;

const RECORDED: &str = include_str!("../../../../fixtures/pulsar-4.2/facts.txt");

fn of_hex(text: &str) -> Bytes {
    let digits = text.as_bytes().chunks(2);
    let bytes = digits.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap());
    bytes.collect::<Vec<u8>>().into()
}

/// The values of the recorded nodes.
fn nodes() -> BTreeMap<&'static str, Bytes> {
    let lines = RECORDED.lines().filter_map(|line| line.strip_prefix("node "));
    let nodes = lines.map(|line| line.split_once(' ').unwrap());
    let with_value = nodes.filter(|(_, value)| *value != "-");
    with_value.map(|(key, value)| (key, of_hex(value))).collect()
}

/// The recorded entries, by ledger.
fn entries() -> BTreeMap<u64, Vec<Bytes>> {
    let mut ledgers: BTreeMap<u64, Vec<Bytes>> = BTreeMap::new();
    for line in RECORDED.lines().filter_map(|line| line.strip_prefix("entry ")) {
        let parts: Vec<&str> = line.split(' ').collect();
        ledgers
            .entry(parts[0].parse().unwrap())
            .or_default()
            .push(of_hex(parts[2]));
    }
    ledgers
}

struct Cluster {
    store: Arc<Memory>,
    ledgers: Arc<MemoryEngine>,
}

impl Cluster {
    /// Recorded data, with ledgers of the same numbers.
    async fn recorded() -> Self {
        let store = Arc::new(Memory::new());
        for (key, value) in nodes() {
            store.put(key, value, Expect::Absent).await.unwrap();
        }
        // What holds others and has no value is a key where it has none below it.
        for empty in [
            "admin/partitioned-topics/empty/ns/persistent",
            "admin/policies/gone",
        ] {
            store.put(empty, Bytes::new(), Expect::Absent).await.unwrap();
        }
        for partition in 0..3 {
            let key = format!("managed-ledgers/acme/cars/persistent/parts-partition-{partition}");
            store.put(&key, Bytes::new(), Expect::Absent).await.unwrap();
        }
        let (ledgers, entries) = (Arc::new(MemoryEngine::new()), entries());
        let last = entries.keys().max().copied().unwrap();
        loop {
            let writer = ledgers.create(CreateOptions::default()).await.unwrap();
            let id = writer.id().0;
            for entry in entries.get(&id).into_iter().flatten() {
                writer.append(entry.clone()).unwrap();
            }
            writer.close().await.unwrap();
            if id >= last {
                return Self { store, ledgers };
            }
        }
    }

    fn facts(&self) -> PulsarFacts {
        let store: Arc<dyn MetadataStore> = Arc::<Memory>::clone(&self.store);
        let ledgers: Arc<dyn LedgerEngine> = Arc::<MemoryEngine>::clone(&self.ledgers);
        PulsarFacts::new(store, ledgers)
    }

    async fn catalog(&self) -> Catalog {
        let options = CatalogOptions {
            cluster_name: "pc".into(),
            layout: MetadataLayout::Pulsar,
            ..CatalogOptions::default()
        };
        Catalog::open(Arc::new(self.facts()), options).await.unwrap()
    }

    async fn json(&self, key: &str) -> Value {
        let found = self.store.get(key).await.unwrap().unwrap();
        serde_json::from_slice(&found.value).unwrap()
    }
}

fn topic(text: &str) -> TopicName {
    text.parse().unwrap()
}

fn cars() -> NamespaceName {
    "acme/cars".parse().unwrap()
}

#[tokio::test]
async fn what_pulsar_wrote_is_known_and_left_as_it_is() {
    let cluster = Cluster::recorded().await;
    let catalog = cluster.catalog().await;
    assert_eq!(catalog.tenants().names(), ["acme", "public", "pulsar"]);
    assert!(catalog.tenants().is_admin("acme", "smith"));
    let policies = catalog.policies(&cars()).unwrap();
    assert_eq!(policies.get("message_ttl_in_seconds"), Some(&json!(3600)));
    assert_eq!(policies.get("anti_affinity_group"), Some(&json!("\"red\"")));
    assert_eq!(policies.get("bundles").unwrap()["numBundles"], 9);
    let plain = topic("persistent://acme/cars/plain");
    assert!(catalog.topic_exists(&plain));
    assert!(catalog.topic_exists(&topic("persistent://acme/cars/parts-partition-2")));
    assert_eq!(
        catalog
            .partitioned()
            .get(&topic("persistent://acme/cars/parts"))
            .unwrap()
            .partitions,
        3
    );
    assert_eq!(
        catalog
            .partitioned()
            .get(&topic("non-persistent://acme/cars/np"))
            .unwrap()
            .partitions,
        2
    );
    assert!(topic("persistent://acme/cars/__change_events").is_system());
    for (key, value) in nodes() {
        let found = cluster.store.get(key).await.unwrap();
        assert_eq!(found.map(|found| found.value), Some(value), "{key}");
    }
}

#[tokio::test]
async fn all_versions_of_schemas_are_read() {
    let cluster = Cluster::recorded().await;
    let catalog = cluster.catalog().await;
    let schemas = catalog.schemas();
    let plain = topic("persistent://acme/cars/plain");
    let first = schemas.get(&plain, SchemaVersion(0)).unwrap();
    assert_eq!(first.schema.kind, SchemaType::Avro);
    assert_eq!(first.schema.properties.get("who").map(String::as_str), Some("me"));
    assert_eq!(schemas.latest(&plain).unwrap().version, SchemaVersion(1));
    let parts = topic("persistent://acme/cars/parts-partition-1");
    assert_eq!(schemas.latest(&parts).unwrap().schema.kind, SchemaType::Json);
    assert_eq!(schemas.latest(&parts).unwrap().version, SchemaVersion(2));
    assert!(schemas.get(&parts, SchemaVersion(0)).is_none(), "it was deleted");
}

#[test]
fn schemas_and_locators_are_written_as_they_were_read() {
    for (key, value) in nodes() {
        if key.starts_with("schemas/") {
            assert_eq!(
                SchemaLocator::decode(&*value).unwrap().encode_to_vec(),
                value,
                "{key}"
            );
        }
    }
    for ledger in 5..10 {
        let bytes = &entries()[&ledger][0];
        let stored = SchemaEntry::decode(&**bytes).unwrap();
        assert_eq!(stored.encode_to_vec(), **bytes, "{ledger}");
        let info = SchemaInfo::decode(&*stored.schema_data).unwrap();
        assert_eq!(info.encode_to_vec(), stored.schema_data, "{ledger}");
    }
}

#[tokio::test]
async fn a_schema_is_added_as_pulsar_adds_it() {
    let cluster = Cluster::recorded().await;
    let catalog = cluster.catalog().await;
    let plain = topic("persistent://acme/cars/plain");
    // The bytes of both ledgers and the locator, made anew from what was brought.
    catalog.schemas().delete_all(&plain).await.unwrap();
    assert!(
        cluster
            .store
            .get("schemas/acme/cars/plain")
            .await
            .unwrap()
            .is_none()
    );
    for ledger in [5, 6] {
        let recorded = SchemaEntry::decode(&*entries()[&ledger][0]).unwrap();
        let info = SchemaInfo::decode(&*recorded.schema_data).unwrap();
        let mut schema = Schema::new(SchemaType::Avro, info.schema.clone());
        schema.properties.extend(
            info.props
                .iter()
                .map(|pair| (pair.key.clone(), pair.value.clone())),
        );
        catalog.schemas().add(&plain, schema, "").await.unwrap();
        let locator = cluster
            .store
            .get("schemas/acme/cars/plain")
            .await
            .unwrap()
            .unwrap();
        let locator = SchemaLocator::decode(&*locator.value).unwrap();
        assert_eq!(locator.info, *locator.index.last().unwrap());
        let id = LedgerId(u64::try_from(locator.info.position.ledger_id).unwrap());
        let entry = cluster.ledgers.read(id, EntryId(0), 2, usize::MAX).await.unwrap();
        assert_eq!(entry.len(), 1);
        let mut written = SchemaEntry::decode(&*entry[0].payload).unwrap();
        let mut written_info = SchemaInfo::decode(&*written.schema_data).unwrap();
        written_info.timestamp = info.timestamp;
        written.schema_data = written_info.encode_to_vec();
        // Which ledgers were before is another run's.
        for (at, recorded) in written.index.iter_mut().zip(&recorded.index) {
            at.position = recorded.position;
        }
        assert_eq!(written, recorded);
    }
    let again = cluster.catalog().await;
    assert_eq!(again.schemas().latest(&plain).unwrap().version, SchemaVersion(1));
}

#[tokio::test]
async fn policies_are_changed_and_the_rest_is_kept() {
    let cluster = Cluster::recorded().await;
    let catalog = cluster.catalog().await;
    let mut before = cluster.json("admin/policies/acme/cars").await;
    let local = cluster.json("admin/local-policies/acme/cars").await;
    catalog
        .namespaces()
        .set_policy(&cars(), "max_producers_per_topic", json!(3))
        .await
        .unwrap();
    before["max_producers_per_topic"] = json!(3);
    assert_eq!(cluster.json("admin/policies/acme/cars").await, before);
    assert_eq!(cluster.json("admin/local-policies/acme/cars").await, local);
    // A bundle is cut in both places, and the local one counts.
    let range = crate::BundleRange::parse("0x40000000_0x60000000").unwrap();
    range.cut(&catalog, &cars(), &[0x5000_0000], 128).await.unwrap();
    for key in ["admin/policies/acme/cars", "admin/local-policies/acme/cars"] {
        assert_eq!(cluster.json(key).await["bundles"]["numBundles"], 10, "{key}");
    }
    let kept = cluster.json("admin/local-policies/acme/cars").await;
    assert_eq!(
        kept["namespaceAntiAffinityGroup"],
        local["namespaceAntiAffinityGroup"]
    );
    let groups = json!({"bookkeeperAffinityGroupPrimary": "a", "bookkeeperAffinityGroupSecondary": ""});
    catalog
        .namespaces()
        .set_policy(&cars(), "bookieAffinityGroup", groups.clone())
        .await
        .unwrap();
    assert_eq!(
        cluster.json("admin/local-policies/acme/cars").await["bookieAffinityGroup"],
        groups
    );
    assert!(
        cluster
            .json("admin/policies/acme/cars")
            .await
            .get("bookieAffinityGroup")
            .is_none()
    );
    let again = cluster.catalog().await;
    assert_eq!(
        again.policies(&cars()).unwrap().get("bookieAffinityGroup"),
        Some(&groups)
    );
}

#[tokio::test]
async fn what_pulsar_writes_where_nothing_is_set_means_nothing() {
    let cluster = Cluster::recorded().await;
    let catalog = cluster.catalog().await;
    let named = |text: &str| catalog.effective_policies(&topic(text));
    let unset = format!("{:?}", named("persistent://public/default/t"));
    let catalog_of_pharos = Catalog::open(Arc::new(Memory::new()), catalog.options().clone())
        .await
        .unwrap();
    let own = catalog_of_pharos.effective_policies(&topic("persistent://public/default/t"));
    assert_eq!(unset, format!("{own:?}"));
}

#[tokio::test]
async fn a_topic_is_its_managed_ledger() {
    let cluster = Cluster::recorded().await;
    let catalog = cluster.catalog().await;
    let (made, key) = (
        topic("persistent://acme/cars/ü x"),
        "managed-ledgers/acme/cars/persistent/%C3%BC+x",
    );
    catalog
        .create_topic(&made, [("a".to_owned(), "b".to_owned())].into())
        .await
        .unwrap();
    let info = cluster.store.get(key).await.unwrap().unwrap().value;
    assert_eq!(&*info, b"\x1a\x06\x0a\x01a\x12\x01b");
    // What the managed ledger wrote stays when properties change.
    let with_ledger = [b"\x0a\x04\x08\x07\x20\x00".as_slice(), &info].concat();
    cluster
        .store
        .put(key, with_ledger.into(), Expect::Any)
        .await
        .unwrap();
    catalog
        .update_topic_properties(&made, [("a".to_owned(), "c".to_owned())].into(), &[])
        .await
        .unwrap();
    let info = cluster.store.get(key).await.unwrap().unwrap().value;
    assert_eq!(&*info, b"\x0a\x04\x08\x07\x20\x00\x1a\x06\x0a\x01a\x12\x01c");
    assert_eq!(cluster.catalog().await.topic_properties(&made).unwrap()["a"], "c");
    let plain = topic("persistent://acme/cars/with-nothing");
    catalog.create_topic(&plain, BTreeMap::new()).await.unwrap();
    let node = cluster
        .store
        .get("managed-ledgers/acme/cars/persistent/with-nothing")
        .await
        .unwrap();
    assert!(node.unwrap().value.is_empty(), "as Pulsar makes partitions");
}

#[tokio::test]
async fn what_the_managed_ledger_keeps_in_properties_is_no_property_of_the_topic() {
    let cluster = Cluster::recorded().await;
    let catalog = cluster.catalog().await;
    let (made, key) = (
        topic("persistent://acme/cars/kept"),
        "managed-ledgers/acme/cars/persistent/kept",
    );
    let own = |key: &str, value: &str| KeyValue {
        key: key.to_owned(),
        value: value.to_owned(),
    };
    let kept = [own("pharos.cursors", "7,8"), own("pulsar.topicEpoch", "3")];
    let others = [own("pharos.durability", "written")];
    let stored = StoredManagedLedger {
        ledgers: Vec::new(),
        properties: [&kept[..], &others, &[own("a", "b")]].concat(),
    };
    catalog.create_topic(&made, BTreeMap::new()).await.unwrap();
    let value: Bytes = stored.encode_to_vec().into();
    cluster.store.put(key, value, Expect::Any).await.unwrap();

    let catalog = cluster.catalog().await;
    let shown = catalog.topic_properties(&made).unwrap();
    let names: Vec<&str> = shown.keys().map(String::as_str).collect();
    assert_eq!(names, ["a", "pharos.durability", "pulsar.topicEpoch"]);

    // The managed ledger goes on meanwhile: what it wrote last stays.
    let moved = [own("pharos.cursors", "9"), own("pulsar.topicEpoch", "4")];
    let stored = StoredManagedLedger {
        ledgers: Vec::new(),
        properties: [&moved[..], &others, &[own("a", "b")]].concat(),
    };
    let value: Bytes = stored.encode_to_vec().into();
    cluster.store.put(key, value, Expect::Any).await.unwrap();
    let removed = ["a", "pharos.cursors", "pulsar.topicEpoch"].map(str::to_owned);
    let set = BTreeMap::from([("c".to_owned(), "d".to_owned())]);
    catalog
        .update_topic_properties(&made, set, &removed)
        .await
        .unwrap();
    let value = cluster.store.get(key).await.unwrap().unwrap().value;
    let stored = StoredManagedLedger::decode(value).unwrap();
    assert_eq!(
        stored.properties,
        [&moved[..], &[own("c", "d")], &others].concat()
    );
}

#[tokio::test]
async fn a_deletion_is_gone_on_with_unless_the_topic_was_made_again() {
    let cluster = Cluster::recorded().await;
    let plain = topic("persistent://acme/cars/plain");
    cluster
        .broker(cluster.logs())
        .await
        .deletions()
        .begin(&plain)
        .await
        .unwrap();
    let key = "managed-ledgers/acme/cars/persistent/plain";
    let again = cluster.broker(cluster.logs()).await;
    assert!(again.deletions().has(&plain));
    assert_eq!(
        again.deletions().unfinished(),
        [crate::Unfinished::Topic(plain.clone())]
    );
    // Its data is gone, and a crash comes before the rest.
    cluster.store.delete(key, Expect::Any).await.unwrap();
    let again = cluster.broker(cluster.logs()).await;
    assert_eq!(again.deletions().unfinished().len(), 1);
    // A broker of Pulsar made it anew meanwhile: a ledger that the deleted one never had.
    let info = Bytes::from_static(b"\x0a\x04\x08\x63\x20\x00");
    cluster.store.put(key, info, Expect::Any).await.unwrap();
    let again = cluster.broker(cluster.logs()).await;
    assert!(again.deletions().unfinished().is_empty());
    assert!(again.topic_exists(&plain));
    again.deletions().begin(&plain).await.unwrap();
    again.delete_topic(&plain).await.unwrap();
    assert!(cluster.store.get(key).await.unwrap().is_none());
    assert!(cluster.store.list("pharos-deleting/").await.unwrap().is_empty());
    assert!(!cluster.broker(cluster.logs()).await.has_record(&plain));
}

#[tokio::test]
async fn a_check_says_what_is_there_and_what_is_in_the_way() {
    let cluster = Cluster::recorded().await;
    let broker = BrokerPolicies::default();
    let registered = "loadbalance/brokers/127.0.0.1:9180";
    cluster
        .store
        .put(registered, Bytes::from_static(b"{}"), Expect::Absent)
        .await
        .unwrap();
    let found = cluster.facts().examine("pc", &broker).await.unwrap();
    assert_eq!(found.brokers, ["127.0.0.1:9180"]);
    assert_eq!(found.tenants, ["acme", "public", "pulsar"]);
    assert_eq!(found.topics["persistent://acme/cars/plain"], ["s1"]);
    assert_eq!(found.partitioned["persistent://acme/cars/parts"], 3);
    assert_eq!(found.schemas["acme/cars/parts"], [0, 1, 2]);
    assert!(!found.is_possible());
    assert_eq!(found.refused, []);
    assert_eq!(
        found.notes[0].what,
        "namespace acme/cars, policy anti_affinity_group"
    );
    assert_eq!(
        found.topic_policies,
        ["persistent://acme/cars/parts", "persistent://acme/cars/plain"]
    );
    let topics = "managed-ledgers/acme/cars/persistent";
    let compacted = CursorInfo {
        cursors_ledger_id: -1,
        properties: vec![LongProperty {
            name: "CompactedTopicLedger".to_owned(),
            value: 9_999,
        }],
    };
    for (node, value) in [
        ("plain/pulsar.repl.far", b"\x08\x01".to_vec()),
        ("parts-partition-0/pulsar.repl-x", b"\x08\x01".to_vec()),
        ("plain/s2", b"\x47\x79\x00\x00".to_vec()),
        (
            "plain-s1__transaction_pending_ack",
            b"\x0a\x04\x08\x07\x20\x00".to_vec(),
        ),
        ("plain/__compaction", compacted.encode_to_vec()),
        (
            "plain/pulsar.dedup",
            b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01".to_vec(),
        ),
    ] {
        let key = format!("{topics}/{node}");
        let put = cluster.store.put(&key, Bytes::from(value), Expect::Absent);
        put.await.unwrap();
    }
    let more = cluster.facts().examine("pc", &broker).await.unwrap();
    let whys: Vec<&str> = more.refused.iter().map(|finding| finding.why.as_str()).collect();
    for why in [
        "copied to a shadow topic",
        "managedCursorInfoCompressionType",
        "transactions were used",
        "compacted into, ledger 9999, cannot be read",
    ] {
        assert!(whys.iter().any(|said| said.contains(why)), "{why}: {whys:?}");
    }
    let elsewhere = cluster.facts().examine("standalone", &broker).await.unwrap();
    assert!(elsewhere.refused[0].why.contains("pc"));
    let mut policies = cluster.json("admin/policies/public/default").await;
    policies["deduplicationEnabled"] = json!(true);
    policies["compaction_threshold"] = json!(1000);
    for (clusters, is_refused) in [(json!(["pc", "far"]), false), (json!(["far"]), true)] {
        policies["replication_clusters"] = clusters;
        let bytes = serde_json::to_vec(&policies).unwrap();
        cluster
            .store
            .put("admin/policies/public/default", bytes.into(), Expect::Any)
            .await
            .unwrap();
        let found = cluster.facts().examine("pc", &broker).await.unwrap();
        let named = |policy: &str| {
            found
                .refused
                .iter()
                .any(|finding| finding.what == format!("namespace public/default, policy {policy}"))
        };
        assert_eq!(named("replication_clusters"), is_refused, "{:?}", found.refused);
        for policy in ["deduplicationEnabled", "compaction_threshold"] {
            assert!(!named(policy), "{policy}: {:?}", found.refused);
        }
    }
    let subscriptions = &more.topics["persistent://acme/cars/plain"];
    assert!(
        !subscriptions.iter().any(|name| name.starts_with("pulsar.repl")),
        "{subscriptions:?}"
    );
}
