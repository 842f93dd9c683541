//! Names out of paths, by the names that the route table gives them.
//!
//! Read from the path as it was sent, because names of topics come encoded once and those of subscriptions twice
//! ([`pharos_admin_api::paths`]); a router that has decoded once already could not tell `%2B` from a space.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::request::Parts;

use pharos_admin_api::paths::{decode_part, decode_subscription, decode_topic};
use pharos_admin_api::routes::{DOMAIN, Route};
use pharos_auth::Resource;
use pharos_types::{Domain, NameError, NamespaceName, SubscriptionName, TopicName};

use crate::error::ApiError;

/// The parameters of a request's path, decoded.
#[derive(Clone)]
pub(crate) struct PathParams(Arc<[(&'static str, String)]>);

/// `{domain}`, `{tenant}`, `{namespace}` and `{topic}`; without a domain the topic is persistent.
pub(crate) struct TopicPath(pub(crate) TopicName);

/// `{tenant}`, `{namespace}`, `{topic}` and `{subscription}`.
pub(crate) struct SubscriptionPath(pub(crate) TopicName, pub(crate) SubscriptionName);

/// `{tenant}` and `{namespace}`.
pub(crate) struct NamespacePath(pub(crate) NamespaceName);

/// Subject of a request: a [`Resource`] that owns its names.
pub(crate) enum Subject {
    Cluster,
    Tenant(String),
    Namespace(NamespaceName),
    Topic(TopicName),
    Subscription(TopicName, SubscriptionName),
}

impl Subject {
    /// As the authorization call takes it.
    pub(crate) fn as_resource(&self) -> Resource<'_> {
        match self {
            Self::Cluster => Resource::Cluster,
            Self::Tenant(tenant) => Resource::Tenant(tenant),
            Self::Namespace(namespace) => Resource::Namespace(namespace),
            Self::Topic(topic) => Resource::Topic(topic),
            Self::Subscription(topic, subscription) => Resource::Subscription(topic, subscription),
        }
    }
}

/// `{domain}`: which kind of topics a path is about.
pub(crate) struct DomainPath(pub(crate) Domain);

impl PathParams {
    /// Takes a path apart for which `route` was found.
    pub(crate) fn of(route: &'static Route, path: &str) -> Result<Self, ApiError> {
        let decoded = route.parameters_of(path).map(|(name, part)| {
            let decoded = match name {
                "topic" => decode_topic(part),
                "subscription" => decode_subscription(part),
                _ => decode_part(part),
            };
            let text = decoded.ok_or_else(|| ApiError::bad_request("the path is not UTF-8"))?;
            Ok((name, text))
        });
        decoded.collect::<Result<Arc<[_]>, ApiError>>().map(Self)
    }

    /// The parameter `name`; empty where the route has none of that name.
    pub(crate) fn get(&self, name: &str) -> &str {
        let found = self.0.iter().find(|(known, _)| *known == name);
        found.map_or("", |(_, text)| text.as_str())
    }

    /// The parameter `name` as a whole number.
    pub(crate) fn number(&self, name: &str) -> Result<u64, ApiError> {
        let text = self.get(name);
        text.parse()
            .map_err(|_| ApiError::precondition(format!("'{text}' is no whole number")))
    }

    /// The narrowest thing that the path names properly.
    pub(crate) fn subject(&self) -> Subject {
        let Ok(namespace) = self.namespace() else {
            return match self.get("tenant") {
                "" => Subject::Cluster,
                tenant => Subject::Tenant(tenant.to_owned()),
            };
        };
        let Ok(topic) = self.topic() else {
            return Subject::Namespace(namespace);
        };
        match SubscriptionName::new(self.get("subscription")) {
            Ok(subscription) => Subject::Subscription(topic, subscription),
            Err(_) => Subject::Topic(topic),
        }
    }

    fn domain(&self) -> Result<Domain, ApiError> {
        match self.get(DOMAIN) {
            // Schemas belong to persistent topics.
            "persistent" | "" => Ok(Domain::Persistent),
            "non-persistent" => Ok(Domain::NonPersistent),
            other => Err(ApiError::precondition(format!(
                "'{other}' is neither persistent nor non-persistent"
            ))),
        }
    }

    fn namespace(&self) -> Result<NamespaceName, ApiError> {
        NamespaceName::new(self.get("tenant"), self.get("namespace")).map_err(invalid_name)
    }

    fn topic(&self) -> Result<TopicName, ApiError> {
        let (domain, namespace) = (self.domain()?, self.namespace()?);
        TopicName::new(domain, namespace, self.get("topic")).map_err(invalid_name)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for PathParams {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let params = parts.extensions.get::<Self>().cloned();
        params.ok_or_else(|| ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "the request came by no route"))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for DomainPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let params = PathParams::from_request_parts(parts, state).await?;
        params.domain().map(Self)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for NamespacePath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let params = PathParams::from_request_parts(parts, state).await?;
        params.namespace().map(Self)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for TopicPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let params = PathParams::from_request_parts(parts, state).await?;
        params.topic().map(Self)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for SubscriptionPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let params = PathParams::from_request_parts(parts, state).await?;
        let subscription = SubscriptionName::new(params.get("subscription")).map_err(invalid_name)?;
        Ok(Self(params.topic()?, subscription))
    }
}

/// A wrong name is 412 throughout this API.
pub(crate) fn invalid_name(error: NameError) -> ApiError {
    ApiError::precondition(error.to_string())
}
