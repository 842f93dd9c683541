//! Authentication of a request from its headers.
//!
//! ```text
//!   Authorization: Bearer <token> │ Basic <user:password in base64> │ none, and a client certificate
//!   X-Original-Principal: original principal behind a proxy
//! ```
//! A request with refused credentials counts as one without: operations that need none are answered, all others with
//! 401.

use std::sync::Arc;

use axum::extract::Request;
use axum::http::{HeaderMap, header};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use pharos_auth::{Access, Principal};
use pharos_identity::{Authentication, Credentials, Failure};
use pharos_transport::{PeerCertificate, network_of};

use crate::origin::CameFrom;

/// By which a proxy names its client.
pub(crate) const ORIGINAL_PRINCIPAL: &str = "x-original-principal";

/// Finds out who sends a request, and puts the [`Principal`] in the place of the one without a role.
pub(crate) async fn identify(request: &mut Request) {
    let found = request.extensions();
    let (Some(authentication), Some(stranger)) = (found.get::<Authentication>(), found.get::<Principal>())
    else {
        return;
    };
    if !authentication.is_on() {
        return;
    }
    let certificate = found.get::<Arc<PeerCertificate>>();
    let trusted = certificate.filter(|shown| shown.is_trusted);
    let certificate = trusted
        .and_then(|shown| shown.common_name.as_deref())
        .map(Arc::from);
    let from = found.get::<CameFrom>().map(|peer| network_of(peer.0));
    let shown = shown_in(request.headers())
        .with_certificate(certificate)
        .from(from);
    let (authentication, stranger) = (authentication.clone(), stranger.clone());
    match authentication.authenticate(of_certificate(shown)).await {
        Ok(identity) => {
            let original = request.headers().get(ORIGINAL_PRINCIPAL);
            let original = original.and_then(|name| name.to_str().ok()).map(Into::into);
            let who = stranger.with_role(identity.role).on_behalf_of(original);
            request.extensions_mut().insert(who);
        }
        Err(failure) => {
            // Who shows nothing is told of when it asks for something that needs a role.
            if failure != Failure::Missing
                && let Some(access) = request.extensions().get::<Access>()
            {
                access.note_authentication(&stranger, Some(&failure.to_string()));
            }
            tracing::debug!(peer = %stranger.address(), reason = %failure, "an HTTP request has no role");
        }
    }
}

/// Credentials in the headers. An unreadable header yields credentials that no provider accepts.
pub(crate) fn shown_in(headers: &HeaderMap) -> Credentials {
    let Some(value) = headers.get(header::AUTHORIZATION) else {
        return Credentials::default();
    };
    let unknown = || Credentials {
        method: "unknown".to_owned(),
        ..Credentials::default()
    };
    let Ok(value) = value.to_str() else {
        return unknown();
    };
    match value.split_once(' ') {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => Credentials::token(token.trim()),
        Some((scheme, pair)) if scheme.eq_ignore_ascii_case("basic") => match STANDARD.decode(pair.trim()) {
            Ok(pair) => Credentials::basic(pair),
            Err(_) => unknown(),
        },
        _ => unknown(),
    }
}

/// Credentials of the client certificate, if there are no others.
fn of_certificate(shown: Credentials) -> Credentials {
    match (&shown.certificate_role, shown.method.as_str()) {
        (Some(_), "") => Credentials {
            method: "tls".to_owned(),
            ..shown
        },
        _ => shown,
    }
}
