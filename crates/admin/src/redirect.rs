//! Calls for a topic that another broker serves: 307 to the same path there, with `authoritative=true`, as Pulsar does.
//!
//! Known when the broker was asked for the topic's home, so no handler knows of it. A call that was sent here by another broker
//! is not sent on, or two brokers that disagree would send it to and fro; neither is one whose path names another topic than
//! the one elsewhere: a partitioned topic as a whole has no one broker. A bundle has one, whose handlers say so themselves.

use axum::http::header::LOCATION;
use axum::http::{HeaderValue, StatusCode, Uri};
use axum::response::Response;

use crate::error::Redirect;
use crate::paths::Subject;

/// A request's extension: it came encrypted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Encrypted;

/// Turns an answer that says [`Redirect`] into one that clients follow, or into 503. A call that came encrypted is sent nowhere
/// where it would not be.
pub(crate) fn follow(
    mut answer: Response,
    uri: &Uri,
    subject: &Subject,
    encrypted: Option<Encrypted>,
) -> Response {
    if let Some(redirect) = answer.extensions_mut().remove::<Redirect>() {
        let is_asked_for = match (subject, &redirect.topic) {
            (Subject::Topic(asked) | Subject::Subscription(asked, _), Some(topic)) => asked == topic,
            (Subject::Namespace(_), None) => true,
            _ => false,
        };
        let base = match encrypted {
            None => Some(&redirect.http_url),
            Some(Encrypted) => redirect.http_url_tls.as_ref(),
        };
        let location = base.filter(|_| is_asked_for).and_then(|base| location(uri, base));
        match location {
            Some(location) => _ = answer.headers_mut().insert(LOCATION, location),
            None => *answer.status_mut() = StatusCode::SERVICE_UNAVAILABLE,
        }
    }
    answer
}

/// Location header; `None` if a redirect would not help.
fn location(uri: &Uri, http_url: &str) -> Option<HeaderValue> {
    let query = uri.query().unwrap_or_default();
    let mut members = query.split('&').filter(|member| !member.is_empty());
    if members.any(|member| member == "authoritative=true") {
        return None;
    }
    let members = query
        .split('&')
        .filter(|member| !member.is_empty() && !member.starts_with("authoritative="));
    let query: Vec<&str> = members.chain(["authoritative=true"]).collect();
    let (base, path) = (http_url.trim_end_matches('/'), uri.path());
    HeaderValue::try_from(format!("{base}{path}?{}", query.join("&"))).ok()
}

#[cfg(test)]
mod tests {
    use axum::response::IntoResponse as _;
    use pharos_types::TopicName;

    use super::*;

    /// Status and place that a call is answered with when `topic` is elsewhere.
    fn answered(path: &str, asked: &str, topic: &str) -> Option<(u16, Option<String>)> {
        answered_over(None, Some("https://other:8443"), path, asked, topic)
    }

    /// Broker address for a call that came encrypted or not, given the other broker's TLS support.
    fn answered_over(
        encrypted: Option<Encrypted>,
        http_url_tls: Option<&str>,
        path: &str,
        asked: &str,
        topic: &str,
    ) -> Option<(u16, Option<String>)> {
        let (uri, asked): (Uri, TopicName) = (path.parse().ok()?, asked.parse().ok()?);
        let mut answer = StatusCode::TEMPORARY_REDIRECT.into_response();
        answer.extensions_mut().insert(Redirect {
            topic: Some(topic.parse().ok()?),
            http_url: "http://other:8080".to_owned(),
            http_url_tls: http_url_tls.map(str::to_owned),
        });
        let answer = follow(answer, &uri, &Subject::Topic(asked), encrypted);
        let location = answer
            .headers()
            .get(LOCATION)
            .and_then(|place| place.to_str().ok());
        Some((answer.status().as_u16(), location.map(str::to_owned)))
    }

    #[test]
    fn a_call_goes_to_the_same_path_once() {
        let topic = "persistent://t/n/a";
        let path = "/admin/v2/persistent/t/n/a/stats";
        let there = format!("http://other:8080{path}?authoritative=true");
        assert_eq!(answered(path, topic, topic), Some((307, Some(there))));
        let asked = format!("{path}?authoritative=false&getPreciseBacklog=true");
        let there = format!("http://other:8080{path}?getPreciseBacklog=true&authoritative=true");
        assert_eq!(answered(&asked, topic, topic), Some((307, Some(there))));
        let asked = format!("{path}?authoritative=true");
        assert_eq!(answered(&asked, topic, topic), Some((503, None)));
    }

    #[test]
    fn a_call_that_came_encrypted_is_not_sent_where_it_would_not_be() {
        let (topic, path) = ("persistent://t/n/a", "/admin/v2/persistent/t/n/a/stats");
        let there = format!("https://other:8443{path}?authoritative=true");
        let tls = Some("https://other:8443");
        let answered = answered_over(Some(Encrypted), tls, path, topic, topic);
        assert_eq!(answered, Some((307, Some(there))));
        assert_eq!(
            answered_over(Some(Encrypted), None, path, topic, topic),
            Some((503, None))
        );
    }

    #[test]
    fn a_partitioned_topic_as_a_whole_is_not_sent_to_one_partition() {
        let path = "/admin/v2/persistent/t/n/a/partitioned-stats";
        let outcome = answered(path, "persistent://t/n/a", "persistent://t/n/a-partition-1");
        assert_eq!(outcome, Some((503, None)));
    }
}
