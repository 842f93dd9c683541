//! All groups under one router, and JSON answers for what is not there.

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::{Method, StatusCode, Uri};
use axum::routing::any;

use crate::body::BODY_BYTES_MAX;
use crate::error::ApiError;
use crate::state::Admin;
use crate::{
    brokers, bundles, clusters, lookup, messages, metrics, namespace_policies, namespaces, offload, schemas,
    subscriptions, tenants, topic_policies, topic_stats, topics,
};

/// Everything the door answers.
pub fn router(admin: Admin) -> Router {
    let mut router = Router::new()
        .merge(clusters::routes())
        .merge(tenants::routes())
        .merge(namespaces::routes())
        .merge(namespace_policies::routes())
        .merge(offload::namespace_routes())
        .merge(bundles::routes())
        .merge(schemas::routes())
        .merge(brokers::routes())
        .merge(lookup::routes())
        .merge(metrics::routes());
    for domain in ["persistent", "non-persistent"] {
        let base = format!("/admin/v2/{domain}/{{tenant}}/{{namespace}}");
        router = router
            .merge(topics::routes(&base))
            .merge(offload::routes(&base))
            .merge(topic_stats::routes(&base))
            .merge(subscriptions::routes(&base))
            .merge(messages::routes(&base))
            .merge(topic_policies::routes(&base));
    }
    let functions = "/admin/v3/{kind}/{*rest}";
    router
        .route(functions, any(no_functions))
        .fallback(unknown)
        .method_not_allowed_fallback(wrong_method)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(admin)
}

/// Functions, connectors, packages and transactions are other programs' or later releases' business.
async fn no_functions(uri: Uri) -> ApiError {
    let reason = format!(
        "{} needs a function worker, package store or coordinator, which this broker has not",
        uri.path()
    );
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, reason)
}

async fn unknown(uri: Uri) -> ApiError {
    ApiError::not_found(format!("there is nothing at {}", uri.path()))
}

async fn wrong_method(method: Method, uri: Uri) -> ApiError {
    ApiError::not_allowed(format!("{method} is not possible on {}", uri.path()))
}
