//! Clusters: names and addresses.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Resource, Route};
use crate::ClusterData;

const ONE: &str = "/admin/v2/clusters/{cluster}";

table! { Resource::Clusters;
    "Lists the names of clusters."
    LIST = Route::get("/admin/v2/clusters", "list").json::<Vec<String>>();
    "What is known about a cluster."
    READ = Route::get(ONE, "read").json::<ClusterData>().fails(&[404]);
    "Makes a cluster known."
    CREATE = Route::put(ONE, "create").may_take::<ClusterData>().done(200).fails(&[409]);
    "Changes what is known about a cluster."
    UPDATE = Route::post(ONE, "update").takes::<ClusterData>().done(200).fails(&[404]);
    "Forgets a cluster that no namespace lives on."
    DELETE = Route::delete(ONE, "delete").fails(&[404]);
    "The clusters that may stand in for one."
    PEERS = Route::get("/admin/v2/clusters/{cluster}/peers", "peers").json::<Vec<String>>().fails(&[404]);
    "The failure domains of a cluster; there are none."
    FAILURE_DOMAINS = Route::get("/admin/v2/clusters/{cluster}/failureDomains", "failureDomains")
        .json::<BTreeMap<String, Value>>().fails(&[404]);
    "The isolation policies of a cluster; there are none."
    ISOLATION_POLICIES = Route::get("/admin/v2/clusters/{cluster}/namespaceIsolationPolicies", "isolationPolicies")
        .json::<BTreeMap<String, Value>>().fails(&[404]);
}
