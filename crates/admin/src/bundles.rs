//! Bundles: the parts that a namespace's hash space is cut into. Among several brokers each has some of them; a broker that is alone has
//! all, and they are a way of naming some of a namespace's topics.

use std::convert::identity;

use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize as _;

use pharos_admin_api::query::{SplitBundleQuery, UnloadBundleQuery};
use pharos_admin_api::routes::bundles as routes;
use pharos_catalog::{BundleRange, Catalog, ListMode};
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

/// Cuts a bundle that this broker has; with `unload` the other brokers get its parts in turn, but for the first.
async fn split(
    State(admin): State<Admin>,
    NamespacePath(name): NamespacePath,
    params: PathParams,
    QueryOf(query): QueryOf<SplitBundleQuery>,
    OptionalJson(positions): OptionalJson<Vec<u32>>,
) -> ApiResult<StatusCode> {
    let topics = topics_of(&admin, &name, &params)?;
    let text = params.get("bundle");
    let range =
        BundleRange::parse(text).ok_or_else(|| ApiError::precondition(format!("{text} is no range")))?;
    admin.brokers.has_bundle(&format!("{name}/{range}"), None)?;
    let at = Division::of(query.split_algorithm_name.as_deref())?;
    if at != Division::Positions && positions.as_ref().is_some_and(|given| !given.is_empty()) {
        return Err(ApiError::bad_request(
            "positions are for specified_positions_divide",
        ));
    }
    let (low, high) = range.hashes();
    let borders = match at {
        Division::Range => vec![low + (high - low) / 2 + (high - low) % 2],
        Division::Positions => positions.unwrap_or_default(),
        Division::Topics => middle(topics.iter().map(|topic| (bundle_hash(&topic.to_string()), 1.0)))
            .into_iter()
            .collect(),
        Division::Load => middle(loads(&admin, topics).await?).into_iter().collect(),
    };
    if borders.is_empty() {
        return Err(ApiError::precondition(format!(
            "there is nothing in {range} that could be divided so"
        )));
    }
    let parts = admin.brokers.split(&name, &range, &borders).await?;
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

/// Where a bundle is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Division {
    /// In the middle of its hashes.
    Range,
    /// So that both parts have as many topics.
    Topics,
    /// So that both parts have as many messages a second.
    Load,
    /// Where the caller says.
    Positions,
}

impl Division {
    fn of(name: Option<&str>) -> ApiResult<Self> {
        match name.unwrap_or_default() {
            "" | "range_equally_divide" => Ok(Self::Range),
            "topic_count_equally_divide" => Ok(Self::Topics),
            "flow_or_qps_equally_divide" => Ok(Self::Load),
            "specified_positions_divide" => Ok(Self::Positions),
            other => Err(ApiError::bad_request(format!(
                "'{other}' is none of range_equally_divide, topic_count_equally_divide, flow_or_qps_equally_divide, \
                 specified_positions_divide"
            ))),
        }
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

/// The border that parts what weighs something at a hash into halves, as nearly as the hashes allow. `None`: all of it is at one hash.
fn middle(weights: impl IntoIterator<Item = (u32, f64)>) -> Option<u32> {
    let mut weights: Vec<(u32, f64)> = weights.into_iter().filter(|(_, weight)| *weight > 0.0).collect();
    weights.sort_unstable_by_key(|(hash, _)| *hash);
    let half = weights.iter().map(|(_, weight)| weight).sum::<f64>() / 2.0;
    let mut before = 0.0;
    let mut best: Option<(f64, u32)> = None;
    for pair in weights.windows(2) {
        let [(left, weight), (right, _)] = pair else {
            continue;
        };
        before += weight;
        let far = (before - half).abs();
        if left < right && best.is_none_or(|(least, _)| far < least) {
            best = Some((far, left + (right - left).div_ceil(2)));
        }
    }
    best.map(|(_, border)| border)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_parts_what_is_there_into_halves() {
        assert_eq!(middle([]), None);
        assert_eq!(middle([(7, 1.0)]), None);
        assert_eq!(middle([(7, 1.0), (7, 5.0)]), None);
        // The left one is below the border, the right one is not.
        assert_eq!(middle([(7, 1.0), (8, 1.0)]), Some(8));
        assert_eq!(middle([(40, 1.0), (10, 1.0), (30, 1.0), (20, 1.0)]), Some(25));
        assert_eq!(middle([(10, 9.0), (20, 1.0), (30, 1.0)]), Some(15));
        assert_eq!(middle([(10, 1.0), (20, 1.0), (30, 9.0)]), Some(25));
        // What carries nothing does not count.
        assert_eq!(middle([(10, 0.0), (20, 1.0), (30, 1.0)]), Some(25));
    }
}
