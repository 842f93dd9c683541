//! Clusters: names and addresses. There is no replication between clusters yet, so these are facts only.

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};

use pharos_admin_api::ClusterData;

use crate::body::{OptionalJson, RequiredJson};
use crate::error::{ApiError, ApiResult};
use crate::paths::PathParts;
use crate::state::Admin;

pub(crate) fn routes() -> Router<Admin> {
    let one = get(read).put(create).post(update).delete(remove);
    Router::new()
        .route("/admin/v2/clusters", get(list))
        .route("/admin/v2/clusters/{cluster}", one)
        .route("/admin/v2/clusters/{cluster}/peers", get(peers))
        .route("/admin/v2/clusters/{cluster}/failureDomains", get(nothing_of))
        .route(
            "/admin/v2/clusters/{cluster}/namespaceIsolationPolicies",
            get(nothing_of),
        )
}

async fn list(State(admin): State<Admin>) -> Json<Vec<String>> {
    Json(admin.catalog.clusters())
}

async fn read(State(admin): State<Admin>, parts: PathParts) -> ApiResult<Json<ClusterData>> {
    find(&admin, &parts).map(Json)
}

async fn create(
    State(admin): State<Admin>,
    parts: PathParts,
    OptionalJson(data): OptionalJson<ClusterData>,
) -> ApiResult<StatusCode> {
    admin
        .catalog
        .create_cluster(parts.get(0), data.unwrap_or_default())
        .await?;
    Ok(StatusCode::OK)
}

async fn update(
    State(admin): State<Admin>,
    parts: PathParts,
    RequiredJson(data): RequiredJson<ClusterData>,
) -> ApiResult<StatusCode> {
    admin.catalog.update_cluster(parts.get(0), data).await?;
    Ok(StatusCode::OK)
}

async fn remove(State(admin): State<Admin>, parts: PathParts) -> ApiResult<StatusCode> {
    admin.catalog.delete_cluster(parts.get(0)).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn peers(State(admin): State<Admin>, parts: PathParts) -> ApiResult<Json<Vec<String>>> {
    Ok(Json(find(&admin, &parts)?.peer_cluster_names.unwrap_or_default()))
}

/// Failure domains and isolation policies steer where bundles go; with one broker there are none.
async fn nothing_of(State(admin): State<Admin>, parts: PathParts) -> ApiResult<Json<serde_json::Value>> {
    find(&admin, &parts)?;
    Ok(Json(serde_json::json!({})))
}

fn find(admin: &Admin, parts: &PathParts) -> ApiResult<ClusterData> {
    admin
        .catalog
        .cluster(parts.get(0))
        .ok_or_else(|| ApiError::not_found("Cluster does not exist"))
}
