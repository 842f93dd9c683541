//! Tenants.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;

use pharos_admin_api::TenantInfo;
use pharos_admin_api::query::ForceQuery;
use pharos_admin_api::routes::tenants as routes;

use crate::body::{OptionalJson, QueryOf, RequiredJson};
use crate::endpoint::{Endpoint, on};
use crate::error::{ApiError, ApiResult};
use crate::forced::delete_with_namespaces;
use crate::paths::PathParams;
use crate::state::Admin;

pub(crate) fn endpoints() -> Vec<Endpoint> {
    vec![
        on(&routes::LIST, list),
        on(&routes::READ, read),
        on(&routes::CREATE, create),
        on(&routes::UPDATE, update),
        on(&routes::DELETE, remove),
    ]
}

async fn list(State(admin): State<Admin>) -> Json<Vec<String>> {
    Json(admin.catalog.tenants().names())
}

async fn read(State(admin): State<Admin>, params: PathParams) -> ApiResult<Json<TenantInfo>> {
    let tenant = admin.catalog.tenants().get(params.get("tenant"));
    tenant
        .map(Json)
        .ok_or_else(|| ApiError::not_found("Tenant does not exist"))
}

async fn create(
    State(admin): State<Admin>,
    params: PathParams,
    OptionalJson(info): OptionalJson<TenantInfo>,
) -> ApiResult<StatusCode> {
    let info = with_clusters(info.unwrap_or_default())?;
    admin.catalog.tenants().create(params.get("tenant"), info).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn update(
    State(admin): State<Admin>,
    params: PathParams,
    RequiredJson(info): RequiredJson<TenantInfo>,
) -> ApiResult<StatusCode> {
    admin
        .catalog
        .tenants()
        .update(params.get("tenant"), with_clusters(info)?)
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
    params: PathParams,
    QueryOf(query): QueryOf<ForceQuery>,
) -> ApiResult<StatusCode> {
    if query.force {
        delete_with_namespaces(&admin, params.get("tenant")).await?;
    } else {
        admin.catalog.tenants().delete(params.get("tenant")).await?;
    }
    Ok(StatusCode::NO_CONTENT)
}
