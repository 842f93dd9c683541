//! Subscriptions of a topic: making, moving, emptying, deleting, and who listens on a broadcast one.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::identity;
use std::future::ready;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Serialize;
use serde_json::Value;

use pharos_admin_api::query::{self, CreateSubscriptionQuery, ForceQuery};
use pharos_admin_api::routes::subscriptions as routes;
use pharos_admin_api::{AnalyzeBacklogResult, BroadcastDetails, ResetCursorData};
use pharos_broker_admin::{AdminError, BroadcastQuery, Place};
use pharos_catalog::properties::Holder;
use pharos_runtime::many;
use pharos_types::{Position, SubscriptionName, TopicName};

use crate::body::{OptionalJson, QueryOf, RequiredJson};
use crate::endpoint::{Endpoint, on};
use crate::error::{ApiError, ApiResult};
use crate::namespaces::{check_properties, policies_of};
use crate::owners::at_owner;
use crate::partitions::{Target, single, target};
use crate::paths::{PathParams, SubscriptionPath, TopicPath, invalid_name};
use crate::state::Admin;
use crate::topics::stored_only;

/// Default number of slowest consumers to show.
const SLOWEST_DEFAULT: usize = 10;

pub(crate) fn endpoints() -> Vec<Endpoint> {
    vec![
        on(&routes::LIST, list),
        on(&routes::EXPIRE_ALL_OLDER, expire_all_older),
        on(&routes::BACKLOG_SIZE, backlog_size),
        on(&routes::CREATE, create),
        on(&routes::DELETE, remove),
        on(&routes::RESET_TO, reset_to),
        on(&routes::RESET_TO_TIME, reset_to_time),
        on(&routes::SKIP, skip),
        on(&routes::SKIP_ALL, skip_all),
        on(&routes::EXPIRE_TO, expire_to),
        on(&routes::EXPIRE_OLDER, expire_older),
        on(&routes::ANALYZE_BACKLOG, analyze_backlog),
        on(&routes::PROPERTIES, properties),
        on(&routes::SET_PROPERTIES, set_properties),
        on(&routes::BROADCAST, broadcast),
        on(&routes::REPLICATED, replicated),
        on(&routes::SET_REPLICATED, set_replicated),
    ]
}

async fn list(State(admin): State<Admin>, TopicPath(topic): TopicPath) -> ApiResult<Json<BTreeSet<String>>> {
    let target = target(&admin, &topic);
    let mut names = BTreeSet::new();
    let call = |topic| at_owner(admin.subscriptions.subscriptions(topic), None);
    many(target.topics, call, |found| match found {
        Ok(more) => {
            names.extend(more);
            Ok(())
        }
        Err(AdminError::NotFound(_)) if target.is_partitioned => Ok(()),
        Err(error) => Err(ApiError::from(error)),
    })
    .await?;
    Ok(Json(names))
}

fn json_of(value: &impl Serialize) -> ApiResult<Value> {
    serde_json::to_value(value)
        .map_err(|error| ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))
}

/// The place that a client names.
fn place(data: &ResetCursorData) -> ApiResult<Place> {
    if data.is_earliest() {
        return Ok(Place::Earliest);
    }
    if data.is_latest() {
        return Ok(Place::Latest);
    }
    let positive = |number: i64| u64::try_from(number).ok();
    let (Some(ledger), Some(entry)) = (positive(data.ledger_id), positive(data.entry_id)) else {
        return Err(ApiError::precondition(
            "Invalid parameter for resetting cursor: the entry id is negative",
        ));
    };
    Ok(Place::At {
        position: Position::new(ledger, entry),
        batch_index: u32::try_from(data.batch_index).ok(),
        excluded: data.excluded,
    })
}

async fn create(
    State(admin): State<Admin>,
    SubscriptionPath(topic, subscription): SubscriptionPath,
    QueryOf(query): QueryOf<CreateSubscriptionQuery>,
    OptionalJson(data): OptionalJson<ResetCursorData>,
) -> ApiResult<StatusCode> {
    stored_only(&topic, "Creating a durable subscription")?;
    if subscription.is_reserved() {
        return Err(ApiError::precondition(format!(
            "{subscription} is a name that the broker keeps for itself"
        )));
    }
    let data = data.unwrap_or_else(ResetCursorData::latest);
    let place = place(&data)?;
    let properties = data.properties.clone().unwrap_or_default();
    check_properties(Holder::Subscription, &properties)?;
    make_topic(&admin, &topic).await?;
    let target = target(&admin, &topic);
    if target.is_partitioned && matches!(place, Place::At { .. }) {
        return Err(ApiError::not_allowed(
            "a position belongs to one partition; name the partition",
        ));
    }
    // On a partitioned topic an earlier attempt may have got half way; it is finished rather than refused.
    let (mut made, mut conflict) = (false, None);
    let body = json_of(&ResetCursorData {
        properties: Some(properties.clone()),
        ..data
    })?;
    let call = |topic| {
        let (subscription, properties) = (subscription.clone(), properties.clone());
        let here =
            admin
                .subscriptions
                .create_subscription(topic, subscription, place, properties, query.replicated);
        at_owner(here, Some(&body))
    };
    many(target.topics, call, |created| {
        match created {
            Ok(()) => made = true,
            Err(error @ AdminError::Conflict(_)) => conflict = Some(error),
            Err(error) => return Err(ApiError::from(error)),
        }
        Ok(())
    })
    .await?;
    match conflict {
        Some(error) if !made => Err(error.into()),
        _ => Ok(StatusCode::NO_CONTENT),
    }
}

