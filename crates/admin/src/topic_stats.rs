//! Statistics and internals of a topic: rates, ledgers and cursors.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};

use pharos_admin_api::query::{InternalStatsQuery, StatsQuery};
use pharos_admin_api::routes::topics as routes;
use pharos_admin_api::{
    ManagedLedgerInfo, PartitionedManagedLedgerInfo, PartitionedTopicInternalStats, PartitionedTopicMetadata,
    PartitionedTopicStats, PersistentTopicInternalStats, TopicStats,
};
use pharos_broker_admin::StatsFlags;
use pharos_types::TopicName;

use crate::body::QueryOf;
use crate::endpoint::{Endpoint, on};
use crate::error::{ApiError, ApiResult};
use crate::partitions::{add_topic, each_made, target};
use crate::paths::TopicPath;
use crate::state::Admin;

pub(crate) fn endpoints() -> Vec<Endpoint> {
    vec![
        on(&routes::STATS, stats),
        on(&routes::PARTITIONED_STATS, partitioned_stats),
        on(&routes::INTERNAL_STATS, internal_stats),
        on(&routes::PARTITIONED_INTERNAL_STATS, partitioned_internal_stats),
        on(&routes::INTERNAL_INFO, internal_info),
    ]
}

fn flags(query: &StatsQuery) -> StatsFlags {
    StatsFlags {
        precise_backlog: query.get_precise_backlog,
        subscription_backlog_size: query.subscription_backlog_size,
        earliest_time_in_backlog: query.get_earliest_time_in_backlog,
        exclude_publishers: query.exclude_publishers,
        exclude_consumers: query.exclude_consumers,
    }
}

async fn stats(
    State(admin): State<Admin>,
    TopicPath(topic): TopicPath,
    QueryOf(query): QueryOf<StatsQuery>,
) -> ApiResult<Json<TopicStats>> {
    if admin.catalog.partitioned().get(&topic).is_some() {
        return Err(ApiError::not_found(format!(
            "{topic} is a partitioned topic; ask for …/partitioned-stats"
        )));
    }
    Ok(Json(admin.stats.stats(topic, flags(&query)).await?))
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
    let call = |partition| admin.stats.stats(partition, flags(&query));
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
    let metadata = admin.catalog.partitioned().get(topic);
    metadata.ok_or_else(|| ApiError::not_found(format!("Partitioned Topic not found: {topic}")))
}

async fn internal_stats(
    State(admin): State<Admin>,
    TopicPath(topic): TopicPath,
    QueryOf(query): QueryOf<InternalStatsQuery>,
) -> ApiResult<Json<PersistentTopicInternalStats>> {
    if admin.catalog.partitioned().get(&topic).is_some() {
        return Err(ApiError::not_found(format!(
            "{topic} is a partitioned topic; ask for …/partitioned-internalStats"
        )));
    }
    Ok(Json(admin.stats.internal_stats(topic, query.metadata).await?))
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
    let call = |partition| admin.stats.internal_stats(partition, false);
    each_made(target(&admin, &topic).topics, call, |partition, stats| {
        answer.partitions.insert(partition.to_string(), stats);
    })
    .await?;
    Ok(Json(answer))
}

async fn internal_info(State(admin): State<Admin>, TopicPath(topic): TopicPath) -> ApiResult<Response> {
    let target = target(&admin, &topic);
    if !target.is_partitioned {
        let info: ManagedLedgerInfo = admin.stats.internal_info(topic).await?;
        return Ok(Json(info).into_response());
    }
    let mut answer = PartitionedManagedLedgerInfo::default();
    let call = |partition| admin.stats.internal_info(partition);
    each_made(target.topics, call, |partition, info| {
        answer.partitions.insert(partition.to_string(), info);
    })
    .await?;
    Ok(Json(answer).into_response())
}
