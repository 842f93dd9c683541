//! Limits of one connection, one role and one tenant, and the tables that count their use.
//!
//! No honest client reaches the limits; they keep a dishonest one from taking the memory of all others. A connection
//! counts its own resources; those of a role or a tenant on all connections are counted here.

use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pharos_auth::Principal;
use pharos_transport::{Quota, QuotaHold, QuotaLimits, Requester, network_of};
use pharos_types::TopicName;
use pharos_wire::answer::Refusal;
use pharos_wire::proto::ServerError;

use crate::tenant_connections::{TenantConnectionHold, TenantConnections};

/// Bytes of a frame from a client that is not let in yet: CONNECT and what it shows.
pub(crate) const CONNECT_BYTES_MAX: usize = 64 << 10;

/// The bounds. 0 is none.
#[derive(Clone, Debug)]
pub struct ClientLimits {
    /// Producers of a connection, those that are being made among them.
    pub producers_per_connection: usize,
    /// Consumers of a connection, those that are being made among them.
    pub consumers_per_connection: usize,
    /// Watches of lists of topics of a connection.
    pub watchers_per_connection: usize,
    /// Lists of topics that a connection may ask for a second; more wait.
    pub topic_list_rate_per_connection: u32,
    /// Requests of a connection that wait for their answer; with more it is not read.
    pub requests_per_connection: u32,
    /// Connections of a role, and new ones a second.
    pub role: QuotaLimits,
    /// Requests a second of a role, or of an address where clients have none; more wait.
    pub request_rate: u32,
    /// Requests a second that concern a tenant, by clients that may make them; more wait.
    pub request_rate_per_tenant: u32,
    /// Connections that have a producer or consumer on a topic of a tenant.
    pub connections_per_tenant: usize,
    /// Producers on topics of a tenant.
    pub producers_per_tenant: usize,
    /// Consumers on topics of a tenant.
    pub consumers_per_tenant: usize,
}

impl Default for ClientLimits {
    fn default() -> Self {
        Self {
            producers_per_connection: 100_000,
            consumers_per_connection: 100_000,
            watchers_per_connection: 1000,
            topic_list_rate_per_connection: 50,
            requests_per_connection: 5000,
            role: QuotaLimits {
                held_max: 1_000_000,
                rate_max: 10_000,
            },
            request_rate: 100_000,
            request_rate_per_tenant: 200_000,
            connections_per_tenant: 1_000_000,
            producers_per_tenant: 1_000_000,
            consumers_per_tenant: 1_000_000,
        }
    }
}

/// Count against the quota of a role or a tenant, until it is dropped.
pub(crate) type LimitHold = QuotaHold<Arc<str>>;

/// A producer or consumer as its tenant counts it, and its connection with it; until it is dropped.
#[derive(Debug)]
pub(crate) struct TenantHold {
    counted: LimitHold,
    _connection: TenantConnectionHold,
}

impl TenantHold {
    /// The tenant.
    pub(crate) fn tenant(&self) -> &Arc<str> {
        self.counted.holder()
    }
}

/// The bounds, and what is counted for them.
pub(crate) struct Limiter {
    pub(crate) limits: ClientLimits,
    roles: Arc<Quota<Arc<str>>>,
    requests: Arc<Quota<Requester>>,
    tenant_requests: Arc<Quota<Arc<str>>>,
    tenant_connections: Arc<Quota<Arc<str>>>,
    producers: Arc<Quota<Arc<str>>>,
    consumers: Arc<Quota<Arc<str>>>,
    lists_delayed: AtomicU64,
}

impl Limiter {
    pub(crate) fn new(limits: ClientLimits) -> Self {
        let of_tenant = |held_max| {
            Quota::new(QuotaLimits {
                held_max,
                rate_max: 0,
            })
        };
        let rate = |rate_max| QuotaLimits {
            held_max: 0,
            rate_max,
        };
        Self {
            roles: Quota::new(limits.role),
            requests: Quota::new(rate(limits.request_rate)),
            tenant_requests: Quota::new(rate(limits.request_rate_per_tenant)),
            tenant_connections: of_tenant(limits.connections_per_tenant),
            producers: of_tenant(limits.producers_per_tenant),
            consumers: of_tenant(limits.consumers_per_tenant),
            lists_delayed: AtomicU64::new(0),
            limits,
        }
    }

