//! Ledgers that a broker of Pulsar left open when it was killed: their last entry is stored, and no bookie knows that it is confirmed.

use pharos_ledger::LedgerWriter;

use super::super::bytes_of::{CursorPosition, StoredLedger, StoredManagedLedger};
use super::*;

const EVENTS: &str = "managed-ledgers/acme/cars/persistent/__change_events";
const COMPACTION: &str = "managed-ledgers/acme/cars/persistent/__change_events/__compaction";
const SCHEMA: &str = "schemas/acme/cars/__change_events";

fn signed(writer: &dyn LedgerWriter) -> i64 {
    i64::try_from(writer.id().0).unwrap()
}

/// An entry of the cursor's ledger that names a compacted ledger.
fn naming(ledger: i64) -> Bytes {
    let entry = CursorPosition {
        properties: vec![LongProperty {
            name: "CompactedTopicLedger".to_owned(),
            value: ledger,
        }],
    };
    entry.encode_to_vec().into()
}

impl Cluster {
    /// A ledger of which the writer is there, with entries that are confirmed and entries that are not known to be.
    async fn open_ledger(&self, confirmed: &[Bytes], unconfirmed: &[Bytes]) -> Arc<dyn LedgerWriter> {
        let writer = self.ledgers.create(CreateOptions::default()).await.unwrap();
        for entry in confirmed {
            writer.append(entry.clone()).unwrap();
        }
        self.ledgers.hold();
        for entry in unconfirmed {
            writer.append(entry.clone()).unwrap();
        }
        writer
    }

    async fn set(&self, key: &str, value: Vec<u8>) {
        self.store.put(key, value.into(), Expect::Any).await.unwrap();
    }

    async fn found(&self, key: &str) -> Bytes {
        self.store.get(key).await.unwrap().unwrap().value
    }

    async fn is_refused(&self) -> Option<String> {
        let found = self
            .facts()
            .examine("pc", &BrokerPolicies::default())
            .await
            .unwrap();
        found
            .refused
            .first()
            .map(|finding| format!("{}: {}", finding.what, finding.why))
    }
}

/// The cursor was at a ledger that is deleted, and its last entry names the one that stands for it.
#[tokio::test]
async fn what_was_compacted_last_is_found_in_a_cursor_that_was_left_open() {
    let cluster = Cluster::recorded().await;
    let recorded = CursorInfo::decode(cluster.found(COMPACTION).await).unwrap();
    let named = recorded
        .properties
        .iter()
        .find(|it| it.name == "CompactedTopicLedger");
    let last = naming(named.unwrap().value);
    // Of what the events said only the compacted ledger is left.
    cluster.set(EVENTS, b"\x0a\x04\x08\x03\x20\x00".to_vec()).await;
    let writer = cluster
        .open_ledger(&[naming(9_998), naming(9_999)], &[last])
        .await;
    let open = CursorInfo {
        cursors_ledger_id: signed(&*writer),
        properties: Vec::new(),
    };
    cluster.set(COMPACTION, open.encode_to_vec()).await;
    assert_eq!(cluster.is_refused().await, None);
    // A check takes nothing from a broker that runs.
    writer.append(naming(9_997)).unwrap();
    assert!(
        cluster
            .is_refused()
            .await
            .unwrap()
            .contains("ledger 9997, cannot be read")
    );
    let last = naming(named.unwrap().value);
    writer.append(last).unwrap();
    let catalog = cluster.catalog().await;
    let plain = catalog.topic_policies(&topic("persistent://acme/cars/plain"));
    assert_eq!(plain.get("messageTTL"), Some(&json!(33)));
    // Who serves has taken it.
    assert!(writer.append(naming(9_999)).is_err());
}

#[tokio::test]
async fn a_cursor_without_its_ledger_is_as_its_node_says() {
    let cluster = Cluster::recorded().await;
    let mut cursor = CursorInfo::decode(cluster.found(COMPACTION).await).unwrap();
    cluster.set(EVENTS, b"\x0a\x04\x08\x03\x20\x00".to_vec()).await;
    for ledger in [9_999, signed(&*cluster.open_ledger(&[], &[]).await)] {
        cursor.cursors_ledger_id = ledger;
        cluster.set(COMPACTION, cursor.encode_to_vec()).await;
        assert_eq!(cluster.is_refused().await, None, "{ledger}");
        let catalog = cluster.catalog().await;
        let plain = catalog.topic_policies(&topic("persistent://acme/cars/plain"));
        assert_eq!(plain.get("messageTTL"), Some(&json!(33)), "{ledger}");
    }
}

/// The events, and the schema by which they are read: a check sees all of them, fences nothing, and says of them what holds once they are served.
#[tokio::test]
async fn a_check_reads_events_and_their_schema_that_were_left_open() {
    let cluster = Cluster::recorded().await;
    let entries = entries();
    cluster.store.delete(COMPACTION, Expect::Any).await.unwrap();
    let events = cluster.open_ledger(&[], &entries[&0]).await;
    let info = StoredManagedLedger {
        ledgers: vec![StoredLedger {
            ledger_id: signed(&*events),
            offload_context: None,
        }],
        properties: Vec::new(),
    };
    cluster.set(EVENTS, info.encode_to_vec()).await;
    let mut locator = SchemaLocator::decode(cluster.found(SCHEMA).await).unwrap();
    let recorded = u64::try_from(locator.info.position.ledger_id).unwrap();
    let schema = cluster.open_ledger(&[], &entries[&recorded]).await;
    locator.info.position.ledger_id = signed(&*schema);
    locator.index.last_mut().unwrap().position.ledger_id = signed(&*schema);
    cluster.set(SCHEMA, locator.encode_to_vec()).await;
    let found = cluster
        .facts()
        .examine("pc", &BrokerPolicies::default())
        .await
        .unwrap();
    assert_eq!(found.refused, []);
    assert_eq!(
        found.topic_policies,
        ["persistent://acme/cars/parts", "persistent://acme/cars/plain"]
    );
    schema.append(Bytes::from_static(b"more")).unwrap();
    events.append(entries[&0][0].clone()).unwrap();
    let catalog = cluster.catalog().await;
    let parts = catalog.topic_policies(&topic("persistent://acme/cars/parts"));
    assert_eq!(parts.get("maxConsumers"), Some(&json!(12)));
    assert!(events.append(Bytes::from_static(b"more")).is_err());
}

/// A ledger that is not the last of its log, and that its broker could not close before it went on with the next one.
#[tokio::test]
async fn a_ledger_in_the_middle_that_was_never_closed_is_read_to_its_end() {
    let cluster = Cluster::recorded().await;
    cluster.store.delete(COMPACTION, Expect::Any).await.unwrap();
    let entries = entries();
    let first = cluster.open_ledger(&[], &entries[&0]).await;
    let last = cluster.open_ledger(&[], &[]).await;
    let row = |writer: &dyn LedgerWriter| StoredLedger {
        ledger_id: signed(writer),
        offload_context: None,
    };
    let info = StoredManagedLedger {
        ledgers: vec![row(&*first), row(&*last)],
        properties: Vec::new(),
    };
    cluster.set(EVENTS, info.encode_to_vec()).await;
    let catalog = cluster.catalog().await;
    let plain = catalog.topic_policies(&topic("persistent://acme/cars/plain"));
    assert_eq!(plain.get("messageTTL"), Some(&json!(33)));
}
