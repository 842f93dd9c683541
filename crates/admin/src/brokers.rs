//! The broker about itself: health, readiness, version, settings.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde_json::{Value, json};

use pharos_admin_api::routes::brokers as routes;
use pharos_admin_api::{BrokerInfo, InternalConfigurationData};
use pharos_catalog::{ChangeSettingError, ListMode, RuntimeSettings};
use pharos_types::NamespaceName;

use crate::bundles::bundles_of;
use crate::endpoint::{Endpoint, on};
use crate::error::{ApiError, ApiResult};
use crate::partitions::each_made;
use crate::paths::PathParams;
use crate::state::Admin;

pub(crate) fn endpoints() -> Vec<Endpoint> {
    vec![
        on(&routes::LIST, list),
        on(&routes::OF_CLUSTER, of_cluster),
        on(&routes::OWNED_NAMESPACES, owned_namespaces),
        on(&routes::CHECK_BACKLOG_QUOTAS, check_backlog_quotas),
        on(&routes::HEALTH, health),
        on(&routes::READY, ready),
        on(&routes::VERSION, version),
        on(&routes::LEADER, leader),
        on(&routes::DYNAMIC_NAMES, dynamic_names),
        on(&routes::DYNAMIC_VALUES, dynamic_values),
        on(&routes::SET_DYNAMIC, set_dynamic),
        on(&routes::REMOVE_DYNAMIC, remove_dynamic),
        on(&routes::SETTINGS, settings),
        on(&routes::INTERNAL_CONFIGURATION, internal_configuration),
        on(&routes::TOPIC_STATS, all_stats),
        on(&routes::LOAD_REPORT, load_report),
        on(&routes::STATUS, status),
    ]
}

async fn list(State(admin): State<Admin>) -> Json<Vec<String>> {
    Json(active(&admin))
}

/// The brokers of this cluster that are there.
fn active(admin: &Admin) -> Vec<String> {
    let others = admin.brokers.brokers();
    others.unwrap_or_else(|| vec![admin.options.broker_id().to_owned()])
}

async fn of_cluster(State(admin): State<Admin>, params: PathParams) -> ApiResult<Json<Vec<String>>> {
    let cluster = params.get("cluster");
    if admin.catalog.clusters().get(cluster).is_none() {
        return Err(ApiError::not_found("Cluster does not exist"));
    }
    Ok(Json(active_of(&admin, cluster)))
}

/// The brokers of a cluster that are there, as far as this one can know of them.
pub(crate) fn active_of(admin: &Admin, cluster: &str) -> Vec<String> {
    let is_here = cluster == admin.options.cluster_name;
    if is_here { active(admin) } else { Vec::new() }
}

/// Measures all backlogs now instead of at the next interval.
async fn check_backlog_quotas(State(admin): State<Admin>) -> ApiResult<StatusCode> {
    admin.brokers.check_backlog_quotas().await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The bundles that this broker has; another one is asked itself. Pulsar asks for the broker and not for the cluster.
async fn owned_namespaces(
    State(admin): State<Admin>,
    params: PathParams,
) -> ApiResult<Json<BTreeMap<String, Value>>> {
    let broker = params.get("broker");
    if broker != admin.options.broker_id() {
        return Err(ApiError::not_found(format!(
            "Broker id '{broker}' not found in available brokers."
        )));
    }
    let status = json!({"broker_assignment": "shared", "is_controlled": false, "is_active": true});
    let mut owned = BTreeMap::new();
    for namespace in all_namespaces(&admin) {
        for bundle in bundles_of(&admin.catalog, &namespace) {
            let bundle = format!("{namespace}/{bundle}");
            if admin.brokers.owns_bundle(&bundle) {
                owned.insert(bundle, status.clone());
            }
        }
    }
    Ok(Json(owned))
}

fn all_namespaces(admin: &Admin) -> Vec<NamespaceName> {
    admin
        .catalog
        .tenants()
        .names()
        .iter()
        .flat_map(|tenant| admin.catalog.namespaces().of(tenant))
        .collect()
}

async fn health(State(admin): State<Admin>) -> ApiResult<&'static str> {
    admin.brokers.health().await?;
    Ok("ok")
}

