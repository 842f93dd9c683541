//! To which brokers of a cluster bundles go: isolation policies and failure domains.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;

use pharos_admin_api::routes::clusters as routes;
use pharos_admin_api::{BrokerNamespaceIsolationData, FailureDomain, NamespaceIsolationData};
use pharos_catalog::{FailureDomainError, IsolationError, IsolationPolicies, isolation_of_broker};

use crate::body::RequiredJson;
use crate::brokers::active_of;
use crate::endpoint::{Endpoint, on};
use crate::error::{ApiError, ApiResult};
use crate::paths::PathParams;
use crate::state::Admin;

pub(crate) fn endpoints() -> Vec<Endpoint> {
    vec![
        on(&routes::FAILURE_DOMAINS, failure_domains),
        on(&routes::FAILURE_DOMAIN, failure_domain),
        on(&routes::SET_FAILURE_DOMAIN, set_failure_domain),
        on(&routes::REMOVE_FAILURE_DOMAIN, remove_failure_domain),
        on(&routes::ISOLATION_POLICIES, policies),
        on(&routes::ISOLATED_BROKERS, brokers),
        on(&routes::ISOLATED_BROKER, broker),
        on(&routes::ISOLATION_POLICY, policy),
        on(&routes::SET_ISOLATION_POLICY, set_policy),
        on(&routes::REMOVE_ISOLATION_POLICY, remove_policy),
    ]
}

async fn failure_domains(
    State(admin): State<Admin>,
    params: PathParams,
) -> ApiResult<Json<BTreeMap<String, FailureDomain>>> {
    let cluster = params.get("cluster");
    if admin.catalog.clusters().get(cluster).is_none() {
        return Err(ApiError::not_found("Cluster does not exist"));
    }
    Ok(Json(admin.catalog.clusters().failure_domains().of(cluster)))
}

async fn failure_domain(State(admin): State<Admin>, params: PathParams) -> ApiResult<Json<FailureDomain>> {
    let (cluster, name) = (params.get("cluster"), params.get("domainName"));
    exists(&admin, cluster)?;
    let found = admin
        .catalog
        .clusters()
        .failure_domains()
        .of(cluster)
        .remove(name);
    let missing = || FailureDomainError::NotFound(name.to_owned(), cluster.to_owned());
    Ok(Json(
        found.ok_or_else(|| ApiError::not_found(missing().to_string()))?,
    ))
}

async fn set_failure_domain(
    State(admin): State<Admin>,
    params: PathParams,
    RequiredJson(domain): RequiredJson<FailureDomain>,
) -> ApiResult<StatusCode> {
    let (cluster, name) = (params.get("cluster"), params.get("domainName"));
    admin
        .catalog
        .clusters()
        .failure_domains()
        .set(cluster, name, domain)
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn remove_failure_domain(State(admin): State<Admin>, params: PathParams) -> ApiResult<StatusCode> {
    let (cluster, name) = (params.get("cluster"), params.get("domainName"));
    admin
        .catalog
        .clusters()
        .failure_domains()
        .remove(cluster, name)
        .await?;
    Ok(StatusCode::OK)
}

async fn policies(State(admin): State<Admin>, params: PathParams) -> ApiResult<Json<IsolationPolicies>> {
    Ok(Json(policies_of(&admin, params.get("cluster"))?))
}

async fn brokers(
    State(admin): State<Admin>,
    params: PathParams,
) -> ApiResult<Json<Vec<BrokerNamespaceIsolationData>>> {
    let cluster = params.get("cluster");
    exists(&admin, cluster)?;
    let policies = policies_of(&admin, cluster)?;
    let brokers = active_of(&admin, cluster);
    let said = brokers
        .iter()
        .map(|broker| isolation_of_broker(&policies, broker));
    Ok(Json(said.collect()))
}

async fn broker(
    State(admin): State<Admin>,
    params: PathParams,
) -> ApiResult<Json<BrokerNamespaceIsolationData>> {
    let (cluster, broker) = (params.get("cluster"), params.get("broker"));
    exists(&admin, cluster)?;
    let policies = policies_of(&admin, cluster)?;
    Ok(Json(isolation_of_broker(&policies, broker)))
}

async fn policy(State(admin): State<Admin>, params: PathParams) -> ApiResult<Json<NamespaceIsolationData>> {
    let (cluster, name) = (params.get("cluster"), params.get("policy"));
    exists(&admin, cluster)?;
    let found = policies_of(&admin, cluster)?.remove(name);
    let missing = || IsolationError::NotFound(name.to_owned());
    Ok(Json(
        found.ok_or_else(|| ApiError::not_found(missing().to_string()))?,
    ))
}

async fn set_policy(
    State(admin): State<Admin>,
    params: PathParams,
    RequiredJson(policy): RequiredJson<NamespaceIsolationData>,
) -> ApiResult<StatusCode> {
    let (cluster, name) = (params.get("cluster"), params.get("policy"));
    admin
        .catalog
        .clusters()
        .isolation()
        .set(cluster, name, &policy)
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn remove_policy(State(admin): State<Admin>, params: PathParams) -> ApiResult<StatusCode> {
    let (cluster, name) = (params.get("cluster"), params.get("policy"));
    admin.catalog.clusters().isolation().remove(cluster, name).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Pulsar answers 412 where the cluster is not what is asked for.
fn exists(admin: &Admin, cluster: &str) -> ApiResult<()> {
    match admin.catalog.clusters().get(cluster) {
        Some(_) => Ok(()),
        None => Err(ApiError::precondition(
            IsolationError::NoCluster(cluster.to_owned()).to_string(),
        )),
    }
}

fn policies_of(admin: &Admin, cluster: &str) -> ApiResult<IsolationPolicies> {
    let found = admin.catalog.clusters().isolation().of(cluster);
    let missing = || format!("NamespaceIsolationPolicies for cluster {cluster} does not exist");
    found.ok_or_else(|| ApiError::not_found(missing()))
}
