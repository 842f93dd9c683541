//! No web page uses this API through the browser of someone on the machine.
//!
//! A page that posts to the port is told by its `Origin`, which is not the host that was asked. A name that was made to point to
//! this machine (DNS rebinding) is told by `Host`: over loopback that is an address of loopback, `localhost`, or a name that
//! settings allow.

use std::net::IpAddr;

use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use crate::error::ApiError;

/// Remote address of a request's connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CameFrom(pub(crate) IpAddr);

/// Names by which this machine may be asked over loopback, besides its own.
#[derive(Clone, Debug, Default)]
pub(crate) struct AllowedHosts(pub(crate) std::sync::Arc<[String]>);

/// Origins of pages that may open WebSockets. They may do nothing else here.
#[derive(Clone, Debug, Default)]
pub(crate) struct AllowedOrigins(pub(crate) std::sync::Arc<[String]>);

/// The way of every request: refuses those of foreign pages before anything is looked at.
pub(crate) async fn guard(request: Request, next: Next) -> Response {
    let found = request.extensions();
    let is_local = found
        .get::<CameFrom>()
        .is_some_and(|peer| peer.0.to_canonical().is_loopback());
    let allowed = found.get::<AllowedHosts>().cloned().unwrap_or_default();
    let origins = match request.uri().path().starts_with("/ws/") {
        true => found.get::<AllowedOrigins>().cloned().unwrap_or_default(),
        false => AllowedOrigins::default(),
    };
    match check(request.headers(), is_local, &allowed.0, &origins.0) {
        Ok(()) => next.run(request).await,
        Err(reason) => ApiError::new(StatusCode::FORBIDDEN, reason).into_response(),
    }
}

fn check(
    headers: &HeaderMap,
    is_local: bool,
    allowed: &[String],
    origins: &[String],
) -> Result<(), &'static str> {
    let text = |name| match headers.get(name) {
        None => Ok(None),
        Some(value) => value.to_str().map(Some).map_err(|_| "a header is no text"),
    };
    let host = text(header::HOST)?;
    if let Some(host) = host
        && is_local
        && !is_here(name_of(host), allowed)
    {
        return Err("this host name is not allowed over loopback; see the setting http_allowed_hosts");
    }
    let Some(origin) = text(header::ORIGIN)? else {
        return Ok(());
    };
    if origins.iter().any(|known| known.eq_ignore_ascii_case(origin)) {
        return Ok(());
    }
    let asked = origin.split_once("://").map(|(_, authority)| authority);
    match (asked, host) {
        (Some(asked), Some(host)) if asked.eq_ignore_ascii_case(host) => Ok(()),
        _ => Err("requests of other web pages are not answered"),
    }
}

/// A host without its port.
fn name_of(host: &str) -> &str {
    if let Some(rest) = host.strip_prefix('[') {
        return rest.split_once(']').map_or(rest, |(address, _)| address);
    }
    host.rsplit_once(':').map_or(host, |(name, _)| name)
}

fn is_here(name: &str, allowed: &[String]) -> bool {
    let is_loopback = name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    let plain = name.strip_suffix('.').unwrap_or(name);
    is_loopback
        || plain.eq_ignore_ascii_case("localhost")
        || allowed.iter().any(|known| known.eq_ignore_ascii_case(plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passes(host: Option<&str>, origin: Option<&str>, is_local: bool) -> bool {
        let mut headers = HeaderMap::new();
        for (name, value) in [(header::HOST, host), (header::ORIGIN, origin)] {
            if let Some(value) = value {
                headers.insert(name, value.parse().unwrap());
            }
        }
        check(&headers, is_local, &["pharos.test".to_owned()], &[]).is_ok()
    }

    #[test]
    fn a_page_whose_origin_settings_name_is_answered() {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, "broker.test:8080".parse().unwrap());
        headers.insert(header::ORIGIN, "https://app.test".parse().unwrap());
        let origins = ["https://app.test".to_owned()];
        assert!(check(&headers, false, &[], &origins).is_ok());
        assert!(
            check(&headers, true, &[], &origins).is_err(),
            "the host is another matter"
        );
        headers.insert(header::ORIGIN, "https://app.test:8443".parse().unwrap());
        assert!(check(&headers, false, &[], &origins).is_err());
    }

    #[test]
    fn over_loopback_only_names_of_this_machine_are_answered() {
        for host in [
            "localhost",
            "LOCALHOST:8080",
            "127.0.0.1:8080",
            "127.3.2.1",
            "[::1]:8080",
            "pharos.test:1",
        ] {
            assert!(passes(Some(host), None, true), "{host}");
        }
        for host in [
            "evil.test",
            "evil.test:8080",
            "localhost.evil.test",
            "10.0.0.1",
            "0.0.0.0:8080",
            "[::2]:1",
            "",
        ] {
            assert!(!passes(Some(host), None, true), "{host}");
            assert!(passes(Some(host), None, false), "{host}");
        }
        assert!(passes(None, None, true));
    }

    #[test]
    fn a_page_of_another_origin_is_not_answered() {
        let host = Some("127.0.0.1:8080");
        for is_local in [false, true] {
            assert!(passes(host, Some("http://127.0.0.1:8080"), is_local));
            for origin in [
                "http://evil.test",
                "null",
                "",
                "http://127.0.0.1:8081",
                "http://127.0.0.1",
                "file://",
            ] {
                assert!(!passes(host, Some(origin), is_local), "{origin}");
            }
            assert!(!passes(None, Some("http://127.0.0.1:8080"), is_local));
        }
    }
}
