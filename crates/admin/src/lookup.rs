//! Lookups over HTTP, for clients with an `http://` service URL.

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;

use pharos_admin_api::LookupData;
use pharos_admin_api::query::LookupQuery;
use pharos_admin_api::routes::lookup as routes;

use crate::body::QueryOf;
use crate::endpoint::{Endpoint, on};
use crate::error::{ApiError, ApiResult, other_cluster};
use crate::namespaces::policies_of;
use crate::paths::TopicPath;
use crate::state::Admin;
use crate::transactions::coordinators_at;

pub(crate) fn endpoints() -> Vec<Endpoint> {
    vec![on(&routes::TOPIC, lookup), on(&routes::BUNDLE, bundle)]
}

/// Looks up the broker of a topic: this broker, which takes ownership of an unowned topic, or another one. As with
/// the binary lookup, a topic that does not exist is answered as well if it may be created; the producer or consumer
/// creates it.
async fn lookup(
    State(admin): State<Admin>,
    TopicPath(topic): TopicPath,
    QueryOf(query): QueryOf<LookupQuery>,
    headers: HeaderMap,
) -> ApiResult<Json<LookupData>> {
    let is_coordinator = coordinators_at(&admin, &topic).is_some();
    if !is_coordinator {
        policies_of(&admin, topic.namespace())?;
        let here = admin.catalog.check_cluster(&topic);
        here.map_err(|other| other_cluster(&other))?;
    }
    let header = headers
        .get("x-pulsar-listenername")
        .and_then(|name| name.to_str().ok());
    let listener = query.listener_name.as_deref().or(header);
    let listener = listener.filter(|name| !name.is_empty());
    // The base of a partitioned topic and partitions not yet made have no record; only plain names can be missing.
    if !is_coordinator
        && admin.catalog.partitioned().get(&topic.base()).is_none()
        && !admin.catalog.topic_exists(&topic)
    {
        admin.catalog.partitioned_metadata(&topic, true).await?;
    }
    let options = &admin.options;
    let owner = admin.topics.served_by(topic).await?;
    let listeners = match &owner {
        None => &options.listeners,
        Some(other) => &other.advertised_listeners,
    };
    let urls = match listener {
        None => None,
        Some(name) => Some(
            listeners
                .get(name)
                .ok_or_else(|| ApiError::not_found(format!("the broker do not have {name} listener")))?,
        ),
    };
    let mut data = match &owner {
        None => LookupData {
            broker_url: options.broker_url.clone(),
            broker_url_tls: options.broker_url_tls.clone(),
            http_url: options.http_url.clone(),
            http_url_tls: options.http_url_tls.clone(),
            ..LookupData::default()
        },
        Some(other) => LookupData {
            broker_url: other.native_url.clone(),
            broker_url_tls: other.native_url_tls.clone(),
            http_url: other.http_url.clone(),
            http_url_tls: other.http_url_tls.clone(),
            ..LookupData::default()
        },
    };
    if let Some(urls) = urls {
        data.broker_url = urls.broker_service_url.clone().unwrap_or_default();
        data.broker_url_tls.clone_from(&urls.broker_service_url_tls);
        if urls.broker_http_url.is_some() || urls.broker_https_url.is_some() {
            data.http_url = urls.broker_http_url.clone().unwrap_or_default();
            data.http_url_tls.clone_from(&urls.broker_https_url);
        }
    }
    // The names that old clients read.
    Ok(Json(LookupData {
        native_url: data.broker_url.clone(),
        broker_url_ssl: data.broker_url_tls.clone().unwrap_or_default(),
        ..data
    }))
}

/// The bundle that a topic falls into, as `0x40000000_0x80000000`.
async fn bundle(State(admin): State<Admin>, TopicPath(topic): TopicPath) -> ApiResult<String> {
    policies_of(&admin, topic.namespace())?;
    let bundle = admin.catalog.bundle_of(&topic);
    bundle.ok_or_else(|| ApiError::not_found("Namespace does not exist"))
}
