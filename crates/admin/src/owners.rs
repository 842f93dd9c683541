//! Calls on a partitioned topic whose partitions are at several brokers: what is not here is asked of the broker that has it.
//!
//! ```text
//!  caller ──► this broker ──► partitions that are here
//!                 └─ the same request for one partition, with what the caller has shown ──► their owners
//! ```
//! The owner decides for itself whether the caller may: no broker has rights that its caller has not, and there are no credentials of
//! brokers to keep. What a caller has shown goes to a broker of this cluster only, which is where a 307 would have sent the caller with it,
//! and never over a connection that is less protected than that on which it came. So there is none for a call that came over TLS, nor for
//! a caller that is known by a certificate: both are answered 503, with the reason, as before.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::{HeaderValue, Method, StatusCode, header};
use bytes::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use pharos_admin_api::ErrorData;
use pharos_admin_api::paths::encode_part;
use pharos_broker_admin::AdminError;
use pharos_cluster::BrokerAddresses;
use pharos_types::TopicName;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::net::TcpStream;

use crate::redirect::Encrypted;

/// How long an owner may take to answer.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// Largest answer of an owner.
const ANSWER_BYTES_MAX: usize = 8 << 20;

/// Where the topic stands in `/admin/v2/persistent/tenant/namespace/topic/…`, parts counted from the empty one before the first slash.
const TOPIC_PART: usize = 6;

/// Where `persistent` stands there.
const DOMAIN_PART: usize = 3;

tokio::task_local! {
    /// The request that is being answered.
    static ASKED: Arc<OriginalRequest>;
}

/// What is needed of a request to ask the same of an owner. Not to be shown: it has what the caller has shown.
pub(crate) struct OriginalRequest {
    method: Method,
    path: String,
    query: String,
    authorization: Option<HeaderValue>,
    is_encrypted: bool,
}

impl OriginalRequest {
    pub(crate) fn of(request: &Request) -> Arc<Self> {
        Arc::new(Self {
            method: request.method().clone(),
            path: request.uri().path().to_owned(),
            query: request.uri().query().unwrap_or_default().to_owned(),
            authorization: request.headers().get(header::AUTHORIZATION).cloned(),
            is_encrypted: request.extensions().get::<Encrypted>().is_some(),
        })
    }

    /// Runs a handler that may ask owners.
    pub(crate) async fn scope<F: Future>(self: Arc<Self>, handler: F) -> F::Output {
        ASKED.scope(self, handler).await
    }

    /// The same request for one partition; `None`: it was sent here by another broker already, or names the partition itself.
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

/// What a call on a partition came to; where another broker has the partition, what it came to there. `body`: what the request brought, if
/// it did.
///
/// Cancel safety: dropped, the owner may have done it or not.
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
    let Some(path) = asked.for_partition(&topic).filter(|_| !asked.is_encrypted) else {
        return elsewhere(topic, addresses);
    };
    let answered = tokio::time::timeout(ANSWER_MAX, ask(&asked, &addresses, &path, body)).await;
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

/// What an owner refused, as if it had been refused here.
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
            "{of}: {reason}; partitions of other brokers are asked with a token or a password only"
        )),
        _ => AdminError::Unavailable(format!("{of}: {reason}")),
    }
}

async fn ask(
    asked: &OriginalRequest,
    addresses: &BrokerAddresses,
    path: &str,
    body: Option<&Value>,
) -> io::Result<(StatusCode, Bytes)> {
    let plain = addresses.http_url.strip_prefix("http://");
    let host = plain.ok_or_else(|| io::Error::other("it has no address without TLS"))?;
    let host = host.trim_end_matches('/');
    let mut request = Request::builder()
        .method(asked.method.clone())
        .uri(path)
        .header(header::HOST, host);
    if let Some(shown) = &asked.authorization {
        request = request.header(header::AUTHORIZATION, shown);
    }
    if body.is_some() {
        request = request.header(header::CONTENT_TYPE, "application/json");
    }
    let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
    let request = request.body(body).map_err(io::Error::other)?;
    let stream = TcpStream::connect(host).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(io::Error::other)?;
    let answering = async {
        let answer = sender.send_request(request).await.map_err(io::Error::other)?;
        let status = answer.status();
        let body = to_bytes(Body::new(answer.into_body()), ANSWER_BYTES_MAX).await;
        Ok((status, body.map_err(io::Error::other)?))
    };
    // The connection has to be polled as long as the answer is read; the reader sees its end.
    let carrying = async {
        let _ = connection.await;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        answer = answering => answer,
        () = carrying => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(path: &str, query: &str) -> Option<String> {
        let asked = OriginalRequest {
            method: Method::GET,
            path: path.to_owned(),
            query: query.to_owned(),
            authorization: None,
            is_encrypted: false,
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
