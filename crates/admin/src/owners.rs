//! Calls on a partitioned topic whose partitions are at several brokers: what is not here is asked of the broker that has it.
//!
//! ```text
//!  caller ──► this broker ──► partitions that are here
//!                 └─ the same request for one partition, with what the caller has shown ──► their owners
//! ```
//! The owner decides for itself whether the caller may: no broker has rights that its caller has not, and there are no credentials of
//! brokers to keep. What a caller has shown goes to a broker of this cluster only, which is where a 307 would have sent the caller with it,
//! and never over a connection that is less protected than that on which it came. A caller that is known by a certificate is named to
//! the owner, to whom this broker shows its own, as a proxy does. Where there is no such way, the call is answered 503, with the reason.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderValue, Method, StatusCode, header};
use pharos_admin_api::ErrorData;
use pharos_admin_api::paths::encode_part;
use pharos_broker_admin::AdminError;
use pharos_types::TopicName;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::owner_link::Shown;

/// Time limit for an owner's answer.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// Index of the topic in `/admin/v2/persistent/tenant/namespace/topic/…`, counted from the empty part before the
/// first slash.
const TOPIC_PART: usize = 6;

/// Index of `persistent` there.
const DOMAIN_PART: usize = 3;

tokio::task_local! {
    /// The request that is being answered.
    static ASKED: Arc<OriginalRequest>;
}

/// Parts of a request needed to repeat it at an owner. Must not be printed: it contains the caller's credentials.
pub(crate) struct OriginalRequest {
    method: Method,
    path: String,
    query: String,
    shown: Option<Shown>,
}

impl OriginalRequest {
    pub(crate) fn of(request: &Request) -> Arc<Self> {
        Arc::new(Self {
            method: request.method().clone(),
            path: request.uri().path().to_owned(),
            query: request.uri().query().unwrap_or_default().to_owned(),
            shown: Shown::of(request),
        })
    }

    /// Runs a handler that may ask owners.
    pub(crate) async fn scope<F: Future>(self: Arc<Self>, handler: F) -> F::Output {
        ASKED.scope(self, handler).await
    }

    /// Path of the same request for one partition; `None` if another broker forwarded the request, or if it names the
    /// partition itself.
    fn for_partition(&self, partition: &TopicName) -> Option<String> {
        let is_forwarded = self.query.split('&').any(|member| member == "authoritative=true");
        let parts: Vec<&str> = self.path.split('/').collect();
        let (before, rest) = (parts.get(..TOPIC_PART)?, parts.get(TOPIC_PART + 1..)?);
        let name = encode_part(partition.local());
        let is_about_topics = parts.get(DOMAIN_PART) == Some(&partition.domain().as_str());
        if is_forwarded || !is_about_topics || parts.get(TOPIC_PART) == Some(&name.as_str()) {
            return None;
        }
        // What is asked of all partitions together has a name of its own.
        let rest = rest.iter().map(|part| match *part {
            "partitioned-stats" => "stats",
            "partitioned-internalStats" => "internalStats",
            part => part,
        });
        let path: Vec<&str> = before
            .iter()
            .copied()
            .chain([name.as_str()])
            .chain(rest)
            .collect();
        let query = self
            .query
            .split('&')
            .filter(|it| !it.is_empty() && !it.starts_with("authoritative="));
        let query: Vec<&str> = query.chain(["authoritative=true"]).collect();
        Some(format!("{}?{}", path.join("/"), query.join("&")))
    }
}

/// Result of a call on a partition, here or at its owner. `body`: body of the request, if any.
///
/// Cancel safety: if dropped, the owner may or may not have carried it out.
pub(crate) async fn at_owner<T: DeserializeOwned>(
    here: impl Future<Output = Result<T, AdminError>>,
    body: Option<&Value>,
) -> Result<T, AdminError> {
    let (topic, addresses) = match here.await {
        Err(AdminError::Elsewhere { topic, addresses }) => (topic, addresses),
        outcome => return outcome,
    };
    let elsewhere = |topic, addresses| Err(AdminError::Elsewhere { topic, addresses });
    let Ok(asked) = ASKED.try_with(Arc::clone) else {
        return elsewhere(topic, addresses);
    };
    let way = asked
        .shown
        .as_ref()
        .and_then(|shown| Some((shown, shown.way_to(&addresses)?)));
    let (Some((shown, way)), Some(path)) = (way, asked.for_partition(&topic)) else {
        return elsewhere(topic, addresses);
    };
    let asking = async {
        let mut request = request_of(&asked.method, &path, body)?;
        shown.put_on(request.headers_mut());
        way.send(request).await
    };
    let answered = tokio::time::timeout(ANSWER_MAX, asking).await;
    let answered = answered.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
    let of = || format!("{topic} at {}", addresses.broker_id());
    match answered {
        Ok((status, body)) if status.is_success() => {
            let body: &[u8] = if body.is_empty() { b"null" } else { &body };
            serde_json::from_slice(body)
                .map_err(|error| AdminError::Unavailable(format!("{}: odd answer: {error}", of())))
        }
        Ok((status, body)) => Err(failure(status, &of(), &body)),
        Err(error) => Err(AdminError::Unavailable(format!("{}: {error}", of()))),
    }
}

