//! What an address, a role, a connection and a tenant may have. The defaults are such as no honest client meets.

use pharos_admin::RequestRates;
use pharos_catalog::policy::PublishRateLimit;
use pharos_pulsar::ClientLimits;
use pharos_transport::QuotaLimits;

/// The bounds; 0 is none.
#[derive(Clone, Debug, PartialEq)]
pub struct LimitSettings {
    /// Connections of one address.
    pub max_connections_per_address: u32,
    /// New connections of one address, a second.
    pub max_connection_rate_per_address: u32,
    /// Connections of one role.
    pub max_connections_per_role: u32,
    /// New connections of one role, a second.
    pub max_connection_rate_per_role: u32,
    /// Requests of one role, a second.
    pub max_request_rate_per_role: u32,
    /// HTTP requests of one role, a second.
    pub max_http_request_rate_per_role: u32,
    /// Requests about one tenant, a second.
    pub max_request_rate_per_tenant: u32,
    /// HTTP requests about one tenant, a second.
    pub max_http_request_rate_per_tenant: u32,
    /// Connections that have a producer or consumer of one tenant.
    pub max_connections_per_tenant: u32,
    /// Producers of one connection.
    pub max_producers_per_connection: u32,
    /// Consumers of one connection.
    pub max_consumers_per_connection: u32,
    /// Watches of lists of topics of one connection.
    pub max_watchers_per_connection: u32,
    /// Lists of topics that one connection may ask for, a second.
    pub max_topic_list_rate_per_connection: u32,
    /// Requests of one connection that wait.
    pub max_requests_per_connection: u32,
    /// Producers of one tenant.
    pub max_producers_per_tenant: u32,
    /// Consumers of one tenant.
    pub max_consumers_per_tenant: u32,
    /// Topics of one tenant.
    pub max_topics_per_tenant: u32,
    /// Durable subscriptions of one tenant.
    pub max_subscriptions_per_tenant: u32,
    /// What may be published a second to all topics of one tenant.
    pub publish_rate_per_tenant: PublishRateLimit,
}

impl Default for LimitSettings {
    fn default() -> Self {
        Self {
            max_connections_per_address: 50_000,
            max_connection_rate_per_address: 2000,
            max_connections_per_role: 1_000_000,
            max_connection_rate_per_role: 10_000,
            max_request_rate_per_role: 100_000,
            max_http_request_rate_per_role: 5000,
            max_request_rate_per_tenant: 200_000,
            max_http_request_rate_per_tenant: 10_000,
            max_connections_per_tenant: 1_000_000,
            max_producers_per_connection: 100_000,
            max_consumers_per_connection: 100_000,
            max_watchers_per_connection: 1000,
            max_topic_list_rate_per_connection: 50,
            max_requests_per_connection: 5000,
            max_producers_per_tenant: 1_000_000,
            max_consumers_per_tenant: 1_000_000,
            max_topics_per_tenant: 1_000_000,
            max_subscriptions_per_tenant: 1_000_000,
            publish_rate_per_tenant: PublishRateLimit::default(),
        }
    }
}

impl LimitSettings {
    /// Of one address, at each door.
    pub(crate) fn per_address(&self) -> QuotaLimits {
        QuotaLimits {
            held_max: self.max_connections_per_address as usize,
            rate_max: self.max_connection_rate_per_address,
        }
    }

    /// For the HTTP server.
    pub(crate) fn of_http(&self) -> RequestRates {
        RequestRates {
            per_role: self.max_http_request_rate_per_role,
            per_tenant: self.max_http_request_rate_per_tenant,
        }
    }

    /// For the Pulsar server.
    pub(crate) fn of_pulsar(&self) -> ClientLimits {
        ClientLimits {
            producers_per_connection: self.max_producers_per_connection as usize,
            consumers_per_connection: self.max_consumers_per_connection as usize,
            watchers_per_connection: self.max_watchers_per_connection as usize,
            topic_list_rate_per_connection: self.max_topic_list_rate_per_connection,
            requests_per_connection: self.max_requests_per_connection,
            role: QuotaLimits {
                held_max: self.max_connections_per_role as usize,
                rate_max: self.max_connection_rate_per_role,
            },
            request_rate: self.max_request_rate_per_role,
            request_rate_per_tenant: self.max_request_rate_per_tenant,
            connections_per_tenant: self.max_connections_per_tenant as usize,
            producers_per_tenant: self.max_producers_per_tenant as usize,
            consumers_per_tenant: self.max_consumers_per_tenant as usize,
        }
    }
}
