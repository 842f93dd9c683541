//! Bundles: the parts that a namespace's hash space is cut into. Among several brokers each has some of them; a broker that is alone has
//! all, and they are a way of naming some of a namespace's topics.

use std::convert::identity;

use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize as _;

use pharos_admin_api::query::{SplitBundleQuery, UnloadBundleQuery};
use pharos_admin_api::routes::bundles as routes;
use pharos_catalog::{BUNDLES_MAX, BundleDivision, BundleRange, Catalog, ListMode, middle_of};
use pharos_runtime::many;
use pharos_types::hash::bundle_hash;
use pharos_types::{NamespaceName, SubscriptionName, TopicName};

use crate::body::{OptionalJson, QueryOf};
use crate::endpoint::{Endpoint, on};
use crate::error::{ApiError, ApiResult};
use crate::namespaces::policies_of;
use crate::partitions::each_made;
use crate::paths::{NamespacePath, PathParams, invalid_name};
use crate::state::Admin;

pub(crate) fn endpoints() -> Vec<Endpoint> {
    vec![
        on(&routes::DELETE, remove),
        on(&routes::UNLOAD, unload),
        on(&routes::SPLIT, split),
        on(&routes::CLEAR_BACKLOG, clear_backlog),
        on(&routes::CLEAR_BACKLOG_OF, clear_backlog),
        on(&routes::UNSUBSCRIBE, unsubscribe),
    ]
}

/// All bundles of a namespace, as `0x40000000_0x80000000`.
pub(crate) fn bundles_of(catalog: &Catalog, name: &NamespaceName) -> Vec<String> {
    let policies = catalog.policies(name);
    let borders: Option<Vec<String>> =
        policies.and_then(|policies| Vec::deserialize(policies.get("bundles")?.get("boundaries")?).ok());
    let borders = borders.unwrap_or_default();
    let pair = |pair: &[String]| match pair {
        [low, high] => Some(format!("{low}_{high}")),
        _ => None,
    };
    borders.windows(2).filter_map(pair).collect()
}

fn number(border: &str) -> Option<u32> {
    u32::from_str_radix(border.strip_prefix("0x")?, 16).ok()
}

/// The bundle that `word` means: `LARGEST` has the most topics, `HOT` the most messages a second at this broker; else itself.
async fn named(admin: &Admin, name: &NamespaceName, word: &str) -> ApiResult<String> {
    if !matches!(word, "LARGEST" | "HOT") {
        return Ok(word.to_owned());
    }
    policies_of(admin, name)?;
    let mut most = None;
    for bundle in bundles_of(&admin.catalog, name) {
        let topics = topics_in(admin, name, &bundle)?;
        let weight = match word {
            "LARGEST" => topics.iter().map(|_| 1.0).sum(),
            _ => loads(admin, topics)
                .await?
                .iter()
                .map(|(_, rate)| rate)
                .sum::<f64>(),
        };
        if most.as_ref().is_none_or(|(heaviest, _)| weight > *heaviest) {
            most = Some((weight, bundle));
        }
    }
    most.map(|(_, bundle)| bundle)
        .ok_or_else(|| ApiError::not_found(format!("{name} has no bundle")))
}

/// The persistent topics of the bundle that a request names.
fn topics_of(admin: &Admin, name: &NamespaceName, params: &PathParams) -> ApiResult<Vec<TopicName>> {
    topics_in(admin, name, params.get("bundle"))
}

/// The persistent topics of a bundle that exists.
fn topics_in(admin: &Admin, name: &NamespaceName, range: &str) -> ApiResult<Vec<TopicName>> {
    let policies = policies_of(admin, name)?;
    let (low, high) = range
        .split_once('_')
        .filter(|(low, high)| number(low).is_some() && number(high).is_some())
        .ok_or_else(|| ApiError::not_found(format!("'{range}' is neither a policy nor a bundle")))?;
    let borders = policies
        .get("bundles")
        .and_then(|bundles| bundles.get("boundaries")?.as_array().cloned());
    let borders = borders.unwrap_or_default();
    let is_bundle = borders
        .windows(2)
        .any(|pair| pair.first() == Some(&low.into()) && pair.last() == Some(&high.into()));
    if !is_bundle {
        return Err(ApiError::precondition(format!("{range} is no bundle of {name}")));
    }
    let topics = admin.catalog.topics(name, ListMode::Persistent, false);
    Ok(topics
        .into_iter()
        .filter(|topic| admin.catalog.bundle_of(topic).as_deref() == Some(range))
        .collect())
}

/// Deleting a bundle is how tools take a namespace apart before they delete it. Nothing is kept per bundle.
async fn remove(
    State(admin): State<Admin>,
    NamespacePath(name): NamespacePath,
    params: PathParams,
) -> ApiResult<StatusCode> {
    if topics_of(&admin, &name, &params)?.is_empty() {
        Ok(StatusCode::NO_CONTENT)
    } else {
        Err(ApiError::conflict("Cannot delete non empty bundle"))
    }
}

async fn unload(
    State(admin): State<Admin>,
    NamespacePath(name): NamespacePath,
    params: PathParams,
    QueryOf(query): QueryOf<UnloadBundleQuery>,
) -> ApiResult<StatusCode> {
    let topics = topics_of(&admin, &name, &params)?;
    let bundle = format!("{name}/{}", params.get("bundle"));
    let to = query.destination_broker.filter(|to| !to.is_empty());
    if admin.brokers.has_bundle(&bundle, to.as_deref())? {
        return Ok(StatusCode::NO_CONTENT);
    }
    match to {
        Some(to) => {
            admin.brokers.hand_over(bundle, to).await?;
            Ok(StatusCode::NO_CONTENT)
        }
        None => unload_all(&admin, topics).await,
    }
}