async fn ready(State(admin): State<Admin>) -> ApiResult<&'static str> {
    is_ready(&admin).map(|()| "ok")
}

/// Answers 200 when the broker takes work. Load balancers and container probes ask here.
async fn status(State(admin): State<Admin>) -> ApiResult<&'static str> {
    is_ready(&admin).map(|()| "OK")
}

fn is_ready(admin: &Admin) -> ApiResult<()> {
    match admin.brokers.why_not_ready() {
        None => Ok(()),
        Some(reason) => Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, reason)),
    }
}

/// The release of the API that this door speaks, in the form that tools parse, and ours behind it.
async fn version() -> &'static str {
    concat!("4.2.4-pharos-", env!("CARGO_PKG_VERSION"))
}

/// The broker that leads: this one where there is no other.
async fn leader(State(admin): State<Admin>) -> ApiResult<Json<BrokerInfo>> {
    let options = &admin.options;
    let us = || (options.broker_id().to_owned(), options.http_url.clone());
    let (broker_id, service_url) = admin.brokers.leader()?.unwrap_or_else(us);
    Ok(Json(BrokerInfo {
        service_url,
        broker_id,
    }))
}

async fn dynamic_names(State(admin): State<Admin>) -> Json<Vec<String>> {
    Json(RuntimeSettings::of(&admin.catalog).names())
}

async fn dynamic_values(State(admin): State<Admin>) -> Json<BTreeMap<String, String>> {
    Json(RuntimeSettings::of(&admin.catalog).changed())
}

async fn set_dynamic(State(admin): State<Admin>, params: PathParams) -> ApiResult<StatusCode> {
    change_dynamic(&admin, params.get("setting"), Some(params.get("value"))).await
}

async fn remove_dynamic(State(admin): State<Admin>, params: PathParams) -> ApiResult<StatusCode> {
    change_dynamic(&admin, params.get("setting"), None).await
}

async fn change_dynamic(admin: &Admin, name: &str, value: Option<&str>) -> ApiResult<StatusCode> {
    let changed = RuntimeSettings::of(&admin.catalog).change(name, value).await;
    changed.map_err(|error| match error {
        ChangeSettingError::Store(error) => error.into(),
        refused => ApiError::precondition(refused.to_string()),
    })?;
    Ok(StatusCode::OK)
}

async fn settings(State(admin): State<Admin>) -> Json<BTreeMap<String, String>> {
    Json(admin.options.settings.iter().cloned().collect())
}

async fn internal_configuration(State(admin): State<Admin>) -> Json<InternalConfigurationData> {
    let store = &admin.options.metadata_store_url;
    Json(InternalConfigurationData {
        metadata_store_url: store.clone(),
        configuration_metadata_store_url: store.clone(),
        ledgers_root_path: admin.options.ledgers_root_path.clone(),
        ..Default::default()
    })
}

async fn load_report(State(admin): State<Admin>) -> ApiResult<Json<Value>> {
    let report = admin.brokers.load_report()?;
    Ok(Json(serde_json::to_value(report).map_err(|error| {
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
    })?))
}

/// Stats of every topic that this broker serves: namespace → bundle → domain → topic. What has no topic is not there.
async fn all_stats(State(admin): State<Admin>) -> ApiResult<Json<Value>> {
    let mut namespaces = json!({});
    for namespace in all_namespaces(&admin) {
        // One that is not found was deleted since it was listed.
        let mut topics = admin.catalog.topics(&namespace, ListMode::All, false);
        topics.retain(|topic| admin.topics.serves(topic));
        let call = |topic| admin.stats.stats(topic, Default::default());
        each_made(topics, call, |topic, stats| {
            if let (Some(bundle), Ok(stats)) = (admin.catalog.bundle_of(&topic), serde_json::to_value(stats))
            {
                let domain = topic.domain().as_str();
                namespaces[namespace.to_string()][bundle][domain][topic.to_string()] = stats;
            }
        })
        .await?;
    }
    Ok(Json(namespaces))
}