/// A subscription makes its topic, where clients may do that: partitions that are on record and not made yet, a
/// partitioned topic, or a plain one.
async fn make_topic(admin: &Admin, topic: &TopicName) -> ApiResult<()> {
    policies_of(admin, topic.namespace())?;
    let missing = |error: ApiError| match error.status {
        StatusCode::NOT_FOUND => ApiError::precondition("Topic does not exist and cannot be auto-created"),
        _ => error,
    };
    let metadata = admin.catalog.partitioned_metadata(topic, true).await;
    metadata.map_err(|error| missing(error.into()))?;
    let make = |topic: TopicName| async move { admin.catalog.ensure_topic(&topic, true).await.map(drop) };
    let made = many(target(admin, topic).topics, make, identity).await;
    made.map_err(|error| missing(error.into()))
}

async fn remove(
    State(admin): State<Admin>,
    SubscriptionPath(topic, subscription): SubscriptionPath,
    QueryOf(query): QueryOf<ForceQuery>,
) -> ApiResult<StatusCode> {
    on_each(target(&admin, &topic), |topic| {
        let subscription = subscription.clone();
        admin
            .subscriptions
            .delete_subscription(topic, subscription, query.force)
    })
    .await
}

/// Applies a call to each partition. A partition without the subscription is skipped, unless all lack it.
async fn on_each<F>(target: Target, call: impl FnMut(TopicName) -> F) -> ApiResult<StatusCode>
where
    F: Future<Output = Result<(), AdminError>>,
{
    on_each_with(target, None, call).await
}

/// As [`on_each`], of a request that brought a body.
async fn on_each_with<F>(
    target: Target,
    body: Option<Value>,
    mut call: impl FnMut(TopicName) -> F,
) -> ApiResult<StatusCode>
where
    F: Future<Output = Result<(), AdminError>>,
{
    let call = |topic| at_owner(call(topic), body.as_ref());
    let (mut done, mut missing) = (false, None);
    many(target.topics, call, |outcome| {
        match outcome {
            Ok(()) => done = true,
            Err(error @ AdminError::NotFound(_)) if target.is_partitioned => missing = Some(error),
            Err(error) => return Err(ApiError::from(error)),
        }
        Ok(())
    })
    .await?;
    match missing {
        Some(error) if !done => Err(error.into()),
        _ => Ok(StatusCode::NO_CONTENT),
    }
}

