//! The tenants that a connection has something of, each of which counts it.
//!
//! A connection names no tenant: it counts for one from its first producer or consumer there until its last is gone.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use pharos_transport::{Quota, QuotaError};

use crate::limits::LimitHold;

/// Tenants for which one connection counts.
#[derive(Debug, Default)]
pub(crate) struct TenantConnections(RefCell<HashMap<Arc<str>, Seat>>);

/// The connection, as a tenant counts it.
#[derive(Debug)]
struct Seat {
    _counted: LimitHold,
    /// Producers and consumers.
    users: usize,
}

/// A producer or consumer for which the connection counts.
#[derive(Debug)]
pub(crate) struct TenantConnectionHold {
    connections: Rc<TenantConnections>,
    tenant: Arc<str>,
}

impl TenantConnections {
    /// Adds a producer or consumer of a tenant; the first one counts the connection in `quota`.
    ///
    /// # Errors
    /// [`QuotaError`]: the tenant has enough connections. Nothing changed.
    pub(crate) fn enter(
        self: &Rc<Self>,
        quota: &Arc<Quota<Arc<str>>>,
        tenant: &str,
    ) -> Result<TenantConnectionHold, QuotaError> {
        let mut seats = self.0.borrow_mut();
        let tenant: Arc<str> = tenant.into();
        match seats.get_mut(&tenant) {
            Some(seat) => seat.users += 1,
            None => {
                let seat = Seat {
                    _counted: quota.enter(Arc::clone(&tenant))?,
                    users: 1,
                };
                seats.insert(Arc::clone(&tenant), seat);
            }
        }
        let connections = Rc::clone(self);
        Ok(TenantConnectionHold { connections, tenant })
    }
}

impl Drop for TenantConnectionHold {
    fn drop(&mut self) {
        let mut seats = self.connections.0.borrow_mut();
        if let Some(seat) = seats.get_mut(&self.tenant) {
            seat.users -= 1;
            if seat.users == 0 {
                seats.remove(&self.tenant);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use pharos_transport::QuotaLimits;

    use super::*;

    #[test]
    fn a_connection_counts_once_for_a_tenant_as_long_as_it_has_something_there() {
        let quota = Quota::new(QuotaLimits {
            held_max: 1,
            rate_max: 0,
        });
        let (one, other) = (
            Rc::<TenantConnections>::default(),
            Rc::<TenantConnections>::default(),
        );
        let first = one.enter(&quota, "a").unwrap();
        let second = one.enter(&quota, "a").unwrap();
        assert!(matches!(other.enter(&quota, "a"), Err(QuotaError::TooMany(1))));
        let elsewhere = other.enter(&quota, "b").unwrap();
        drop(first);
        assert!(other.enter(&quota, "a").is_err(), "its second is still there");
        drop(second);
        assert!(one.0.borrow().is_empty());
        let _third = other.enter(&quota, "a").unwrap();
        assert!(one.enter(&quota, "b").is_err());
        drop(elsewhere);
        assert!(one.enter(&quota, "b").is_ok());
    }
}
