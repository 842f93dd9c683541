//! Check of a takeover from Pulsar's brokers: finds what would be taken over and what cannot be, without changing
//! anything.

use std::collections::BTreeMap;

use pharos_metadata::{MetadataStore, ReadError};
use pharos_types::{NamespaceName, TopicName};
use prost::Message;
use serde::Serialize;
use serde_json::{Map, Value};

use super::bytes_of::{SchemaLocator, StoredManagedLedger};
use super::namespaces::merged;
use super::policy_events::{EventLogsRead, EventsReader, all_said};
use super::{OpenLedgers, PulsarFacts};
use crate::keys;
use crate::policy::{self, BrokerPolicies, Level};
use crate::{GLOBAL, Policies};

/// Brokers are registered below it.
const BROKERS: &str = "loadbalance/brokers/";
/// The cursor of what a topic is compacted by, and that of deduplication.
const COMPACTION: &str = "__compaction";
const DEDUPLICATION: &str = "pulsar.dedup";
/// Beginning of the cursors of what is copied to other clusters and to shadow topics, and of the former alone.
const REPLICATORS: &str = "pulsar.repl";
const REPLICATOR: &str = "pulsar.repl.";
/// Magic number of a compressed cursor state.
const COMPRESSED: [u8; 2] = [0x47, 0x79];
/// End of the name of the topic of acknowledgements in transactions.
const PENDING_ACKS: &str = "__transaction_pending_ack";
/// Policies that say where a thing had better be: without them it is somewhere else, and no promise is broken.
const HINTS: [&str; 2] = ["anti_affinity_group", "allowed_topic_property_keys_for_metrics"];

/// Data found in Pulsar's tree, and the obstacles to a takeover.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Takeover {
    /// The clusters that are known there.
    pub clusters: Vec<String>,
    /// Brokers that are still registered.
    pub brokers: Vec<String>,
    /// The tenants.
    pub tenants: Vec<String>,
    /// The namespaces.
    pub namespaces: Vec<String>,
    /// Partitioned topics, and how many partitions each has.
    pub partitioned: BTreeMap<String, u32>,
    /// Topics, partitions one by one, and the subscriptions of each.
    pub topics: BTreeMap<String, Vec<String>>,
    /// Topics with schemas, and the versions of each.
    pub schemas: BTreeMap<String, Vec<i64>>,
    /// Topics with policies of their own.
    pub topic_policies: Vec<String>,
    /// Items that cannot be taken over.
    pub refused: Vec<Finding>,
    /// Items that differ after the takeover.
    pub notes: Vec<Finding>,
}

/// Something by name, and what is to be said of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Subject of the finding.
    pub what: String,
    /// Message of the finding.
    pub why: String,
}

impl Takeover {
    /// True if everything can be taken over now.
    #[must_use]
    pub fn is_possible(&self) -> bool {
        self.refused.is_empty() && self.brokers.is_empty()
    }

    fn refuse(&mut self, what: impl ToString, why: impl ToString) {
        self.refused.push(Finding {
            what: what.to_string(),
            why: why.to_string(),
        });
    }

    fn note(&mut self, what: impl ToString, why: impl ToString) {
        self.notes.push(Finding {
            what: what.to_string(),
            why: why.to_string(),
        });
    }
}

impl PulsarFacts {
    /// Looks at what Pulsar's brokers left, and changes nothing. `cluster`: the name of the one to be served; `broker`: what the broker
    /// would say of policies.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn examine(&self, cluster: &str, broker: &BrokerPolicies) -> Result<Takeover, ReadError> {
        let (mut found, compacted) = examine(&*self.store, cluster, broker).await?;
        for topic in compacted {
            if let Err(why) = EventsReader::new(self, OpenLedgers::Peek)
                .look_at_compacted(&topic)
                .await
            {
                found.refuse(topic, why);
            }
        }
        match EventsReader::new(self, OpenLedgers::Peek)
            .read_all(&EventLogsRead::new())
            .await
        {
            Ok(logs) => {
                for (path, said) in all_said(&logs) {
                    topic_policies(&path, &said.policies(), cluster, broker, &mut found);
                }
            }
            Err(error) => found.refuse("policies of single topics", causes(&error)),
        }
        Ok(found)
    }
}

/// An error and what it came of.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(error) = next {
        text = format!("{text}: {error}");
        next = error.source();
    }
    text
}

