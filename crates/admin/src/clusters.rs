//! Clusters: names and addresses, by which topics are replicated.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;

use pharos_admin_api::ClusterData;
use pharos_admin_api::routes::clusters as routes;
use pharos_replication::check_cluster_data;

use crate::body::{OptionalJson, RequiredJson};
use crate::endpoint::{Endpoint, on};
use crate::error::{ApiError, ApiResult};
use crate::paths::PathParams;
use crate::state::Admin;

pub(crate) fn endpoints() -> Vec<Endpoint> {
    vec![
        on(&routes::LIST, list),
        on(&routes::READ, read),
        on(&routes::CREATE, create),
        on(&routes::UPDATE, update),
        on(&routes::DELETE, remove),
        on(&routes::PEERS, peers),
    ]
}

async fn list(State(admin): State<Admin>) -> Json<Vec<String>> {
    Json(admin.catalog.clusters().names())
}

async fn read(State(admin): State<Admin>, params: PathParams) -> ApiResult<Json<ClusterData>> {
    find(&admin, &params).map(Json)
}

async fn create(
    State(admin): State<Admin>,
    params: PathParams,
    OptionalJson(data): OptionalJson<ClusterData>,
) -> ApiResult<StatusCode> {
    let data = data.unwrap_or_default();
    check(&data)?;
    admin
        .catalog
        .clusters()
        .create(params.get("cluster"), data)
        .await?;
    Ok(StatusCode::OK)
}

async fn update(
    State(admin): State<Admin>,
    params: PathParams,
    RequiredJson(data): RequiredJson<ClusterData>,
) -> ApiResult<StatusCode> {
    check(&data)?;
    admin
        .catalog
        .clusters()
        .update(params.get("cluster"), data)
        .await?;
    Ok(StatusCode::OK)
}

async fn remove(State(admin): State<Admin>, params: PathParams) -> ApiResult<StatusCode> {
    admin.catalog.clusters().delete(params.get("cluster")).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn peers(State(admin): State<Admin>, params: PathParams) -> ApiResult<Json<Vec<String>>> {
    Ok(Json(
        find(&admin, &params)?.peer_cluster_names.unwrap_or_default(),
    ))
}

/// Refuses what nothing would act on.
fn check(data: &ClusterData) -> ApiResult<()> {
    check_cluster_data(data).map_err(|error| ApiError::bad_request(error.to_string()))
}

fn find(admin: &Admin, params: &PathParams) -> ApiResult<ClusterData> {
    admin
        .catalog
        .clusters()
        .get(params.get("cluster"))
        .ok_or_else(|| ApiError::not_found("Cluster does not exist"))
}
