//! The place where WebSockets are opened: upgrades pass the same guard as every other request, and go on to the [`WebSocketDoor`].
//!
//! Who a caller is and what it may do is asked by the broker, to whom the session shows what the caller has shown: an
//! `Authorization` header, or the parameter `token` where there is none, which is what browsers can do; or its certificate.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::any;
use pharos_transport::PeerCertificate;
use pharos_websocket::{Caller, ShownCredentials, WebSocketDoor};

use crate::error::ApiError;
use crate::identify::{ORIGINAL_PRINCIPAL, shown_in};
use crate::redirect::Encrypted;
use crate::request_rate::admit_stranger;
use crate::server::PeerAt;
use crate::state::Admin;

/// Adds the place, if there is one; otherwise there is nothing at it.
pub(crate) fn mount(router: Router<Admin>, door: Option<WebSocketDoor>) -> Router<Admin> {
    match door {
        Some(door) => router.route(
            "/ws/{*rest}",
            any(move |request| {
                let door = door.clone();
                async move { open(&door, request).await }
            }),
        ),
        None => router,
    }
}

async fn open(door: &WebSocketDoor, request: Request) -> Response {
    if let Err(refused) = admit_stranger(&request) {
        return refused.into_response();
    }
    let Some(caller) = caller(&request) else {
        let reason = "the request came by no connection";
        return ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, reason).into_response();
    };
    match door.answer(request, &caller).await {
        Ok(answer) => answer.map(|()| Body::empty()),
        Err(refusal) => {
            let is_other_version = refusal.status == StatusCode::UPGRADE_REQUIRED;
            let mut answer = ApiError::new(refusal.status, refusal.reason).into_response();
            if is_other_version {
                let headers = answer.headers_mut();
                headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
                headers.insert(header::SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
            }
            answer
        }
    }
}

/// Caller of a request, with its credentials.
fn caller(request: &Request) -> Option<Caller> {
    let (found, headers) = (request.extensions(), request.headers());
    let credentials = shown_in(headers);
    let token = request.uri().query().and_then(WebSocketDoor::token_in);
    let (method, data) = match (credentials.method.is_empty(), token) {
        (true, Some(token)) => ("token".to_owned(), token.into_bytes()),
        _ => (credentials.method, credentials.data),
    };
    let original = headers
        .get(ORIGINAL_PRINCIPAL)
        .and_then(|name| name.to_str().ok());
    Some(Caller {
        address: found.get::<PeerAt>()?.0,
        is_encrypted: found.get::<Encrypted>().is_some(),
        shown: ShownCredentials {
            method,
            data: data.into(),
            original: original.map(str::to_owned),
            certificate: found.get::<Arc<PeerCertificate>>().cloned(),
        },
    })
}
