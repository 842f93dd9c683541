//! Keys of each fact in the metadata store. The only place that builds or parses keys.

use pharos_types::{Domain, NamespaceName, TopicName};

use super::schema::SchemaVersion;

/// All of them are below it.
pub(super) const ROOT: &str = "admin/";
pub(super) const CLUSTERS: &str = "admin/clusters/";
/// Behind the name of a cluster.
const ISOLATION: &str = "namespaceIsolationPolicies";
/// Key segment after a cluster's name; the names of its failure domains follow it.
const FAILURE_DOMAINS: &str = "failureDomain";
pub(super) const POLICIES: &str = "admin/policies/";
pub(super) const PARTITIONED: &str = "admin/partitioned-topics/";
pub(super) const TOPIC_POLICIES: &str = "admin/topic-policies/";
pub(super) const TOPICS: &str = "admin/topics/";
pub(super) const SCHEMAS: &str = "admin/schemas/";
/// Settings that were changed while brokers run.
pub(super) const CONFIGURATION: &str = "admin/configuration";
/// The topic of a namespace that has policies of its topics as events.
pub(super) const CHANGE_EVENTS: &str = "__change_events";
/// Keys of Pulsar's own brokers for facts that Pharos stores elsewhere, or not at all; see `pulsar`.
pub(super) const PULSAR_LOCAL_POLICIES: &str = "admin/local-policies/";
pub(super) const PULSAR_TOPICS: &str = "managed-ledgers/";
pub(super) const PULSAR_SCHEMAS: &str = "schemas/";
/// Keys of Pharos that Pulsar's brokers do not read.
pub(super) const PULSAR_MARKS: &str = "pharos-deleting/";
pub(super) const PULSAR_TOPIC_POLICIES: &str = "pharos-topic-policies/";

pub(super) fn cluster(name: &str) -> String {
    format!("{CLUSTERS}{name}")
}

/// The isolation policies of a cluster.
pub(super) fn isolation(cluster: &str) -> String {
    format!("{CLUSTERS}{cluster}/{ISOLATION}")
}

pub(super) fn failure_domain(cluster: &str, domain: &str) -> String {
    format!("{CLUSTERS}{cluster}/{FAILURE_DOMAINS}/{domain}")
}

/// Subject of a key in [`CLUSTERS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OfCluster<'a> {
    /// The cluster of this name.
    Itself(&'a str),
    /// Its isolation policies.
    Isolation(&'a str),
    /// A failure domain: the cluster and its own name.
    FailureDomain(&'a str, &'a str),
}

/// Returns the subject of a cluster key; `None` if it is no cluster key, or one that only other brokers use.
pub(super) fn cluster_of(key: &str) -> Option<OfCluster<'_>> {
    let path = key.strip_prefix(CLUSTERS)?;
    let Some((cluster, below)) = path.split_once('/') else {
        return Some(OfCluster::Itself(path));
    };
    if below == ISOLATION {
        return Some(OfCluster::Isolation(cluster));
    }
    match below.split_once('/')? {
        (FAILURE_DOMAINS, domain) if !domain.contains('/') => Some(OfCluster::FailureDomain(cluster, domain)),
        _ => None,
    }
}

/// True if a topic stores the policies of other topics, as events.
pub(super) fn has_policy_events(topic: &TopicName) -> bool {
    topic.base().local() == CHANGE_EVENTS
}

pub(super) fn tenant(name: &str) -> String {
    format!("{POLICIES}{name}")
}

pub(super) fn namespace(name: &NamespaceName) -> String {
    format!("{POLICIES}{name}")
}

pub(super) fn partitioned(name: &TopicName) -> String {
    topic_path(PARTITIONED, name)
}

pub(super) fn topic_policies(base: &TopicName) -> String {
    topic_path(TOPIC_POLICIES, base)
}

pub(super) fn topic(name: &TopicName) -> String {
    topic_path(TOPICS, name)
}

