//! The route table with its handlers as one router, and JSON answers for what the table does not have.

use axum::extract::DefaultBodyLimit;
use axum::http::{Method, StatusCode, Uri};
use axum::routing::any;
use axum::{Extension, Router};

use crate::body::BODY_BYTES_MAX;
use crate::endpoint::Endpoint;
use crate::error::ApiError;
use crate::state::Admin;
use crate::{
    brokers, bundles, clusters, lookup, messages, metrics, namespace_policies, namespaces, offload, schemas,
    subscriptions, tenants, topic_policies, topic_stats, topics,
};

/// Everything the door answers.
pub fn router(admin: Admin) -> Router {
    let access = admin.options.access.clone();
    endpoints()
        .into_iter()
        .fold(Router::new(), |router, endpoint| endpoint.mount(router))
        .route("/admin/v3/{kind}/{*rest}", any(no_functions))
        .fallback(unknown)
        .method_not_allowed_fallback(wrong_method)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(Extension(access))
        .with_state(admin)
}

/// A handler for each row of the table.
fn endpoints() -> Vec<Endpoint> {
    [
        clusters::endpoints(),
        tenants::endpoints(),
        namespaces::endpoints(),
        namespace_policies::endpoints(),
        bundles::endpoints(),
        topics::endpoints(),
        topic_stats::endpoints(),
        topic_policies::endpoints(),
        offload::endpoints(),
        subscriptions::endpoints(),
        messages::endpoints(),
        schemas::endpoints(),
        brokers::endpoints(),
        lookup::endpoints(),
        metrics::endpoints(),
    ]
    .into_iter()
    .flatten()
    .collect()
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
