//! The route table with its handlers as one router, and JSON answers for what the table does not have.

use axum::extract::{DefaultBodyLimit, Request};
use axum::http::StatusCode;
use axum::middleware::from_fn;
use axum::routing::any;
use axum::{Extension, Router};

use pharos_admin_api::paths::decode_part;
use pharos_auth::{Action, Resource};
use pharos_types::NamespaceName;

use crate::body::BODY_BYTES_MAX;
use crate::endpoint::{Endpoint, may};
use crate::error::ApiError;
use crate::origin::{AllowedHosts, AllowedOrigins, guard};
use crate::request_rate::{RequestRate, admit};
use crate::state::Admin;
use crate::{
    bookies, brokers, bundles, clusters, compaction, isolation, lookup, messages, metrics,
    namespace_policies, namespaces, offload, schemas, subscriptions, tenants, topic_policies, topic_stats,
    topics, transactions, web_socket,
};

/// Everything the door answers.
pub fn router(admin: Admin) -> Router {
    let access = admin.options.access.clone();
    let authentication = admin.options.authentication.clone();
    let broker_client = admin.options.broker_client.clone();
    let request_rate = RequestRate::new(admin.options.request_rates);
    let web_socket = admin.options.web_socket.clone();
    let allowed_hosts = AllowedHosts(admin.options.allowed_hosts.clone().into());
    let allowed_origins = AllowedOrigins(admin.options.web_socket_origins.clone().into());
    let router = endpoints()
        .into_iter()
        .fold(Router::new(), |router, endpoint| endpoint.mount(router));
    web_socket::mount(router, web_socket)
        .route("/admin/v3/{kind}/{*rest}", any(no_functions))
        .fallback(unknown)
        .method_not_allowed_fallback(wrong_method)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(from_fn(guard))
        .layer(Extension(access))
        .layer(Extension(authentication))
        .layer(Extension(request_rate))
        .layer(Extension(broker_client))
        .layer(Extension(allowed_hosts))
        .layer(Extension(allowed_origins))
        .with_state(admin)
}

/// A handler for each row of the table.
fn endpoints() -> Vec<Endpoint> {
    [
        clusters::endpoints(),
        isolation::endpoints(),
        tenants::endpoints(),
        namespaces::endpoints(),
        namespace_policies::endpoints(),
        bundles::endpoints(),
        topics::endpoints(),
        topic_stats::endpoints(),
        topic_policies::endpoints(),
        compaction::endpoints(),
        offload::endpoints(),
        subscriptions::endpoints(),
        messages::endpoints(),
        schemas::endpoints(),
        brokers::endpoints(),
        bookies::endpoints(),
        lookup::endpoints(),
        metrics::endpoints(),
        transactions::endpoints(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Functions, connectors and packages are other programs' or later releases' business.
async fn no_functions(mut request: Request) -> ApiError {
    if let Err(refused) = admit(&mut request).await {
        return refused;
    }
    let (action, namespace) = of_functions(request.uri().path());
    let resource = namespace.as_ref().map_or(Resource::Cluster, Resource::Namespace);
    if let Err(denied) = may(&request, action, resource) {
        return denied;
    }
    let reason = format!(
        "{} is not served by this broker: functions, connectors, packages and internals of transactions are not offered",
        request.uri().path()
    );
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, reason)
}

/// Action and namespace of `/admin/v3/{kind}/{tenant}/{namespace}/…`. A package's path has its type before the
/// tenant.
fn of_functions(path: &str) -> (Action, Option<NamespaceName>) {
    let mut parts = path.split('/').skip(3);
    let kind = parts.next().unwrap_or_default();
    let action = match kind {
        "functions" | "function" => Action::ManageFunctions,
        "sources" | "source" => Action::ManageSources,
        "sinks" | "sink" => Action::ManageSinks,
        "packages" => Action::ManagePackages,
        _ => Action::UpdateBroker,
    };
    if kind == "packages" {
        parts.next();
    }
    let mut name = || parts.next().and_then(decode_part).unwrap_or_default();
    let (tenant, namespace) = (name(), name());
    (action, NamespaceName::new(&tenant, &namespace).ok())
}

/// Refusal of a path that Pulsar serves and Pharos does not.
fn not_offered(path: &str) -> Option<ApiError> {
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let what = match parts.as_slice() {
        ["admin", "v2", "resource-quotas", ..] => "resource quotas of bundles are",
        ["admin", "v2", "resourcegroups", ..] | ["admin", "v2", "namespaces", _, _, "resourcegroup", ..] => {
            "resource groups are"
        }
        ["admin", "v2", "worker" | "worker-stats", ..] => "a function worker is",
        ["proxy-stats", ..] => "a proxy is",
        ["admin", "v2", "schemas", _, _, _, "metadata"] => {
            "the places where a schema's versions are stored are"
        }
        ["admin", "v2", "clusters", _, "peers"] => "setting the peers of a cluster is",
        ["admin", "v2", "clusters", _, "migrate"] | ["admin", "v2", "namespaces", _, _, "migration"] => {
            "migration to another cluster is"
        }
        ["admin", "v2", "namespaces", _, _, _, "topicHashPositions"] => "positions of topics in a bundle are",
        ["admin", "namespaces", _, "antiAffinity", _]
        | ["admin", "v2", "namespaces", _, "antiAffinity", _] => {
            "groups of namespaces that are kept apart are"
        }
        [
            "admin",
            "v2",
            "persistent" | "non-persistent",
            _,
            _,
            _,
            _,
            "dispatchRate",
        ] => "dispatch rates of single subscriptions are",
        ["admin", "v2", "broker-stats", "mbeans"] => "beans of a Java machine are",
        ["admin", "v2", "brokers", "shutdown"] => "stopping a broker by a request is",
        _ => return None,
    };
    Some(ApiError::new(
        StatusCode::NOT_IMPLEMENTED,
        format!("{what} not available in this release"),
    ))
}

async fn unknown(mut request: Request) -> ApiError {
    if let Err(refused) = admit(&mut request).await {
        return refused;
    }
    if let Err(denied) = may(&request, Action::AskUnknown, Resource::Cluster) {
        return denied;
    }
    let path = request.uri().path();
    not_offered(path).unwrap_or_else(|| ApiError::not_found(format!("there is nothing at {path}")))
}

async fn wrong_method(mut request: Request) -> ApiError {
    if let Err(refused) = admit(&mut request).await {
        return refused;
    }
    if let Err(denied) = may(&request, Action::AskUnknown, Resource::Cluster) {
        return denied;
    }
    let (method, path) = (request.method(), request.uri().path());
    if let Some(absent) = not_offered(path) {
        return absent;
    }
    ApiError::not_allowed(format!("{method} is not possible on {path}"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use pharos_admin_api::routes;

    use super::*;

    /// A row without a handler would answer 404 although the OpenAPI document has it; a handler without a row cannot be.
    #[test]
    fn every_row_of_the_table_has_one_handler() {
        let wanted: BTreeSet<String> = routes::all().map(routes::Route::id).collect();
        let found: Vec<String> = endpoints().iter().map(|endpoint| endpoint.route.id()).collect();
        assert_eq!(found.len(), wanted.len());
        assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), wanted);
    }
}
