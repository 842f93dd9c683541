//! Clusters: names and addresses.

use std::collections::BTreeMap;

use serde_json::Value;

use pharos_auth::Action;

use super::{Resource, Route};
use crate::ClusterData;

const ONE: &str = "/admin/v2/clusters/{cluster}";

table! { Resource::Clusters;
    "Lists the names of clusters."
    LIST = Route::get("/admin/v2/clusters", "list", Action::ListClusters).json::<Vec<String>>();
    "What is known about a cluster."
    READ = Route::get(ONE, "read", Action::ReadCluster).json::<ClusterData>().fails(&[404]);
    "Makes a cluster known."
    CREATE = Route::put(ONE, "create", Action::UpdateCluster).may_take::<ClusterData>().done(200).fails(&[409]);
    "Changes what is known about a cluster."
    UPDATE = Route::post(ONE, "update", Action::UpdateCluster).takes::<ClusterData>().done(200).fails(&[404]);
    "Forgets a cluster that no namespace lives on."
    DELETE = Route::delete(ONE, "delete", Action::UpdateCluster).fails(&[404]);
    "The clusters that may stand in for one."
    PEERS = Route::get("/admin/v2/clusters/{cluster}/peers", "peers", Action::ReadCluster).json::<Vec<String>>().fails(&[404]);
    "The failure domains of a cluster; there are none."
    FAILURE_DOMAINS = Route::get("/admin/v2/clusters/{cluster}/failureDomains", "failureDomains", Action::ReadCluster)
        .json::<BTreeMap<String, Value>>().fails(&[404]);
    "The isolation policies of a cluster; there are none."
    ISOLATION_POLICIES = Route::get("/admin/v2/clusters/{cluster}/namespaceIsolationPolicies", "isolationPolicies", Action::ReadCluster)
        .json::<BTreeMap<String, Value>>().fails(&[404]);
}