async fn examine(
    store: &dyn MetadataStore,
    cluster: &str,
    broker: &BrokerPolicies,
) -> Result<(Takeover, Vec<TopicName>), ReadError> {
    let mut found = Takeover::default();
    for key in store.list(keys::CLUSTERS).await? {
        if let Some(keys::OfCluster::Itself(name)) = keys::cluster_of(&key) {
            found.clusters.push(name.to_owned());
        }
    }
    if !found.clusters.iter().any(|known| known == cluster) {
        let known = found.clusters.join(", ");
        found.refuse(
            format!("cluster {cluster}"),
            format!("it is none of the clusters of this metadata ({known}): say which one in cluster_name"),
        );
    }
    let brokers = store.list(BROKERS).await?;
    found.brokers = brokers
        .iter()
        .filter_map(|key| Some(key.strip_prefix(BROKERS)?.to_owned()))
        .collect();
    namespaces(store, cluster, broker, &mut found).await?;
    let compacted = topics(store, &mut found).await?;
    schemas(store, &mut found).await?;
    Ok((found, compacted))
}

async fn namespaces(
    store: &dyn MetadataStore,
    cluster: &str,
    broker: &BrokerPolicies,
    found: &mut Takeover,
) -> Result<(), ReadError> {
    for item in store.scan(keys::POLICIES).await? {
        let path = item.key.strip_prefix(keys::POLICIES).unwrap_or_default();
        if item.value.is_empty() {
            continue;
        }
        match (path.split('/').count(), path.parse::<NamespaceName>()) {
            (1, _) => found.tenants.push(path.to_owned()),
            (2, Ok(_)) => {
                found.namespaces.push(path.to_owned());
                let local = store
                    .get(&format!("{}{path}", keys::PULSAR_LOCAL_POLICIES))
                    .await?;
                let all = merged(&item.value, local.as_ref().map(|local| &local.value));
                match serde_json::from_slice::<Map<String, Value>>(&all) {
                    Ok(members) => policies(path, &Policies::from(members), cluster, broker, found),
                    Err(error) => found.refuse(
                        format!("namespace {path}"),
                        format!("its policies are not readable: {error}"),
                    ),
                }
            }
            _ => found.refuse(
                format!("namespace {path}"),
                "names of namespaces with a cluster in them are not served",
            ),
        }
    }
    for item in store.scan(keys::PARTITIONED).await? {
        let Some(topic) = keys::topic_of(keys::PARTITIONED, &item.key).filter(|_| !item.value.is_empty())
        else {
            continue;
        };
        match serde_json::from_slice::<pharos_admin_api::PartitionedTopicMetadata>(&item.value) {
            Ok(whole) => _ = found.partitioned.insert(topic.to_string(), whole.partitions),
            Err(error) => found.refuse(
                topic,
                format!("how many partitions it has is not readable: {error}"),
            ),
        }
    }
    Ok(())
}

/// Says which policies of a namespace would not hold.
fn policies(path: &str, policies: &Policies, cluster: &str, broker: &BrokerPolicies, found: &mut Takeover) {
    let what = |member: &str| format!("namespace {path}, policy {member}");
    let clusters = policies.replication_clusters();
    if !clusters.is_empty() && clusters.iter().all(|named| named != cluster) {
        found.refuse(
            what("replication_clusters"),
            format!("it does not name {cluster}, so none of its topics is here"),
        );
    }
    for (member, value) in policies.members().iter().filter(|(_, value)| !value.is_null()) {
        let row = policy::all().find(|row| row.namespace.is_some_and(|at| at.member == member));
        let Some(row) = row else {
            if !policy::is_off(value) {
                found.refuse(what(member), "it is not known, and nothing would act on it");
            }
            continue;
        };
        let Some(at) = row.namespace else { continue };
        // What Pulsar writes where nothing is set means the same here.
        if policy::is_off(value) || at.unset_member.is_some_and(|unset| unset(broker) == *value) {
            continue;
        }
        let Some(said) = at.said_by(policies, cluster) else {
            continue;
        };
        if at.path.is_empty() {
            if !at.acts {
                found.refuse(what(member), "nothing acts on it in this release");
            }
        } else if let Err(refusal) = row.accept(Level::Namespace, said.clone(), broker, cluster) {
            match HINTS.contains(&member.as_str()) {
                true => found.note(what(member), refusal),
                false => found.refuse(what(member), refusal),
            }
        }
    }
}

/// Same check of a topic's policies, which have the catalog's names.
fn topic_policies(
    path: &str,
    policies: &Map<String, Value>,
    cluster: &str,
    broker: &BrokerPolicies,
    found: &mut Takeover,
) {
    let topic = keys::topic_of(keys::TOPIC_POLICIES, &format!("{}{path}", keys::TOPIC_POLICIES));
    let topic = topic.map_or_else(|| path.to_owned(), |topic| topic.to_string());
    if policies.is_empty() {
        return;
    }
    for (name, value) in policies {
        let what = format!("topic {topic}, policy {name}");
        let name = name.strip_prefix(GLOBAL).unwrap_or(name);
        if policy::is_off(value) {
            continue;
        }
        let row = policy::all().find(|row| row.topic.is_some_and(|at| at.path == name));
        let accepted = row.map(|row| row.accept(Level::Topic, value.clone(), broker, cluster));
        match accepted {
            Some(Ok(_)) => {}
            Some(Err(refusal)) => found.refuse(what, refusal),
            None => found.refuse(what, "it is not known, and nothing would act on it"),
        }
    }
    found.topic_policies.push(topic);
}