    /// A connection of a role; of the one that a proxy asks for. Who has none counts nowhere.
    pub(crate) fn connection(&self, who: &Principal) -> Result<Option<LimitHold>, Refusal> {
        let Some(role) = who.original().or(who.role()) else {
            return Ok(None);
        };
        let refused = |error| {
            let text = format!(
                "connections of the role {role}: {error} (limits.max_connections_per_role, limits.max_connection_rate_per_role)"
            );
            Refusal::new(ServerError::NotAllowedError, text)
        };
        self.roles.enter(role.clone()).map(Some).map_err(refused)
    }

    /// Returns the time that a request has to wait because its role exceeds the request rate; for a proxy, the
    /// original role. A client without a role counts with all of its address (`/ip:port`).
    pub(crate) fn request(&self, who: &Principal, address: &str) -> Duration {
        if self.limits.request_rate == 0 {
            return Duration::ZERO;
        }
        let requester = match who.original().or(who.role()) {
            Some(role) => Some(Requester::Role(role.clone())),
            None => network_of_client(address).map(Requester::Network),
        };
        requester.map_or(Duration::ZERO, |requester| self.requests.turn(requester))
    }

    /// Counts a request that concerns a tenant: how long it would have to wait because the tenant's clients ask too fast.
    pub(crate) fn request_of_tenant(&self, tenant: &str) -> Duration {
        if self.limits.request_rate_per_tenant == 0 {
            return Duration::ZERO;
        }
        self.tenant_requests.turn(tenant.into())
    }

    /// A request for a list of topics waits because its connection asks too fast.
    pub(crate) fn lists_delayed(&self) {
        self.lists_delayed.fetch_add(1, Ordering::Relaxed);
    }

    /// Requests for lists of topics that had to wait, since the start.
    pub(crate) fn lists_delayed_count(&self) -> u64 {
        self.lists_delayed.load(Ordering::Relaxed)
    }

    /// A producer on a topic, beside as many as the connection has.
    pub(crate) fn producer(
        &self,
        connection: &Rc<TenantConnections>,
        topic: &TopicName,
        present: usize,
    ) -> Result<TenantHold, Refusal> {
        within(
            "producers",
            "limits.max_producers_per_connection",
            present,
            self.limits.producers_per_connection,
        )?;
        let counted = of_tenant(
            &self.producers,
            topic,
            "producers",
            "limits.max_producers_per_tenant",
        )?;
        self.counted(connection, counted)
    }

    /// A consumer on a topic, beside as many as the connection has.
    pub(crate) fn consumer(
        &self,
        connection: &Rc<TenantConnections>,
        topic: &TopicName,
        present: usize,
    ) -> Result<TenantHold, Refusal> {
        within(
            "consumers",
            "limits.max_consumers_per_connection",
            present,
            self.limits.consumers_per_connection,
        )?;
        let counted = of_tenant(
            &self.consumers,
            topic,
            "consumers",
            "limits.max_consumers_per_tenant",
        )?;
        self.counted(connection, counted)
    }

    /// With its connection.
    fn counted(&self, connection: &Rc<TenantConnections>, counted: LimitHold) -> Result<TenantHold, Refusal> {
        let tenant = counted.holder();
        let connection = connection
            .enter(&self.tenant_connections, tenant)
            .map_err(|error| {
                let text = format!(
                    "connections of the tenant {tenant}: {error} (limits.max_connections_per_tenant)"
                );
                Refusal::new(ServerError::NotAllowedError, text)
            })?;
        Ok(TenantHold {
            counted,
            _connection: connection,
        })
    }

    /// A watch, beside as many as the connection has.
    pub(crate) fn watcher(&self, present: usize) -> Result<(), Refusal> {
        let most = self.limits.watchers_per_connection;
        within(
            "topic list watchers",
            "limits.max_watchers_per_connection",
            present,
            most,
        )
    }
}

/// Returns the network that counts as a client's address; `printed` is `/ip:port`, as stats show it.
pub(crate) fn network_of_client(printed: &str) -> Option<IpAddr> {
    let address: SocketAddr = printed.strip_prefix('/')?.parse().ok()?;
    Some(network_of(address.ip()))
}

fn within(what: &str, setting: &str, present: usize, most: usize) -> Result<(), Refusal> {
    if most == 0 || present < most {
        return Ok(());
    }
    let text = format!("more than {most} {what} on one connection ({setting})");
    Err(Refusal::new(ServerError::NotAllowedError, text))
}

