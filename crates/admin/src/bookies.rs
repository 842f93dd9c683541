//! Bookies: which there are, and where they stand.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde_json::Value;

use pharos_admin_api::query::BookieRackQuery;
use pharos_admin_api::routes::brokers as routes;
use pharos_admin_api::{BookieInfo, BookieName, BookiesClusterInfo};
use pharos_broker_admin::Racks;

use crate::body::{QueryOf, RequiredJson};
use crate::endpoint::{Endpoint, on};
use crate::error::ApiResult;
use crate::paths::PathParams;
use crate::state::Admin;

pub(crate) fn endpoints() -> Vec<Endpoint> {
    vec![
        on(&routes::BOOKIES, all),
        on(&routes::RACKS, racks),
        on(&routes::RACK, rack),
        on(&routes::SET_RACK, set_rack),
        on(&routes::REMOVE_RACK, remove_rack),
    ]
}

async fn all(State(admin): State<Admin>) -> ApiResult<Json<BookiesClusterInfo>> {
    let names = admin.bookies.writable()?.into_iter();
    let bookies = names.map(|bookie_id| BookieName { bookie_id }).collect();
    Ok(Json(BookiesClusterInfo { bookies }))
}

async fn racks(State(admin): State<Admin>) -> ApiResult<Json<Racks>> {
    Ok(Json(admin.bookies.racks().await?))
}

async fn rack(State(admin): State<Admin>, params: PathParams) -> ApiResult<Json<Value>> {
    Ok(Json(admin.bookies.rack(params.get("bookie")).await?))
}

async fn set_rack(
    State(admin): State<Admin>,
    params: PathParams,
    QueryOf(query): QueryOf<BookieRackQuery>,
    RequiredJson(info): RequiredJson<BookieInfo>,
) -> ApiResult<StatusCode> {
    let group = query.group.as_deref().unwrap_or("default");
    admin.bookies.set_rack(params.get("bookie"), group, &info).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn remove_rack(State(admin): State<Admin>, params: PathParams) -> ApiResult<StatusCode> {
    admin.bookies.remove_rack(params.get("bookie")).await?;
    Ok(StatusCode::NO_CONTENT)
}