/// Cuts a bundle that this broker has; with `unload` the other brokers get its parts in turn, but for the first.
async fn split(
    State(admin): State<Admin>,
    NamespacePath(name): NamespacePath,
    params: PathParams,
    QueryOf(query): QueryOf<SplitBundleQuery>,
    OptionalJson(positions): OptionalJson<Vec<u32>>,
) -> ApiResult<StatusCode> {
    let text = &named(&admin, &name, params.get("bundle")).await?;
    let topics = topics_in(&admin, &name, text)?;
    let range =
        BundleRange::parse(text).ok_or_else(|| ApiError::precondition(format!("{text} is no range")))?;
    admin.brokers.has_bundle(&format!("{name}/{range}"), None)?;
    let at = division_of(
        query.split_algorithm_name.as_deref(),
        admin.options.bundle_division,
    )?;
    if at != BundleDivision::Positions && positions.as_ref().is_some_and(|given| !given.is_empty()) {
        return Err(ApiError::bad_request(
            "positions are for specified_positions_divide",
        ));
    }
    let borders = match at {
        BundleDivision::Range => vec![range.middle()],
        BundleDivision::Positions => positions.unwrap_or_default(),
        BundleDivision::Topics => {
            middle_of(topics.iter().map(|topic| (bundle_hash(&topic.to_string()), 1.0)))
                .into_iter()
                .collect()
        }
        BundleDivision::Load => middle_of(loads(&admin, topics).await?).into_iter().collect(),
    };
    if borders.is_empty() {
        return Err(ApiError::precondition(format!(
            "there is nothing in {range} that could be divided so"
        )));
    }
    let parts = admin.brokers.split(&name, &range, &borders, BUNDLES_MAX).await?;
    let here = admin.options.broker_id();
    let others: Vec<String> = admin.brokers.brokers().unwrap_or_default();
    let others = others.iter().filter(|other| *other != here);
    let moved = parts.iter().skip(1).zip(others.cycle()).filter(|_| query.unload);
    for (part, to) in moved {
        admin
            .brokers
            .hand_over(format!("{name}/{part}"), to.clone())
            .await?;
    }
    Ok(StatusCode::NO_CONTENT)
}

/// The way that is asked for, or else the broker's own.
fn division_of(name: Option<&str>, default: BundleDivision) -> ApiResult<BundleDivision> {
    match name.unwrap_or_default() {
        "" => Ok(default),
        name => BundleDivision::parse(name).ok_or_else(|| {
            let known = BundleDivision::ALL.map(BundleDivision::as_str).join(", ");
            ApiError::bad_request(format!("'{name}' is none of {known}"))
        }),
    }
}

/// Messages a second, in and out, of those of `topics` that are loaded here, by their hash.
async fn loads(admin: &Admin, topics: Vec<TopicName>) -> ApiResult<Vec<(u32, f64)>> {
    let mut loaded = Vec::new();
    for topic in topics {
        if admin.topics.is_loaded(&topic).await? {
            loaded.push(topic);
        }
    }
    let mut loads = Vec::with_capacity(loaded.len());
    let call = |topic| admin.stats.stats(topic, Default::default());
    each_made(loaded, call, |topic, stats| {
        loads.push((
            bundle_hash(&topic.to_string()),
            stats.msg_rate_in + stats.msg_rate_out,
        ));
    })
    .await?;
    Ok(loads)
}

async fn clear_backlog(
    State(admin): State<Admin>,
    NamespacePath(name): NamespacePath,
    params: PathParams,
) -> ApiResult<StatusCode> {
    clear(
        &admin,
        topics_of(&admin, &name, &params)?,
        params.get("subscription"),
    )
    .await
}

async fn unsubscribe(
    State(admin): State<Admin>,
    NamespacePath(name): NamespacePath,
    params: PathParams,
) -> ApiResult<StatusCode> {
    delete_subscription(
        &admin,
        topics_of(&admin, &name, &params)?,
        params.get("subscription"),
    )
    .await
}

/// Unloads every one of `topics`.
pub(crate) async fn unload_all(admin: &Admin, topics: Vec<TopicName>) -> ApiResult<StatusCode> {
    many(topics, |topic| admin.topics.unload(topic), identity).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Clears one subscription on every topic that has it, or with an empty name all subscriptions.
pub(crate) async fn clear(admin: &Admin, topics: Vec<TopicName>, only: &str) -> ApiResult<StatusCode> {
    let subscriptions = &admin.subscriptions;
    let clear_one = |topic: TopicName| async move {
        for subscription in subscriptions.subscriptions(topic.clone()).await? {
            if only.is_empty() || subscription == only {
                let subscription = SubscriptionName::new(&subscription).map_err(invalid_name)?;
                subscriptions.skip_all(topic.clone(), subscription).await?;
            }
        }
        Ok::<_, ApiError>(())
    };
    many(topics, clear_one, identity).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Deletes a subscription on every topic that has it. One that consumers use stays, and is the answer.
pub(crate) async fn delete_subscription(
    admin: &Admin,
    topics: Vec<TopicName>,
    name: &str,
) -> ApiResult<StatusCode> {
    let subscriptions = &admin.subscriptions;
    let name = SubscriptionName::new(name).map_err(invalid_name)?;
    let delete_one = |topic: TopicName| {
        let name = name.clone();
        async move {
            let found = subscriptions.subscriptions(topic.clone()).await?;
            if found.iter().any(|found| found == name.as_str()) {
                subscriptions.delete_subscription(topic, name, false).await?;
            }
            Ok::<_, ApiError>(())
        }
    };
    many(topics, delete_one, identity).await?;
    Ok(StatusCode::NO_CONTENT)
}
