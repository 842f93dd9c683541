//! Reading requests: JSON bodies and query parameters, with errors as everywhere else.
//!
//! The content type is not looked at: tools send JSON under several names, or under none. Numbers and booleans may come
//! as text ([`lenient`]), because the reference takes them so and clients rely on it.

use std::time::Duration;

use axum::extract::{FromRequest, FromRequestParts, Query, Request};
use axum::http::StatusCode;
use axum::http::header::CONTENT_LENGTH;
use axum::http::request::Parts;
use serde::de::DeserializeOwned;
use serde_json::{Number, Value};

use crate::error::ApiError;

/// Largest request body. Schemas are the largest thing that comes in.
pub(crate) const BODY_BYTES_MAX: usize = 4 * 1024 * 1024;

/// How long a client may take to send a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// The body as JSON; `None` when it is empty or `null`.
pub(crate) struct OptionalJson<T>(pub(crate) Option<T>);

/// The body as JSON; an empty one is a bad request.
pub(crate) struct RequiredJson<T>(pub(crate) T);

/// Query parameters; what the type does not name is ignored.
pub(crate) struct QueryOf<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for OptionalJson<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        if announced_bytes(&request) > BODY_BYTES_MAX {
            let reason = format!("the body is larger than {BODY_BYTES_MAX} bytes");
            return Err(ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, reason));
        }
        let read = axum::body::Bytes::from_request(request, state);
        let bytes = match tokio::time::timeout(BODY_TIMEOUT, read).await {
            Ok(Ok(bytes)) => bytes,
            Ok(Err(rejection)) => return Err(ApiError::new(rejection.status(), rejection.body_text())),
            Err(_) => {
                return Err(ApiError::new(
                    StatusCode::REQUEST_TIMEOUT,
                    "the body did not arrive in time",
                ));
            }
        };
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

/// Reads a value whose numbers and booleans may be written as text, and whose whole numbers as `3.0`.
///
/// # Errors
/// What the value is as it came; it does not fit as text either.
pub(crate) fn lenient<T: DeserializeOwned>(value: Value) -> Result<T, serde_json::Error> {
    T::deserialize(&value).or_else(|error| T::deserialize(scalars(value)).map_err(|_| error))
}

/// The value with every text that is a number or a boolean as that.
fn scalars(value: Value) -> Value {
    match value {
        Value::String(text) => scalar(text),
        Value::Number(number) => Value::Number(whole(number)),
        Value::Array(items) => items.into_iter().map(scalars).collect(),
        Value::Object(members) => {
            let members = members.into_iter().map(|(name, value)| (name, scalars(value)));
            Value::Object(members.collect())
        }
        other => other,
    }
}

fn scalar(text: String) -> Value {
    let trimmed = text.trim();
    if let Ok(flag) = trimmed.parse::<bool>() {
        return flag.into();
    }
    if let Ok(number) = trimmed.parse::<i64>() {
        return number.into();
    }
    let number = trimmed.parse::<f64>().ok().and_then(Number::from_f64);
    number.map_or(Value::String(text), |number| Value::Number(whole(number)))
}

/// `3.0` as 3; what no double holds exactly stays as it is.
#[expect(clippy::cast_possible_truncation, reason = "the range is checked")]
fn whole(number: Number) -> Number {
    match number.as_f64() {
        Some(value) if number.is_f64() && value.fract() == 0.0 && value.abs() < 9e15 => {
            Number::from(value as i64)
        }
        _ => number,
    }
}

/// What the client says the body has; 0 when it does not say. Refusing on that word saves reading the body.
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

#[cfg(test)]
mod tests {
    use pharos_admin_api::{DispatchRate, TenantInfo};
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_and_booleans_may_be_text() {
        assert!(lenient::<bool>(json!("true")).unwrap());
        assert_eq!(lenient::<i64>(json!(" -7 ")).unwrap(), -7);
        assert_eq!(lenient::<i64>(json!(3.0)).unwrap(), 3);
        assert_eq!(lenient::<String>(json!("3")).unwrap(), "3");
        let rate: DispatchRate = lenient(json!({
            "dispatchThrottlingRateInMsg": "5", "relativeToPublishRate": "true", "ratePeriodInSecond": "2"
        }))
        .unwrap();
        assert_eq!(
            (rate.dispatch_throttling_rate_in_msg, rate.rate_period_in_second),
            (5, 2)
        );
        assert!(rate.relative_to_publish_rate);
        for wrong in [json!("x"), json!(""), json!(3.5), json!("1e99")] {
            assert!(lenient::<i64>(wrong.clone()).is_err(), "{wrong}");
        }
        assert!(lenient::<TenantInfo>(json!({"adminRoles": "7"})).is_err());
    }
}
