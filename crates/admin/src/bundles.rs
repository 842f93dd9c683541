//! Bundles: the parts that a namespace's hash space is cut into. One broker has them all, so they only matter as a way
//! of naming some of a namespace's topics.

use std::convert::identity;

use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize as _;

use pharos_admin_api::query::UnloadBundleQuery;
use pharos_admin_api::routes::bundles as routes;
use pharos_catalog::{Catalog, ListMode};
use pharos_runtime::many;
use pharos_types::{NamespaceName, SubscriptionName, TopicName};

use crate::body::QueryOf;
use crate::endpoint::{Endpoint, on};
use crate::error::{ApiError, ApiResult};
use crate::namespaces::policies_of;
use crate::paths::{NamespacePath, PathParams, invalid_name};
use crate::state::Admin;

pub(crate) fn endpoints() -> Vec<Endpoint> {
    vec![
        on(&routes::DELETE, remove),
        on(&routes::UNLOAD, unload),
        on(&routes::SPLIT, split),
        on(&routes::CLEAR_BACKLOG, clear_backlog),
        on(&routes::CLEAR_BACKLOG_OF, clear_backlog),
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

/// The persistent topics of a bundle that exists.
fn topics_of(admin: &Admin, name: &NamespaceName, params: &PathParams) -> ApiResult<Vec<TopicName>> {
    let policies = policies_of(admin, name)?;
    let range = params.get("bundle");
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

async fn split(
    State(admin): State<Admin>,
    NamespacePath(name): NamespacePath,
    params: PathParams,
) -> ApiResult<StatusCode> {
    topics_of(&admin, &name, &params)?;
    Err(ApiError::not_implemented(
        "bundles cannot be split in this release; one broker has them all",
    ))
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
