//! Starting what is behind the front doors: metadata, storage, broker, Pulsar door.
//!
//! The only place that names the engines; everyone else sees traits.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::bail;

use pharos_broker::admin::AdminBackend;

use crate::settings::Settings;

/// A broker that takes clients.
pub(crate) struct RunningBroker {
    /// What the admin door asks.
    pub(crate) admin: Arc<dyn AdminBackend>,
    /// Where the Pulsar door listens; the real port when 0 was asked for.
    pub(crate) pulsar_address: SocketAddr,
}

impl RunningBroker {
    /// Stops accepting, closes clients properly, makes everything durable, releases the data directory.
    pub(crate) async fn stop(self) {
        drop(self.admin);
    }
}

/// Opens metadata and storage, then the broker, then its Pulsar door.
///
/// # Errors
/// The data directory cannot be used, or the address is taken.
// TODO: due when the broker can be started; until then the node has nothing to serve.
pub(crate) async fn start_broker(settings: &Settings) -> anyhow::Result<RunningBroker> {
    bail!(
        "this build has no broker yet; nothing to serve from {}",
        settings.data_dir.display()
    )
}