async fn reset_to(
    State(admin): State<Admin>,
    SubscriptionPath(topic, subscription): SubscriptionPath,
    RequiredJson(data): RequiredJson<ResetCursorData>,
) -> ApiResult<StatusCode> {
    stored_only(&topic, "Reset-cursor")?;
    single(&admin, &topic, "Reset-cursor at position")?;
    admin
        .subscriptions
        .reset_to(topic, subscription, place(&data)?)
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn reset_to_time(
    State(admin): State<Admin>,
    SubscriptionPath(topic, subscription): SubscriptionPath,
    params: PathParams,
) -> ApiResult<StatusCode> {
    stored_only(&topic, "Reset-cursor")?;
    let timestamp = params.number("timestamp")?;
    on_each(target(&admin, &topic), |topic| {
        admin
            .subscriptions
            .reset_to_time(topic, subscription.clone(), timestamp)
    })
    .await
}

async fn skip(
    State(admin): State<Admin>,
    SubscriptionPath(topic, subscription): SubscriptionPath,
    params: PathParams,
) -> ApiResult<StatusCode> {
    single(&admin, &topic, "Skipping messages")?;
    admin
        .subscriptions
        .skip(topic, subscription, params.number("count")?)
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn skip_all(
    State(admin): State<Admin>,
    SubscriptionPath(topic, subscription): SubscriptionPath,
) -> ApiResult<StatusCode> {
    on_each(target(&admin, &topic), |topic| {
        admin.subscriptions.skip_all(topic, subscription.clone())
    })
    .await
}

async fn expire_older(
    State(admin): State<Admin>,
    SubscriptionPath(topic, subscription): SubscriptionPath,
    params: PathParams,
) -> ApiResult<StatusCode> {
    let seconds = params.number("seconds")?;
    on_each(target(&admin, &topic), |topic| {
        admin
            .subscriptions
            .expire_older(topic, subscription.clone(), seconds)
    })
    .await
}

async fn expire_all_older(
    State(admin): State<Admin>,
    TopicPath(topic): TopicPath,
    params: PathParams,
) -> ApiResult<StatusCode> {
    let seconds = params.number("seconds")?;
    let expire = |topic: TopicName| {
        let subscriptions = &admin.subscriptions;
        async move {
            let names = match subscriptions.subscriptions(topic.clone()).await {
                Ok(names) => names,
                Err(error) => {
                    return at_owner(ready(Err::<(), _>(error)), None)
                        .await
                        .map_err(ApiError::from);
                }
            };
            for name in names {
                let subscription = SubscriptionName::new(&name).map_err(invalid_name)?;
                subscriptions
                    .expire_older(topic.clone(), subscription, seconds)
                    .await?;
            }
            Ok::<_, ApiError>(())
        }
    };
    many(target(&admin, &topic).topics, expire, identity).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn expire_to(
    State(admin): State<Admin>,
    SubscriptionPath(topic, subscription): SubscriptionPath,
    RequiredJson(data): RequiredJson<ResetCursorData>,
) -> ApiResult<StatusCode> {
    single(&admin, &topic, "Expiring messages up to a position")?;
    admin
        .subscriptions
        .expire_to(topic, subscription, place(&data)?)
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn analyze_backlog(
    State(admin): State<Admin>,
    SubscriptionPath(topic, subscription): SubscriptionPath,
    OptionalJson(data): OptionalJson<ResetCursorData>,
) -> ApiResult<Json<AnalyzeBacklogResult>> {
    single(&admin, &topic, "Analyzing a backlog")?;
    let from = data.as_ref().map(place).transpose()?;
    Ok(Json(
        admin
            .subscriptions
            .analyze_backlog(topic, subscription, from)
            .await?,
    ))
}

async fn backlog_size(
    State(admin): State<Admin>,
    TopicPath(topic): TopicPath,
    RequiredJson(data): RequiredJson<ResetCursorData>,
) -> ApiResult<Json<u64>> {
    single(&admin, &topic, "Backlog size")?;
    Ok(Json(admin.stats.backlog_bytes(topic, place(&data)?).await?))
}

type Properties = BTreeMap<String, String>;

async fn properties(
    State(admin): State<Admin>,
    SubscriptionPath(topic, subscription): SubscriptionPath,
) -> ApiResult<Json<Properties>> {
    let first = first_of(&admin, &topic)?;
    let here = admin.subscriptions.subscription_properties(first, subscription);
    Ok(Json(at_owner(here, None).await?))
}

/// The partitions of a subscription have the same properties, so one can speak for all.
fn first_of(admin: &Admin, topic: &TopicName) -> ApiResult<TopicName> {
    let first = target(admin, topic).topics.into_iter().next();
    first.ok_or_else(|| ApiError::not_found(format!("{topic} has no partitions")))
}

async fn set_properties(
    State(admin): State<Admin>,
    SubscriptionPath(topic, subscription): SubscriptionPath,
    OptionalJson(properties): OptionalJson<Properties>,
) -> ApiResult<StatusCode> {
    let properties = properties.unwrap_or_default();
    check_properties(Holder::Subscription, &properties)?;
    let body = json_of(&properties)?;
    on_each_with(target(&admin, &topic), Some(body), |topic| {
        let (subscription, properties) = (subscription.clone(), properties.clone());
        admin
            .subscriptions
            .set_subscription_properties(topic, subscription, properties)
    })
    .await
}

/// Replication state of a subscription, per partition.
async fn replicated(
    State(admin): State<Admin>,
    SubscriptionPath(topic, subscription): SubscriptionPath,
) -> ApiResult<Json<BTreeMap<String, bool>>> {
    stored_only(&topic, "Getting replicated subscription status")?;
    let mut answer = BTreeMap::new();
    for topic in target(&admin, &topic).topics {
        let name = topic.to_string();
        let here = admin.subscriptions.is_replicated(topic, subscription.clone());
        // Its owner answers for the partition alone.
        let here = async {
            here.await
                .map(|is_replicated| BTreeMap::from([(name, is_replicated)]))
        };
        answer.extend(at_owner(here, None).await?);
    }
    Ok(Json(answer))
}

async fn set_replicated(
    State(admin): State<Admin>,
    SubscriptionPath(topic, subscription): SubscriptionPath,
    RequiredJson(is_replicated): RequiredJson<bool>,
) -> ApiResult<StatusCode> {
    stored_only(&topic, "Setting replicated subscription status")?;
    let body = json_of(&is_replicated)?;
    on_each_with(target(&admin, &topic), Some(body), |topic| {
        admin
            .subscriptions
            .set_replicated(topic, subscription.clone(), is_replicated)
    })
    .await
}

async fn broadcast(
    State(admin): State<Admin>,
    SubscriptionPath(topic, subscription): SubscriptionPath,
    QueryOf(query): QueryOf<query::BroadcastQuery>,
) -> ApiResult<Json<BroadcastDetails>> {
    single(&admin, &topic, "Broadcast details")?;
    let query = BroadcastQuery {
        slowest: query.slowest.unwrap_or(SLOWEST_DEFAULT),
        consumers: query.consumers,
    };
    Ok(Json(
        admin
            .subscriptions
            .broadcast_details(topic, subscription, query)
            .await?,
    ))
}
