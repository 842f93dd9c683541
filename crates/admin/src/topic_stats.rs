//! What goes on on a topic, and what it is made of: stats, ledgers and cursors.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde::Deserialize;

use pharos_admin_api::{
    ManagedLedgerInfo, PartitionedManagedLedgerInfo, PartitionedTopicInternalStats, PartitionedTopicMetadata,
    PartitionedTopicStats, PersistentTopicInternalStats, TopicStats,
};
use pharos_broker::admin::StatsFlags;
use pharos_types::TopicName;

use crate::body::QueryOf;
use crate::error::{ApiError, ApiResult};
use crate::partitions::{add_topic, each_made, target};
use crate::paths::TopicPath;
use crate::state::Admin;

/// `base`: `/admin/v2/{persistent|non-persistent}/{tenant}/{namespace}` as a route.
pub(crate) fn routes(base: &str) -> Router<Admin> {
    let at = |rest: &str| format!("{base}/{{topic}}{rest}");
    Router::new()
        .route(&at("/stats"), get(stats))
        .route(&at("/partitioned-stats"), get(partitioned_stats))
        .route(&at("/internalStats"), get(internal_stats))
        .route(&at("/partitioned-internalStats"), get(partitioned_internal_stats))
        .route(&at("/internal-info"), get(internal_info))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StatsQuery {
    #[serde(default = "yes")]
    per_partition: bool,
    #[serde(default)]
    get_precise_backlog: bool,
    #[serde(default = "yes")]
    subscription_backlog_size: bool,
    #[serde(default)]
    get_earliest_time_in_backlog: bool,
    #[serde(default)]
    exclude_publishers: bool,
    #[serde(default)]
    exclude_consumers: bool,
}

fn yes() -> bool {
    true
}

impl StatsQuery {
    fn flags(&self) -> StatsFlags {
        StatsFlags {
            precise_backlog: self.get_precise_backlog,
            subscription_backlog_size: self.subscription_backlog_size,
            earliest_time_in_backlog: self.get_earliest_time_in_backlog,
            exclude_publishers: self.exclude_publishers,
            exclude_consumers: self.exclude_consumers,
        }
    }
}

async fn stats(
    State(admin): State<Admin>,
    TopicPath(topic): TopicPath,
    QueryOf(query): QueryOf<StatsQuery>,
) -> ApiResult<Json<TopicStats>> {
    if admin.catalog.partitioned_topic(&topic).is_some() {
        return Err(ApiError::not_found(format!(
            "{topic} is a partitioned topic; ask for …/partitioned-stats"
        )));
    }
    Ok(Json(admin.backend.stats(topic, query.flags()).await?))
}

async fn partitioned_stats(
    State(admin): State<Admin>,
    TopicPath(topic): TopicPath,
    QueryOf(query): QueryOf<StatsQuery>,
) -> ApiResult<Json<PartitionedTopicStats>> {
    let metadata = partitioned(&admin, &topic)?;
    let mut answer = PartitionedTopicStats {
        metadata,
        ..Default::default()
    };
    let call = |partition| admin.backend.stats(partition, query.flags());
    each_made(target(&admin, &topic).topics, call, |partition, stats| {
        add_topic(&mut answer.total, &stats);
        if query.per_partition {
            answer.partitions.insert(partition.to_string(), stats);
        }
    })
    .await?;
    Ok(Json(answer))
}

pub(crate) fn partitioned(admin: &Admin, topic: &TopicName) -> ApiResult<PartitionedTopicMetadata> {
    let metadata = admin.catalog.partitioned_topic(topic);
    metadata.ok_or_else(|| ApiError::not_found(format!("Partitioned Topic not found: {topic}")))
}

#[derive(Deserialize)]
struct InternalQuery {
    #[serde(default)]
    metadata: bool,
}

async fn internal_stats(
    State(admin): State<Admin>,
    TopicPath(topic): TopicPath,
    QueryOf(query): QueryOf<InternalQuery>,
) -> ApiResult<Json<PersistentTopicInternalStats>> {
    if admin.catalog.partitioned_topic(&topic).is_some() {
        return Err(ApiError::not_found(format!(
            "{topic} is a partitioned topic; ask for …/partitioned-internalStats"
        )));
    }
    Ok(Json(admin.backend.internal_stats(topic, query.metadata).await?))
}

async fn partitioned_internal_stats(
    State(admin): State<Admin>,
    TopicPath(topic): TopicPath,
) -> ApiResult<Json<PartitionedTopicInternalStats>> {
    let metadata = partitioned(&admin, &topic)?;
    let mut answer = PartitionedTopicInternalStats {
        metadata,
        ..Default::default()
    };
    let call = |partition| admin.backend.internal_stats(partition, false);
    each_made(target(&admin, &topic).topics, call, |partition, stats| {
        answer.partitions.insert(partition.to_string(), stats);
    })
    .await?;
    Ok(Json(answer))
}

async fn internal_info(State(admin): State<Admin>, TopicPath(topic): TopicPath) -> ApiResult<Response> {
    let target = target(&admin, &topic);
    if !target.is_partitioned {
        let info: ManagedLedgerInfo = admin.backend.internal_info(topic).await?;
        return Ok(Json(info).into_response());
    }
    let mut answer = PartitionedManagedLedgerInfo::default();
    let call = |partition| admin.backend.internal_info(partition);
    each_made(target.topics, call, |partition, info| {
        answer.partitions.insert(partition.to_string(), info);
    })
    .await?;
    Ok(Json(answer).into_response())
}
