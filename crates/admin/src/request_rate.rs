//! Request rates: of a role, or of an address without one; and of all callers together per tenant.

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;

use axum::extract::Request;
use axum::http::StatusCode;

use pharos_auth::Principal;
use pharos_transport::{Quota, QuotaError, QuotaLimits, Requester, network_of};

use crate::error::ApiError;
use crate::identify::identify;
use crate::origin::CameFrom;

/// Requests a second; 0 is no limit.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestRates {
    /// Requests per second of a role, or of an address without one.
    pub per_role: u32,
    /// About a tenant, by callers that may ask.
    pub per_tenant: u32,
}

/// The callers that were heard of lately, and the tenants that were asked about. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct RequestRate {
    callers: Arc<Quota<Requester>>,
    tenants: Arc<Quota<Arc<str>>>,
}

impl RequestRate {
    pub(crate) fn new(rates: RequestRates) -> Self {
        let limits = |rate_max| QuotaLimits {
            held_max: 0,
            rate_max,
        };
        Self {
            callers: Quota::new(limits(rates.per_role)),
            tenants: Quota::new(limits(rates.per_tenant)),
        }
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
        enter(&self.callers, requester, |error| {
            format!("{error} (limits.max_http_request_rate_per_role)")
        })
    }

    /// Counts one request about a tenant, by a caller that may make it: who may not uses up nothing of what is others'.
    ///
    /// # Errors
    /// 429.
    pub(crate) fn take_of_tenant(&self, tenant: &str) -> Result<(), ApiError> {
        enter(&self.tenants, tenant.into(), |error| {
            format!("requests about the tenant {tenant}: {error} (limits.max_http_request_rate_per_tenant)")
        })
    }
}

fn enter<K: Hash + Eq + Clone + Debug>(
    quota: &Arc<Quota<K>>,
    holder: K,
    reason: impl FnOnce(QuotaError) -> String,
) -> Result<(), ApiError> {
    // Only the rate counts, so what is held may go at once.
    match quota.enter(holder) {
        Ok(_) => Ok(()),
        Err(error) => Err(ApiError::new(StatusCode::TOO_MANY_REQUESTS, reason(error))),
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

/// Checks the request rate of an address, for requests that are authenticated elsewhere.
///
/// # Errors
/// 429.
pub(crate) fn admit_stranger(request: &Request) -> Result<(), ApiError> {
    let found = request.extensions();
    match (found.get::<RequestRate>(), found.get::<Principal>()) {
        (Some(rate), Some(stranger)) => rate.take(stranger, found.get().copied()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_has_one_allowance_everywhere_and_strangers_one_by_address() {
        let rate = RequestRate::new(RequestRates {
            per_role: 1,
            per_tenant: 0,
        });
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

    #[test]
    fn a_tenant_has_one_allowance_for_all_who_ask() {
        let rate = RequestRate::new(RequestRates {
            per_role: 0,
            per_tenant: 1,
        });
        let free = |tenant: &str| {
            (0..100)
                .take_while(|_| rate.take_of_tenant(tenant).is_ok())
                .count()
        };
        assert!(free("a") < 100);
        assert!(free("b") > 0);
        let refused = rate.take_of_tenant("a").unwrap_err();
        assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
        assert!(
            refused.reason.contains("limits.max_http_request_rate_per_tenant"),
            "{}",
            refused.reason
        );
    }
}
