//! Namespaces that are on other clusters and not on this one.
//!
//! Such a namespace can be made here, because tools make all namespaces in one place, but has no topics here. Lookups of a topic in it
//! are sent to a peer of this cluster that the namespace names, as in Pulsar, and refused where there is none. A cluster that is not
//! known has no such namespaces: a broker whose `cluster_name` was changed goes on with what it has.

use pharos_admin_api::ClusterData;
use pharos_types::{NamespaceName, TopicName};
use serde_json::Value;

use super::known::{Facts, Homeless, Namespace};
use super::{Catalog, Policies};

/// A topic whose namespace is not on this cluster. Its text is Pulsar's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "Namespace missing local cluster name in clusters list: local_cluster={own} ns={} clusters=[{}]",
    .topic.namespace(), .clusters.join(", ")
)]
pub struct OtherCluster {
    /// The topic that was asked for.
    pub topic: TopicName,
    /// Name of this cluster.
    pub own: String,
    /// The clusters that the namespace is on.
    pub clusters: Vec<String>,
    /// Addresses of a peer of this cluster that is among them, if there is one.
    pub peer: Option<Box<PeerCluster>>,
}

/// Addresses of a cluster that serves a namespace in place of this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerCluster {
    /// Its name.
    pub name: String,
    /// `http://host:port`.
    pub service_url: Option<String>,
    /// `https://host:port`.
    pub service_url_tls: Option<String>,
    /// `pulsar://host:port`.
    pub broker_service_url: Option<String>,
    /// `pulsar+ssl://host:port`.
    pub broker_service_url_tls: Option<String>,
}

impl PeerCluster {
    fn new(name: &str, data: &ClusterData) -> Self {
        let url = |url: &Option<String>| url.clone().filter(|url| !url.trim().is_empty());
        Self {
            name: name.to_owned(),
            service_url: url(&data.service_url),
            service_url_tls: url(&data.service_url_tls),
            broker_service_url: url(&data.broker_service_url),
            broker_service_url_tls: url(&data.broker_service_url_tls),
        }
    }
}

impl Catalog {
    /// Checks that the namespace of a topic is on this cluster. One that does not exist passes.
    ///
    /// # Errors
    /// [`OtherCluster`].
    pub fn check_cluster(&self, topic: &TopicName) -> Result<(), Box<OtherCluster>> {
        match self.inner.known.read().namespace_here(&self.inner.options, topic) {
            Err(Homeless::OtherCluster(other)) => Err(other),
            Ok(_) | Err(Homeless::Tenant | Homeless::Namespace) => Ok(()),
        }
    }
}

impl Facts {
    /// The namespace of a topic, if it is on this cluster.
    pub(super) fn namespace_here(
        &self,
        options: &super::CatalogOptions,
        topic: &TopicName,
    ) -> Result<&Namespace, Homeless> {
        let (namespace, own) = (self.namespace(topic)?, &options.cluster_name);
        let is_here = is_on(&namespace.policies.value, own)
            || !self.clusters.contains_key(own)
            || options.is_heartbeat(topic.namespace());
        match is_here {
            true => Ok(namespace),
            false => Err(Homeless::OtherCluster(Box::new(
                self.other_cluster(own, topic, namespace),
            ))),
        }
    }

    fn other_cluster(&self, own: &str, topic: &TopicName, namespace: &Namespace) -> OtherCluster {
        let clusters = namespace.policies.value.replication_clusters();
        let peers = self.clusters.get(own);
        let peers = peers.and_then(|record| record.value.peer_cluster_names.as_deref());
        let mut named = peers.into_iter().flatten().filter(|peer| clusters.contains(peer));
        let peer = named.find_map(|peer| {
            let record = self.clusters.get(peer)?;
            Some(Box::new(PeerCluster::new(peer, &record.value)))
        });
        OtherCluster {
            topic: topic.clone(),
            own: own.to_owned(),
            clusters,
            peer,
        }
    }

    /// True if a namespace has topics of its users.
    pub(super) fn has_topics(&self, name: &NamespaceName) -> bool {
        let Some(namespace) = self.namespaces.get(name) else {
            return false;
        };
        let mut topics = namespace.topics.keys().chain(&namespace.loaded);
        topics.any(|topic| !topic.is_system()) || !namespace.partitioned.is_empty() || namespace.creating > 0
    }
}

/// True if policies name a cluster, or none at all.
fn is_on(policies: &Policies, cluster: &str) -> bool {
    let listed = |member: &str| policies.get(member).and_then(Value::as_array);
    let names = |list: &Vec<Value>| list.iter().any(|name| name.as_str() == Some(cluster));
    listed("replication_clusters").is_none_or(|list| list.is_empty() || names(list))
        || listed("allowed_clusters").is_some_and(names)
}