/// Answers with the topics that are compacted.
async fn topics(store: &dyn MetadataStore, found: &mut Takeover) -> Result<Vec<TopicName>, ReadError> {
    let mut compacted = Vec::new();
    for key in store.list(keys::PULSAR_TOPICS).await? {
        let Some(path) = key.strip_prefix(keys::PULSAR_TOPICS) else {
            continue;
        };
        let parts: Vec<&str> = path.split('/').collect();
        if let [tenant, cluster, namespace, domain, local] = parts.as_slice()
            && *domain == "persistent"
        {
            let why = "names of topics with a cluster in them are not served";
            found.refuse(
                format!("persistent://{tenant}/{cluster}/{namespace}/{local}"),
                why,
            );
            continue;
        }
        if let [tenant, namespace, "persistent", local, cursor] = parts.as_slice() {
            let topic = keys::topic_of(
                keys::PULSAR_TOPICS,
                &format!("{}{tenant}/{namespace}/persistent/{local}", keys::PULSAR_TOPICS),
            );
            let (Some(topic), Some(name)) = (topic, keys::decode(cursor)) else {
                found.refuse(
                    format!("managed ledger {path}"),
                    "its name is not one of a subscription",
                );
                continue;
            };
            if name.starts_with(REPLICATORS) && !name.starts_with(REPLICATOR) {
                found.refuse(
                    topic,
                    "it is copied to a shadow topic, and a cursor waits for that",
                );
                continue;
            }
            let value = store.get(&key).await?.map(|found| found.value);
            if value.is_some_and(|value| value.starts_with(&COMPRESSED)) {
                let why = "its state is compressed: managedCursorInfoCompressionType must be NONE";
                found.refuse(format!("subscription {name} of {topic}"), why);
            }
            match name.as_str() {
                COMPACTION => compacted.push(topic),
                DEDUPLICATION => {}
                replicator if replicator.starts_with(REPLICATOR) => {}
                _ => found.topics.entry(topic.to_string()).or_default().push(name),
            }
            continue;
        }
        let Some(topic) = keys::topic_of(keys::PULSAR_TOPICS, &key) else {
            if parts.len() >= 4 {
                found.refuse(format!("managed ledger {path}"), "its name is not one of a topic");
            }
            continue;
        };
        found.topics.entry(topic.to_string()).or_default();
        let value = store
            .get(&key)
            .await?
            .map(|found| found.value)
            .unwrap_or_default();
        of_topic(&topic, &value, found);
    }
    Ok(compacted)
}

fn of_topic(topic: &TopicName, info: &[u8], found: &mut Takeover) {
    let local = topic.local();
    match StoredManagedLedger::decode(info) {
        Err(_) => found.refuse(
            topic,
            "its info is compressed, or damaged: managedLedgerInfoCompressionType must be NONE",
        ),
        Ok(info) => {
            if info.ledgers.iter().any(|ledger| ledger.offload_context.is_some()) {
                found.refuse(topic, "ledgers of it were offloaded, and are not read from there");
            }
            let is_of_transactions = local.starts_with("__transaction_buffer_snapshot")
                || topic.base().local().ends_with(PENDING_ACKS);
            if is_of_transactions && !info.ledgers.is_empty() {
                found.refuse(
                    topic,
                    "transactions were used in this namespace: what was not committed would be delivered",
                );
            }
        }
    }
    let is_home = found
        .namespaces
        .iter()
        .any(|known| *known == topic.namespace().to_string());
    if !is_home {
        found.note(topic, "its namespace has no policies, so it is not served");
    }
}

async fn schemas(store: &dyn MetadataStore, found: &mut Takeover) -> Result<(), ReadError> {
    for item in store.scan(keys::PULSAR_SCHEMAS).await? {
        let id = item.key.strip_prefix(keys::PULSAR_SCHEMAS).unwrap_or_default();
        if item.value.is_empty() {
            continue;
        }
        match SchemaLocator::decode(&*item.value) {
            Ok(locator) => {
                let versions = locator.index.iter().map(|entry| entry.version).collect();
                found.schemas.insert(id.to_owned(), versions);
            }
            Err(error) => found.refuse(
                format!("schema {id}"),
                format!("where its versions are is not readable: {error}"),
            ),
        }
    }
    Ok(())
}
