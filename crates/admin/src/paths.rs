//! Names out of paths.
//!
//! Read from the path as it was sent, because names of topics and subscriptions come encoded once or twice
//! ([`pharos_admin_api::paths::decode_part`]); a router that has decoded once already could not tell `%2B` from a
//! space.
//!
//! ```text
//! /admin/v2/persistent/tenant/namespace/topic/subscription/name
//! 0     1  2          3      4         5     6            7
//! ```

use axum::extract::FromRequestParts;
use axum::http::request::Parts;

use pharos_admin_api::paths::decode_part;
use pharos_types::{Domain, NameError, NamespaceName, SubscriptionName, TopicName};

use crate::error::ApiError;

/// The topic of `/admin/v2/{domain}/{tenant}/{namespace}/{topic}…` and of the other places topics are named.
pub(crate) struct TopicPath(pub(crate) TopicName);

/// The topic and subscription of `/admin/v2/{domain}/{tenant}/{namespace}/{topic}/subscription/{name}…`.
pub(crate) struct SubscriptionPath(pub(crate) TopicName, pub(crate) SubscriptionName);

/// The namespace of `/admin/v2/{group}/{tenant}/{namespace}…`.
pub(crate) struct NamespacePath(pub(crate) NamespaceName);

/// The path parts after `/admin/v2/{group}`, decoded.
pub(crate) struct PathParts(Vec<String>);

impl PathParts {
    /// Part `index` after the group; empty when there is none.
    pub(crate) fn get(&self, index: usize) -> &str {
        self.0.get(index).map_or("", String::as_str)
    }

    /// A whole number.
    pub(crate) fn number(&self, index: usize) -> Result<u64, ApiError> {
        let text = self.get(index);
        text.parse()
            .map_err(|_| ApiError::precondition(format!("'{text}' is no whole number")))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for PathParts {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let all = segments(parts)?;
        Ok(Self(all.into_iter().skip(3).collect()))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for NamespacePath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let all = segments(parts)?;
        let part = |index: usize| all.get(index).map_or("", String::as_str);
        NamespaceName::new(part(3), part(4))
            .map(Self)
            .map_err(invalid_name)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for TopicPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        topic_of(&segments(parts)?).map(Self)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for SubscriptionPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let all = segments(parts)?;
        let name = all.get(7).map_or("", String::as_str);
        let subscription = SubscriptionName::new(name).map_err(invalid_name)?;
        Ok(Self(topic_of(&all)?, subscription))
    }
}

/// A wrong name is 412 throughout this API.
pub(crate) fn invalid_name(error: NameError) -> ApiError {
    ApiError::precondition(error.to_string())
}

fn segments(parts: &Parts) -> Result<Vec<String>, ApiError> {
    let path = parts.uri.path();
    let raw = path.strip_prefix('/').unwrap_or(path).split('/');
    raw.map(|part| decode_part(part).ok_or_else(|| ApiError::bad_request("the path is not UTF-8")))
        .collect()
}

/// `…/{domain}/{tenant}/{namespace}/{topic}`: after `/admin/v2`, or after `/lookup/v2/topic`. Under `/admin/v2/schemas`
/// no domain is named; schemas belong to persistent topics.
fn topic_of(all: &[String]) -> Result<TopicName, ApiError> {
    let part = |index: usize| all.get(index).map_or("", String::as_str);
    let shift = usize::from(part(0) == "lookup");
    let domain = match part(2 + shift) {
        "persistent" | "schemas" => Domain::Persistent,
        "non-persistent" => Domain::NonPersistent,
        other => {
            return Err(ApiError::precondition(format!(
                "'{other}' is neither persistent nor non-persistent"
            )));
        }
    };
    let namespace = NamespaceName::new(part(3 + shift), part(4 + shift)).map_err(invalid_name)?;
    TopicName::new(domain, namespace, part(5 + shift)).map_err(invalid_name)
}