/// The id of the schemas of a topic and all its partitions: `tenant/namespace/topic`. It is also `Schema.name` on the
/// wire.
pub(super) fn schema_id(topic: &TopicName) -> String {
    format!("{}/{}", topic.namespace(), encode(topic.base().local()))
}

/// All versions of a schema are below it; the name under which they are written.
pub(super) fn schemas(id: &str) -> String {
    format!("{SCHEMAS}{id}")
}

pub(super) fn schema(id: &str, version: SchemaVersion) -> String {
    // Twenty digits hold every number and keep the keys in the order of the versions.
    format!("{SCHEMAS}{id}/{:020}", version.0)
}

fn topic_path(prefix: &str, name: &TopicName) -> String {
    let domain = name.domain().as_str();
    format!("{prefix}{}/{domain}/{}", name.namespace(), encode(name.local()))
}

/// The topic whose key is `key`; `None` when the key is not one of ours.
pub(super) fn topic_of(prefix: &str, key: &str) -> Option<TopicName> {
    let parts: Vec<&str> = key.strip_prefix(prefix)?.split('/').collect();
    let [tenant, namespace, domain, local] = parts.as_slice() else {
        return None;
    };
    let domain = [Domain::Persistent, Domain::NonPersistent]
        .into_iter()
        .find(|known| known.as_str() == *domain)?;
    let namespace = NamespaceName::new(tenant, namespace).ok()?;
    TopicName::new(domain, namespace, &decode(local)?).ok()
}

/// The schema id and version of a schema's key.
pub(super) fn schema_of(key: &str) -> Option<(&str, SchemaVersion)> {
    let (id, version) = key.strip_prefix(SCHEMAS)?.rsplit_once('/')?;
    Some((id, SchemaVersion(version.parse().ok()?)))
}

/// URL-encodes a local name, as form fields are: letters, digits and `.-*_` stay, a space becomes `+`.
pub(super) fn encode(local: &str) -> String {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let hex = |nibble: u8| {
        HEX.get(usize::from(nibble))
            .map_or('0', |digit| char::from(*digit))
    };
    let mut out = String::with_capacity(local.len());
    for byte in local.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'-' | b'*' | b'_' => out.push(char::from(byte)),
            b' ' => out.push('+'),
            _ => out.extend(['%', hex(byte >> 4), hex(byte & 15)]),
        }
    }
    out
}

/// The reverse of [`encode`]; `None` when the text is not well formed.
pub(super) fn decode(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'+' => b' ',
            b'%' => {
                let high = char::from(bytes.next()?).to_digit(16)?;
                let low = char::from(bytes.next()?).to_digit(16)?;
                u8::try_from(high * 16 + low).ok()?
            }
            other => other,
        });
    }
    String::from_utf8(out).ok()
}

/// Returns the key in another tree: the prefix `from` is replaced by `to`.
pub(super) fn moved(key: &str, from: &str, to: &str) -> Option<String> {
    Some(format!("{to}{}", key.strip_prefix(from)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_names_survive_the_store() {
        for name in [
            "a",
            "a b",
            "ünï/x%+y*z_.-",
            "persistent://t/n/ü x%2F",
            "non-persistent://t/n/a-partition-3",
        ] {
            let Ok(name) = name.parse::<TopicName>() else {
                continue;
            };
            assert_eq!(topic_of(TOPICS, &topic(&name)), Some(name));
        }
        assert_eq!(encode("a b/ü"), "a+b%2F%C3%BC");
        assert_eq!(decode("%2"), None);
        assert_eq!(decode("%zz"), None);
    }

    #[test]
    fn partitions_share_a_schema_id() {
        let topic: TopicName = "t/n/a b-partition-4".parse().unwrap();
        assert_eq!(schema_id(&topic), "t/n/a+b");
        let key = schema("t/n/a+b", SchemaVersion(7));
        assert_eq!(schema_of(&key), Some(("t/n/a+b", SchemaVersion(7))));
    }
}
