//! The upgrade of an HTTP request, as RFC 6455 has it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode, Version};
use ring::digest;

use crate::UpgradeRefusal;

/// Constant that every answer is derived with.
const MAGIC: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// The answer to a request that asks for a WebSocket as it must.
///
/// # Errors
/// 426: it asks for none, or for another version; 400: it does not ask as it must.
pub(crate) fn accept<B>(request: &Request<B>) -> Result<Response<()>, UpgradeRefusal> {
    let headers = request.headers();
    let upgrades = has_word(headers, header::CONNECTION, "upgrade")
        && has_word(headers, header::UPGRADE, "websocket")
        && request.method() == Method::GET
        && request.version() == Version::HTTP_11;
    if !upgrades {
        let reason = "this is a place for WebSockets: the request must be an upgrade by GET over HTTP/1.1";
        return Err(UpgradeRefusal::new(StatusCode::UPGRADE_REQUIRED, reason));
    }
    if headers
        .get(header::SEC_WEBSOCKET_VERSION)
        .map(HeaderValue::as_bytes)
        != Some(b"13")
    {
        let reason = "the version of the WebSocket protocol must be 13";
        return Err(UpgradeRefusal::new(StatusCode::UPGRADE_REQUIRED, reason));
    }
    let mut keys = headers.get_all(header::SEC_WEBSOCKET_KEY).iter();
    let (Some(key), None) = (keys.next(), keys.next()) else {
        return Err(UpgradeRefusal::bad_request("one Sec-WebSocket-Key is needed"));
    };
    if !STANDARD.decode(key).is_ok_and(|bytes| bytes.len() == 16) {
        return Err(UpgradeRefusal::bad_request(
            "the Sec-WebSocket-Key is not 16 bytes in base64",
        ));
    }
    let mut answer = Response::new(());
    *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let accepted = HeaderValue::try_from(accepted(key.as_bytes()));
    let accepted = accepted.map_err(|error| UpgradeRefusal::bad_request(error.to_string()))?;
    let headers = answer.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(header::SEC_WEBSOCKET_ACCEPT, accepted);
    Ok(answer)
}

/// Answer to the key.
fn accepted(key: &[u8]) -> String {
    // The protocol has this digest; nothing rests on its strength.
    let mut context = digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY);
    context.update(key);
    context.update(MAGIC);
    STANDARD.encode(context.finish())
}

fn has_word(headers: &HeaderMap, name: HeaderName, word: &str) -> bool {
    headers.get_all(name).iter().any(|value| {
        let text = value.to_str().unwrap_or_default();
        text.split(',')
            .any(|known| known.trim().eq_ignore_ascii_case(word))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(change: impl FnOnce(&mut HeaderMap)) -> Result<Response<()>, UpgradeRefusal> {
        let mut request = Request::new(());
        let headers = request.headers_mut();
        for (name, value) in [
            (header::CONNECTION, "keep-alive, Upgrade"),
            (header::UPGRADE, "WebSocket"),
            (header::SEC_WEBSOCKET_VERSION, "13"),
            (header::SEC_WEBSOCKET_KEY, "dGhlIHNhbXBsZSBub25jZQ=="),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        change(headers);
        accept(&request)
    }

    #[test]
    fn the_example_of_the_rfc_is_answered_as_there() {
        let answer = asked(|_| {}).unwrap();
        assert_eq!(answer.status(), StatusCode::SWITCHING_PROTOCOLS);
        assert_eq!(
            answer.headers().get(header::SEC_WEBSOCKET_ACCEPT).unwrap(),
            "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
        );
    }

    #[test]
    fn what_does_not_ask_as_it_must_is_refused() {
        let status = |name: HeaderName, value: &'static str| {
            let refused = asked(|headers| _ = headers.insert(name, HeaderValue::from_static(value)));
            refused.unwrap_err().status.as_u16()
        };
        assert_eq!(status(header::CONNECTION, "close"), 426);
        assert_eq!(status(header::UPGRADE, "h2c"), 426);
        assert_eq!(status(header::SEC_WEBSOCKET_VERSION, "8"), 426);
        assert_eq!(status(header::SEC_WEBSOCKET_KEY, "short"), 400);
        let without = asked(|headers| _ = headers.remove(header::SEC_WEBSOCKET_KEY));
        assert_eq!(without.unwrap_err().status.as_u16(), 400);
    }
}