/// Refusal of an owner, as an error of this broker.
fn failure(status: StatusCode, of: &str, body: &[u8]) -> AdminError {
    let said = serde_json::from_slice::<ErrorData>(body).map(|data| data.reason);
    let reason = said.unwrap_or_else(|_| format!("{of}: {status}"));
    match status {
        StatusCode::BAD_REQUEST => AdminError::Invalid(reason),
        StatusCode::FORBIDDEN => AdminError::Forbidden(reason),
        StatusCode::NOT_FOUND => AdminError::NotFound(reason),
        StatusCode::METHOD_NOT_ALLOWED => AdminError::NotAllowed(reason),
        StatusCode::NOT_ACCEPTABLE => AdminError::NotAcceptable(reason),
        StatusCode::CONFLICT => AdminError::Conflict(reason),
        StatusCode::PRECONDITION_FAILED => AdminError::Precondition(reason),
        StatusCode::UNPROCESSABLE_ENTITY => AdminError::Unprocessable(reason),
        StatusCode::NOT_IMPLEMENTED => AdminError::NotImplemented(reason),
        StatusCode::UNAUTHORIZED => AdminError::Unavailable(format!(
            "{of}: {reason}; it does not know what this broker shows: of callers with a certificate, its own, whose role must be among the proxy roles"
        )),
        _ => AdminError::Unavailable(format!("{of}: {reason}")),
    }
}

fn request_of(method: &Method, path: &str, body: Option<&Value>) -> io::Result<Request> {
    let mut request = Request::builder().method(method.clone()).uri(path);
    if body.is_some() {
        let json = HeaderValue::from_static("application/json");
        request = request.header(header::CONTENT_TYPE, json);
    }
    let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
    request.body(body).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use pharos_cluster::BrokerAddresses;

    use super::*;

    fn asked(path: &str, query: &str) -> Option<String> {
        let asked = OriginalRequest {
            method: Method::GET,
            path: path.to_owned(),
            query: query.to_owned(),
            shown: None,
        };
        let partition: TopicName = "persistent://t/n/a b-partition-1".parse().ok()?;
        asked.for_partition(&partition)
    }

    #[test]
    fn the_same_is_asked_of_one_partition_once() {
        let base = "/admin/v2/persistent/t/n/a%20b";
        let part = "/admin/v2/persistent/t/n/a%20b-partition-1";
        let path = |rest: &str, query| asked(&format!("{base}/{rest}"), query);
        assert_eq!(
            path("partitioned-stats", "perPartition=true&authoritative=false"),
            Some(format!("{part}/stats?perPartition=true&authoritative=true"))
        );
        assert_eq!(
            path("subscription/s", ""),
            Some(format!("{part}/subscription/s?authoritative=true"))
        );
        assert_eq!(path("subscription/s", "authoritative=true"), None);
        assert_eq!(asked(&format!("{part}/stats"), ""), None);
        assert_eq!(asked("/admin/v2/brokers", ""), None);
        assert_eq!(asked("/admin/v2/namespaces/t/n/0x0_0x1/split", ""), None);
    }

    #[tokio::test]
    async fn without_a_request_the_owner_is_not_asked() {
        let topic: TopicName = "persistent://t/n/a-partition-1".parse().unwrap();
        let addresses = Arc::new(BrokerAddresses::default());
        let here = std::future::ready(Err::<(), _>(AdminError::Elsewhere { topic, addresses }));
        assert!(matches!(
            at_owner(here, None).await,
            Err(AdminError::Elsewhere { .. })
        ));
    }
}
