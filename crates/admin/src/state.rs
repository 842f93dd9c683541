//! What every handler has at hand.

use std::sync::Arc;

use pharos_auth::Access;
use pharos_broker::admin::AdminBackend;
use pharos_catalog::Catalog;

/// What the door says about itself.
#[derive(Clone, Debug)]
pub struct AdminOptions {
    /// What says who may do what.
    pub access: Access,
    /// Name of this cluster.
    pub cluster_name: String,
    /// `pulsar://host:port` as clients reach it.
    pub broker_url: String,
    /// `http://host:port` as clients reach it.
    pub http_url: String,
    /// Settings in force as key and value, for `…/brokers/configuration/runtime`.
    pub settings: Vec<(String, String)>,
    /// Whether the metrics page shows single topics.
    pub topic_metrics: bool,
    /// Whether a namespace may be deleted together with its topics.
    pub force_delete_namespace: bool,
    /// Whether a tenant may be deleted together with its namespaces; needs the other as well when it has some.
    pub force_delete_tenant: bool,
}

impl AdminOptions {
    /// `host:port` of the HTTP door, which names a broker among brokers.
    #[must_use]
    pub fn broker_id(&self) -> &str {
        self.http_url
            .split_once("://")
            .map_or(self.http_url.as_str(), |(_, rest)| rest)
    }
}

/// The door's state. Cheap to clone.
#[derive(Clone)]
pub struct Admin {
    /// What the broker does.
    pub(crate) backend: Arc<dyn AdminBackend>,
    /// Stored facts.
    pub(crate) catalog: Catalog,
    /// About itself.
    pub(crate) options: Arc<AdminOptions>,
}

impl Admin {
    /// A door to this broker.
    #[must_use]
    pub fn new(backend: Arc<dyn AdminBackend>, catalog: Catalog, options: AdminOptions) -> Self {
        Self {
            backend,
            catalog,
            options: Arc::new(options),
        }
    }
}
