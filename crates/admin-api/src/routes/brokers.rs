//! Brokers: health, readiness, version, settings, what they serve, and the metrics page.

use std::collections::BTreeMap;

use serde_json::Value;

use pharos_auth::Action;

use super::{Resource, Route};
use crate::query::BookieRackQuery;
use crate::{
    BookieInfo, BookiesClusterInfo, BrokerInfo, InternalConfigurationData, NamespaceOwnershipStatus,
};

table! { Resource::Brokers;
    "Lists the brokers, as `host:port` of their HTTP service."
    LIST = Route::get("/admin/v2/brokers", "list", Action::ReadBroker).json::<Vec<String>>();
    "Lists the brokers of a cluster."
    OF_CLUSTER = Route::get("/admin/v2/brokers/{cluster}", "ofCluster", Action::ReadBroker).json::<Vec<String>>().fails(&[404]);
    "The bundles that a broker serves."
    OWNED_NAMESPACES = Route::get("/admin/v2/brokers/{cluster}/{broker}/ownedNamespaces", "ownedNamespaces", Action::ReadBroker)
        .json::<BTreeMap<String, NamespaceOwnershipStatus>>().fails(&[404]);
    "Measures the backlog of every loaded topic now, and does what its quotas say."
    CHECK_BACKLOG_QUOTAS = Route::get("/admin/v2/brokers/backlog-quota-check", "checkBacklogQuotas", Action::UpdateBroker).done(204);
    "Publishes a message, reads it back, and says whether that went well."
    HEALTH = Route::get("/admin/v2/brokers/health", "health", Action::ReadHealth).text();
    "Whether the broker takes work now."
    READY = Route::get("/admin/v2/brokers/ready", "ready", Action::ReadHealth).text();
    "The release of this API, and that of the broker behind it."
    VERSION = Route::get("/admin/v2/brokers/version", "version", Action::ReadVersion).text();
    "The broker that leads."
    LEADER = Route::get("/admin/v2/brokers/leaderBroker", "leader", Action::ReadBroker).json::<BrokerInfo>().fails(&[404]);
    "Lists the bookies that take writes."
    BOOKIES = Route::get("/admin/v2/bookies/all", "bookies", Action::ReadBroker).json::<BookiesClusterInfo>().fails(&[501]);
    "Where bookies stand, by group and bookie, as it was written down."
    RACKS = Route::get("/admin/v2/bookies/racks-info", "racks", Action::ReadBroker)
        .json::<BTreeMap<String, BTreeMap<String, BookieInfo>>>().fails(&[501]);
    "Where a bookie stands."
    RACK = Route::get("/admin/v2/bookies/racks-info/{bookie}", "rack", Action::ReadBroker).json::<BookieInfo>().fails(&[404, 501]);
    "Writes down where a bookie stands."
    SET_RACK = Route::post("/admin/v2/bookies/racks-info/{bookie}", "setRack", Action::UpdateBroker).query::<BookieRackQuery>()
        .takes::<BookieInfo>().done(204).fails(&[409, 412, 501]);
    "Forgets where a bookie stands."
    REMOVE_RACK = Route::delete("/admin/v2/bookies/racks-info/{bookie}", "removeRack", Action::UpdateBroker).fails(&[404, 409, 501]);
    "The names of the settings that can be changed while brokers run: Pulsar's, and our own."
    DYNAMIC_NAMES = Route::get("/admin/v2/brokers/configuration", "dynamicSettings", Action::ReadBroker).json::<Vec<String>>();
    "The settings that were changed while brokers run, for all brokers, and their values."
    DYNAMIC_VALUES = Route::get("/admin/v2/brokers/configuration/values", "dynamicValues", Action::ReadBroker)
        .json::<BTreeMap<String, String>>();
    "Changes a setting of all brokers while they run. 412 for one that cannot be changed so, and for a value that it does not take."
    SET_DYNAMIC = Route::post("/admin/v2/brokers/configuration/{setting}/{value}", "setDynamic", Action::UpdateBroker).done(200).fails(&[412]);
    "Takes such a change back: each broker has the value that it was started with."
    REMOVE_DYNAMIC = Route::delete("/admin/v2/brokers/configuration/{setting}", "removeDynamic", Action::UpdateBroker).done(200).fails(&[412]);
    "The settings in force."
    SETTINGS = Route::get("/admin/v2/brokers/configuration/runtime", "settings", Action::ReadBroker).json::<BTreeMap<String, String>>();
    "Where metadata and ledgers are kept."
    INTERNAL_CONFIGURATION = Route::get("/admin/v2/brokers/internal-configuration", "internalConfiguration", Action::ReadBroker)
        .json::<InternalConfigurationData>();
    "The stats of every topic, by namespace, bundle and domain."
    TOPIC_STATS = Route::get("/admin/v2/broker-stats/topics", "topicStats", Action::ReadBroker).json::<BTreeMap<String, Value>>();
    "What this broker tells others of its load; 404 when it is alone."
    LOAD_REPORT = Route::get("/admin/v2/broker-stats/load-report", "loadReport", Action::ReadBroker).json::<BTreeMap<String, Value>>()
        .fails(&[404]);
    "Rates, counts, backlog and size of each namespace that has loaded topics, as `metrics` with their `dimensions`."
    MONITORING_METRICS = Route::get("/admin/v2/broker-stats/metrics", "monitoringMetrics", Action::ReadBroker)
        .json::<Vec<BTreeMap<String, Value>>>();
    "Answers 200 while the broker takes work; for load balancers."
    STATUS = Route::get("/status.html", "status", Action::ReadStatus).text();
    "The metrics page, in the Prometheus text format."
    METRICS = Route::get("/metrics", "metrics", Action::ReadMetrics).text();
    "The metrics page, where some scrapers ask for it."
    METRICS_DIRECTORY = Route::get("/metrics/", "metricsDirectory", Action::ReadMetrics).text();
}
