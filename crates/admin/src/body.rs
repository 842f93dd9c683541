//! Reading requests: JSON bodies and query parameters, with errors as everywhere else.
//!
//! The content type is not looked at: tools send JSON under several names, or under none. Numbers and booleans may come
//! as text ([`lenient`]), because Pulsar takes them so and clients rely on it.

use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Query, Request};
use axum::http::StatusCode;
use axum::http::header::CONTENT_LENGTH;
use axum::http::request::Parts;
use pharos_admin_api::lenient;
use serde::de::DeserializeOwned;

use crate::error::ApiError;

/// Largest request body. Schemas are the largest thing that comes in.
pub(crate) const BODY_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Time limit for a client to send a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// The body as JSON; `None` when it is empty or `null`.
pub(crate) struct OptionalJson<T>(pub(crate) Option<T>);

/// The body as JSON; an empty one is a bad request.
pub(crate) struct RequiredJson<T>(pub(crate) T);

/// The body as a text, as a JSON string or as it is; `None` when it is empty.
pub(crate) struct TextBody(pub(crate) Option<String>);

/// Query parameters; what the type does not name is ignored.
pub(crate) struct QueryOf<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for OptionalJson<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let bytes = bytes_of(request, state).await?;
        if bytes.trim_ascii().is_empty() {
            return Ok(Self(None));
        }
        let read = match serde_json::from_slice(&bytes) {
            Ok(read) => Ok(read),
            // What is no JSON at all fails here again.
            Err(_) => serde_json::from_slice(&bytes).and_then(lenient),
        };
        read.map(Self)
            .map_err(|error| ApiError::bad_request(format!("the body is not what was expected: {error}")))
    }
}

impl<S: Send + Sync> FromRequest<S> for TextBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let bytes = bytes_of(request, state).await?;
        if bytes.trim_ascii().is_empty() {
            return Ok(Self(None));
        }
        if let Ok(text) = serde_json::from_slice(&bytes) {
            return Ok(Self(Some(text)));
        }
        let text = std::str::from_utf8(bytes.trim_ascii());
        let text = text.map_err(|_| ApiError::bad_request("the body is no text in UTF-8"))?;
        Ok(Self(Some(text.to_owned())))
    }
}

async fn bytes_of<S: Send + Sync>(request: Request, state: &S) -> Result<Bytes, ApiError> {
    if announced_bytes(&request) > BODY_BYTES_MAX {
        let reason = format!("the body is larger than {BODY_BYTES_MAX} bytes");
        return Err(ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, reason));
    }
    let read = Bytes::from_request(request, state);
    match tokio::time::timeout(BODY_TIMEOUT, read).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(rejection)) => Err(ApiError::new(rejection.status(), rejection.body_text())),
        Err(_) => Err(ApiError::new(
            StatusCode::REQUEST_TIMEOUT,
            "the body did not arrive in time",
        )),
    }
}

/// Body size announced by the client; 0 if it announces none. Refusing by the announced size avoids reading the body.
fn announced_bytes(request: &Request) -> usize {
    let length = request
        .headers()
        .get(CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok());
    length.and_then(|length| length.parse().ok()).unwrap_or_default()
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for RequiredJson<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let OptionalJson(value) = OptionalJson::from_request(request, state).await?;
        value
            .map(Self)
            .ok_or_else(|| ApiError::bad_request("a body is expected"))
    }
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for QueryOf<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        Query::try_from_uri(&parts.uri)
            .map(|Query(query)| Self(query))
            .map_err(|rejection| ApiError::bad_request(rejection.body_text()))
    }
}
