//! Topic compaction: asking for it, and hearing what came of it.

use std::convert::identity;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;

use pharos_admin_api::LongRunningProcessStatus;
use pharos_admin_api::routes::topics as routes;
use pharos_broker_admin::AdminError;
use pharos_runtime::many;
use pharos_types::TopicName;

use crate::endpoint::{Endpoint, on};
use crate::error::ApiResult;
use crate::owners::at_owner;
use crate::partitions::target;
use crate::paths::TopicPath;
use crate::state::Admin;
use crate::topics::{known, stored_only};

pub(crate) fn endpoints() -> Vec<Endpoint> {
    vec![
        on(&routes::COMPACTION_STATUS, status),
        on(&routes::COMPACT, compact),
    ]
}

/// Compaction state. For a partitioned topic: `RUNNING` or `ERROR` if a partition reports it.
async fn status(
    State(admin): State<Admin>,
    TopicPath(topic): TopicPath,
) -> ApiResult<Json<LongRunningProcessStatus>> {
    check_topic(&admin, &topic)?;
    let mut all = LongRunningProcessStatus::not_run();
    let call = |topic| at_owner(admin.compaction.compaction_status(topic), None);
    many(target(&admin, &topic).topics, call, |part| {
        all.add(part?);
        Ok::<(), AdminError>(())
    })
    .await?;
    Ok(Json(all))
}

async fn compact(State(admin): State<Admin>, TopicPath(topic): TopicPath) -> ApiResult<StatusCode> {
    check_topic(&admin, &topic)?;
    let call = |topic| at_owner(admin.compaction.compact(topic), None);
    many(target(&admin, &topic).topics, call, identity).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn check_topic(admin: &Admin, topic: &TopicName) -> ApiResult<()> {
    stored_only(topic, "Compaction")?;
    known(admin, topic)
}
