//! Clusters: names and addresses.

use std::collections::BTreeMap;

use pharos_auth::Action;

use super::{Resource, Route};
use crate::{BrokerNamespaceIsolationData, ClusterData, FailureDomain, NamespaceIsolationData};

const ONE: &str = "/admin/v2/clusters/{cluster}";
const DOMAINS: &str = "/admin/v2/clusters/{cluster}/failureDomains";
const DOMAIN: &str = "/admin/v2/clusters/{cluster}/failureDomains/{domainName}";
const POLICIES: &str = "/admin/v2/clusters/{cluster}/namespaceIsolationPolicies";
const BROKERS: &str = "/admin/v2/clusters/{cluster}/namespaceIsolationPolicies/brokers";
const BROKER: &str = "/admin/v2/clusters/{cluster}/namespaceIsolationPolicies/brokers/{broker}";
const POLICY: &str = "/admin/v2/clusters/{cluster}/namespaceIsolationPolicies/{policy}";

table! { Resource::Clusters;
    "Lists the names of clusters."
    LIST = Route::get("/admin/v2/clusters", "list", Action::ListClusters).json::<Vec<String>>();
    "What is known about a cluster."
    READ = Route::get(ONE, "read", Action::ReadCluster).json::<ClusterData>().fails(&[404]);
    "Makes a cluster known."
    CREATE = Route::put(ONE, "create", Action::UpdateCluster).may_take::<ClusterData>().done(200).fails(&[400, 409]);
    "Changes what is known about a cluster."
    UPDATE = Route::post(ONE, "update", Action::UpdateCluster).takes::<ClusterData>().done(200).fails(&[400, 404]);
    "Forgets a cluster that no namespace lives on."
    DELETE = Route::delete(ONE, "delete", Action::UpdateCluster).fails(&[404]);
    "The clusters that may stand in for one."
    PEERS = Route::get("/admin/v2/clusters/{cluster}/peers", "peers", Action::ReadCluster).json::<Vec<String>>().fails(&[404]);
    "The failure domains of a cluster: which brokers fail together."
    FAILURE_DOMAINS = Route::get(DOMAINS, "failureDomains", Action::ReadCluster)
        .json::<BTreeMap<String, FailureDomain>>().fails(&[404]);
    "One failure domain of a cluster."
    FAILURE_DOMAIN = Route::get(DOMAIN, "failureDomain", Action::ReadCluster).json::<FailureDomain>()
        .fails(&[404, 412]);
    "Sets a failure domain."
    SET_FAILURE_DOMAIN = Route::post(DOMAIN, "setFailureDomain", Action::UpdateCluster).takes::<FailureDomain>()
        .done(204).fails(&[409, 412]);
    "Removes a failure domain."
    REMOVE_FAILURE_DOMAIN = Route::delete(DOMAIN, "removeFailureDomain", Action::UpdateCluster).done(200)
        .fails(&[404, 412]);
    "The isolation policies of a cluster: to which brokers the bundles of some namespaces go."
    ISOLATION_POLICIES = Route::get(POLICIES, "isolationPolicies", Action::ReadCluster)
        .json::<BTreeMap<String, NamespaceIsolationData>>().fails(&[404]);
    "What the isolation policies of a cluster say of each of its brokers."
    ISOLATED_BROKERS = Route::get(BROKERS, "isolatedBrokers", Action::ReadCluster)
        .json::<Vec<BrokerNamespaceIsolationData>>().fails(&[404, 412]);
    "What the isolation policies of a cluster say of a broker."
    ISOLATED_BROKER = Route::get(BROKER, "isolatedBroker", Action::ReadCluster)
        .json::<BrokerNamespaceIsolationData>().fails(&[404, 412]);
    "One isolation policy of a cluster."
    ISOLATION_POLICY = Route::get(POLICY, "isolationPolicy", Action::ReadCluster)
        .json::<NamespaceIsolationData>().fails(&[404, 412]);
    "Sets an isolation policy; bundles that have an owner stay where they are."
    SET_ISOLATION_POLICY = Route::post(POLICY, "setIsolationPolicy", Action::UpdateCluster)
        .takes::<NamespaceIsolationData>().done(204).fails(&[412]);
    "Removes an isolation policy."
    REMOVE_ISOLATION_POLICY = Route::delete(POLICY, "removeIsolationPolicy", Action::UpdateCluster)
        .fails(&[404, 412]);
}
