//! How fast one caller may ask: a role, or the address of callers without one.

use std::sync::Arc;

use axum::extract::Request;
use axum::http::StatusCode;

use pharos_auth::Principal;
use pharos_transport::{Quota, QuotaLimits, Requester, network_of};

use crate::error::ApiError;
use crate::identify::identify;
use crate::origin::CameFrom;

/// The callers that were heard of lately. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct RequestRate(Arc<Quota<Requester>>);

impl RequestRate {
    /// With so many requests a second for each; 0 is no limit.
    pub(crate) fn new(rate_max: u32) -> Self {
        Self(Quota::new(QuotaLimits {
            held_max: 0,
            rate_max,
        }))
    }

    /// Counts one request of `who`; the role that a proxy asks for.
    fn take(&self, who: &Principal, from: Option<CameFrom>) -> Result<(), ApiError> {
        let requester = match who.original().or(who.role()) {
            Some(role) => Requester::Role(role.clone()),
            None => match from {
                Some(CameFrom(address)) => Requester::Network(network_of(address)),
                None => return Ok(()),
            },
        };
        // Only the rate counts, so what is held may go at once.
        match self.0.enter(requester) {
            Ok(_) => Ok(()),
            Err(error) => {
                let reason = format!("{error} (limits.max_http_request_rate_per_role)");
                Err(ApiError::new(StatusCode::TOO_MANY_REQUESTS, reason))
            }
        }
    }
}

/// Finds out who sends a request, and whether that one asks too fast.
///
/// # Errors
/// 429.
pub(crate) async fn admit(request: &mut Request) -> Result<(), ApiError> {
    identify(request).await;
    let found = request.extensions();
    match (found.get::<RequestRate>(), found.get::<Principal>()) {
        (Some(rate), Some(who)) => rate.take(who, found.get().copied()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_has_one_allowance_everywhere_and_strangers_one_by_address() {
        let rate = RequestRate::new(1);
        let free = |who: &Principal, from: &str| {
            let from = CameFrom(from.parse().unwrap());
            (0..100)
                .take_while(|_| rate.take(who, Some(from)).is_ok())
                .count()
        };
        let role = |role: &str| Principal::anonymous("/a").with_role(role.into());
        assert!(free(&role("car"), "192.0.2.1") < 100);
        assert_eq!(free(&role("car"), "192.0.2.2"), 0);
        let behind = role("proxy").on_behalf_of(Some("car".into()));
        assert_eq!(free(&behind, "192.0.2.2"), 0);
        assert!(free(&role("van"), "192.0.2.1") > 0);
        let stranger = Principal::anonymous("/a");
        assert!(free(&stranger, "192.0.2.1") < 100);
        assert_eq!(free(&stranger, "192.0.2.1"), 0);
        assert!(free(&stranger, "192.0.2.2") > 0);
        let refused = rate.take(&stranger, Some(CameFrom("192.0.2.1".parse().unwrap())));
        let refused = refused.unwrap_err();
        assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
        assert!(
            refused.reason.contains("limits.max_http_request_rate_per_role"),
            "{}",
            refused.reason
        );
    }
}