fn of_tenant(
    quota: &Arc<Quota<Arc<str>>>,
    topic: &TopicName,
    what: &str,
    setting: &str,
) -> Result<LimitHold, Refusal> {
    let tenant = topic.namespace().tenant();
    quota.enter(tenant.into()).map_err(|error| {
        let text = format!("{what} of the tenant {tenant}: {error} ({setting})");
        Refusal::new(ServerError::NotAllowedError, text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic(name: &str) -> TopicName {
        name.parse().unwrap()
    }

    #[test]
    fn a_refusal_names_the_setting() {
        let limiter = Limiter::new(ClientLimits {
            consumers_per_connection: 2,
            consumers_per_tenant: 3,
            ..ClientLimits::default()
        });
        let connection = Rc::<TenantConnections>::default();
        let enter = |name: &str, present| limiter.consumer(&connection, &topic(name), present);
        let first = [
            enter("persistent://a/n/t", 0).unwrap(),
            enter("persistent://a/n/t", 1).unwrap(),
        ];
        let refused = enter("persistent://a/n/t", 2).unwrap_err();
        assert!(
            refused.message.contains("limits.max_consumers_per_connection"),
            "{}",
            refused.message
        );
        let _third = enter("persistent://a/m/t", 0).unwrap();
        let refused = enter("persistent://a/n/u", 0).unwrap_err();
        assert!(
            refused.message.contains("limits.max_consumers_per_tenant"),
            "{}",
            refused.message
        );
        assert!(enter("persistent://b/n/t", 0).is_ok());
        drop(first);
        assert!(enter("persistent://a/n/u", 0).is_ok());
    }

    #[test]
    fn requests_of_a_role_count_together_and_those_without_one_by_address() {
        let limiter = Limiter::new(ClientLimits {
            request_rate: 1,
            ..ClientLimits::default()
        });
        let role = |role: &str| Principal::anonymous("/a").with_role(role.into());
        let free = |who: &Principal, address: &str| {
            let turns = (0..100).take_while(|_| limiter.request(who, address).is_zero());
            turns.count()
        };
        assert!(free(&role("car"), "/192.0.2.1:1") < 100);
        assert_eq!(free(&role("car"), "/192.0.2.2:1"), 0);
        let behind = role("proxy").on_behalf_of(Some("car".into()));
        assert_eq!(free(&behind, "/192.0.2.2:1"), 0);
        assert!(free(&role("van"), "/192.0.2.1:1") > 0);
        let stranger = Principal::anonymous("/a");
        assert!(free(&stranger, "/192.0.2.1:1") < 100);
        assert_eq!(free(&stranger, "/192.0.2.1:2"), 0);
        assert!(free(&stranger, "/192.0.2.2:1") > 0);
    }

    #[test]
    fn requests_of_a_tenant_count_together_unless_there_is_no_limit() {
        let free = |limiter: &Limiter, tenant: &str| {
            let turns = (0..100).take_while(|_| limiter.request_of_tenant(tenant).is_zero());
            turns.count()
        };
        let of = |request_rate_per_tenant| {
            Limiter::new(ClientLimits {
                request_rate_per_tenant,
                ..ClientLimits::default()
            })
        };
        let limiter = of(1);
        assert!(free(&limiter, "a") < 100);
        assert_eq!(free(&limiter, "a"), 0);
        assert!(free(&limiter, "b") > 0);
        assert_eq!(free(&of(0), "a"), 100);
    }

    #[test]
    fn connections_count_for_the_one_that_is_asked_for() {
        let limiter = Limiter::new(ClientLimits {
            role: QuotaLimits {
                held_max: 1,
                rate_max: 0,
            },
            ..ClientLimits::default()
        });
        let role = |role: &str| Principal::anonymous("/a").with_role(role.into());
        let _first = limiter.connection(&role("car")).unwrap();
        assert!(limiter.connection(&role("car")).is_err());
        let behind = role("proxy").on_behalf_of(Some("car".into()));
        assert!(limiter.connection(&behind).is_err());
        let other = role("proxy").on_behalf_of(Some("van".into()));
        assert!(limiter.connection(&other).is_ok());
        assert!(limiter.connection(&Principal::anonymous("/a")).unwrap().is_none());
    }
}
