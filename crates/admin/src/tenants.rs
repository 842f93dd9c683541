//! Tenants.

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};

use pharos_admin_api::TenantInfo;

use crate::body::{ForceQuery, OptionalJson, QueryOf, RequiredJson};
use crate::error::{ApiError, ApiResult};
use crate::forced::delete_with_namespaces;
use crate::paths::PathParts;
use crate::state::Admin;

pub(crate) fn routes() -> Router<Admin> {
    let one = get(read).put(create).post(update).delete(remove);
    Router::new()
        .route("/admin/v2/tenants", get(list))
        .route("/admin/v2/tenants/{tenant}", one)
}

async fn list(State(admin): State<Admin>) -> Json<Vec<String>> {
    Json(admin.catalog.tenants())
}

async fn read(State(admin): State<Admin>, parts: PathParts) -> ApiResult<Json<TenantInfo>> {
    let tenant = admin.catalog.tenant(parts.get(0));
    tenant
        .map(Json)
        .ok_or_else(|| ApiError::not_found("Tenant does not exist"))
}

async fn create(
    State(admin): State<Admin>,
    parts: PathParts,
    OptionalJson(info): OptionalJson<TenantInfo>,
) -> ApiResult<StatusCode> {
    let info = with_clusters(info.unwrap_or_default())?;
    admin.catalog.create_tenant(parts.get(0), info).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn update(
    State(admin): State<Admin>,
    parts: PathParts,
    RequiredJson(info): RequiredJson<TenantInfo>,
) -> ApiResult<StatusCode> {
    admin
        .catalog
        .update_tenant(parts.get(0), with_clusters(info)?)
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// A tenant that may live nowhere could not have namespaces, so an empty list is taken for a mistake.
fn with_clusters(info: TenantInfo) -> ApiResult<TenantInfo> {
    if info
        .allowed_clusters
        .iter()
        .all(|cluster| cluster.trim().is_empty())
    {
        return Err(ApiError::precondition("Clusters cannot be empty or blank"));
    }
    Ok(info)
}

async fn remove(
    State(admin): State<Admin>,
    parts: PathParts,
    QueryOf(query): QueryOf<ForceQuery>,
) -> ApiResult<StatusCode> {
    if query.force {
        delete_with_namespaces(&admin, parts.get(0)).await?;
    } else {
        admin.catalog.delete_tenant(parts.get(0)).await?;
    }
    Ok(StatusCode::NO_CONTENT)
}
