//! Errors as HTTP answers: a status and `{"reason": …}`.

use std::sync::LazyLock;

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use pharos_admin_api::ErrorData;
use pharos_auth::Denied;
use pharos_broker_admin::AdminError;
use pharos_catalog::OtherCluster;
use pharos_runtime::LogThrottle;
use pharos_types::TopicName;

/// Failure of a request. Every failed request is answered with one.
#[derive(Debug)]
pub(crate) struct ApiError {
    pub(crate) status: StatusCode,
    pub(crate) reason: String,
    /// Another broker serves this: the caller is to ask there.
    redirect: Option<Box<Redirect>>,
}

/// Broker that serves a topic or a bundle, as an extension of an answer; [`crate::redirect`] turns it into a redirect
/// that clients follow.
#[derive(Clone, Debug)]
pub(crate) struct Redirect {
    /// `None`: what the namespace of the path has there, a bundle.
    pub(crate) topic: Option<TopicName>,
    pub(crate) http_url: String,
    /// HTTPS URL of that broker.
    pub(crate) http_url_tls: Option<String>,
}

pub(crate) type ApiResult<T> = Result<T, ApiError>;

impl ApiError {
    pub(crate) fn new(status: StatusCode, reason: impl Into<String>) -> Self {
        Self {
            status,
            reason: reason.into(),
            redirect: None,
        }
    }

    /// A caller that must say who it is gets 401, one that may not do it 403.
    pub(crate) fn denied(denied: &Denied) -> Self {
        let status = match denied {
            Denied::NotAuthenticated(_) => StatusCode::UNAUTHORIZED,
            Denied::NotAuthorized(_) => StatusCode::FORBIDDEN,
            Denied::NoTenant => StatusCode::NOT_FOUND,
        };
        Self::new(status, denied.to_string())
    }

    pub(crate) fn bad_request(reason: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, reason)
    }

    pub(crate) fn not_found(reason: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, reason)
    }

    pub(crate) fn not_allowed(reason: impl Into<String>) -> Self {
        Self::new(StatusCode::METHOD_NOT_ALLOWED, reason)
    }

    pub(crate) fn conflict(reason: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, reason)
    }

    pub(crate) fn precondition(reason: impl Into<String>) -> Self {
        Self::new(StatusCode::PRECONDITION_FAILED, reason)
    }

    pub(crate) fn not_implemented(reason: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_IMPLEMENTED, reason)
    }
}

/// Failures that an operator should look at, of all requests.
static FAILURES: LazyLock<LogThrottle> = LazyLock::new(LogThrottle::default);

/// Logs a request that failed. Only what is wrong with the broker itself is a warning, and few of these are told: a caller that asks for
/// what is refused learns why from the answer, and must not be able to fill the log.
fn log_failure(status: StatusCode, reason: &str) {
    let status_code = status.as_u16();
    if status == StatusCode::INTERNAL_SERVER_ERROR
        && let Some(untold) = FAILURES.enter()
    {
        tracing::warn!(status = status_code, reason, untold, "admin request failed");
    } else {
        tracing::debug!(status = status_code, reason, "admin request refused");
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        log_failure(self.status, &self.reason);
        let mut answer = (self.status, Json(ErrorData { reason: self.reason })).into_response();
        if self.status == StatusCode::TOO_MANY_REQUESTS {
            answer
                .headers_mut()
                .insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            let ways = HeaderValue::from_static("Bearer, Basic realm=\"pharos\"");
            answer.headers_mut().insert(header::WWW_AUTHENTICATE, ways);
        }
        if let Some(redirect) = self.redirect {
            answer.extensions_mut().insert(*redirect);
        }
        answer
    }
}

/// Everything the catalog and the broker answer with; the one place that turns it into a status.
impl<E: Into<AdminError>> From<E> for ApiError {
    fn from(error: E) -> Self {
        let error = error.into();
        if let AdminError::OtherCluster(other) = &error {
            return other_cluster(other);
        }
        let elsewhere = match &error {
            AdminError::Elsewhere { topic, addresses } => Some((Some(topic.clone()), addresses)),
            AdminError::BundleElsewhere { addresses, .. } => Some((None, addresses)),
            _ => None,
        };
        if let Some((topic, addresses)) = elsewhere {
            let redirect = Redirect {
                topic,
                http_url: addresses.http_url.clone(),
                http_url_tls: addresses.http_url_tls.clone(),
            };
            return Self {
                redirect: Some(Box::new(redirect)),
                ..Self::new(StatusCode::TEMPORARY_REDIRECT, error.to_string())
            };
        }
        let status = match &error {
            AdminError::Invalid(_) => StatusCode::BAD_REQUEST,
            AdminError::Forbidden(_) => StatusCode::FORBIDDEN,
            AdminError::NotFound(_) => StatusCode::NOT_FOUND,
            AdminError::NotAllowed(_) => StatusCode::METHOD_NOT_ALLOWED,
            AdminError::NotAcceptable(_) => StatusCode::NOT_ACCEPTABLE,
            AdminError::Conflict(_) => StatusCode::CONFLICT,
            AdminError::Precondition(_) | AdminError::OtherCluster(_) => StatusCode::PRECONDITION_FAILED,
            AdminError::Unprocessable(_) => StatusCode::UNPROCESSABLE_ENTITY,
            AdminError::Internal(_) => StatusCode::INTERNAL_SERVER_ERROR,
            AdminError::NotImplemented(_) => StatusCode::NOT_IMPLEMENTED,
            AdminError::Elsewhere { .. } | AdminError::BundleElsewhere { .. } => {
                StatusCode::TEMPORARY_REDIRECT
            }
            AdminError::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self::new(status, error.to_string())
    }
}

/// The answer about a topic whose namespace is not on this cluster: where to ask instead, if that is known.
pub(crate) fn other_cluster(other: &OtherCluster) -> ApiError {
    let url = other.peer.as_ref().and_then(|peer| peer.service_url.clone());
    let redirect = url.map(|http_url| Redirect {
        topic: Some(other.topic.clone()),
        http_url,
        http_url_tls: other.peer.as_ref().and_then(|peer| peer.service_url_tls.clone()),
    });
    let status = match redirect {
        Some(_) => StatusCode::TEMPORARY_REDIRECT,
        None => StatusCode::PRECONDITION_FAILED,
    };
    ApiError {
        redirect: redirect.map(Box::new),
        ..ApiError::new(status, other.to_string())
    }
}
