//! nats-server with JetStream.

use std::path::Path;

use super::{Launch, Ports, local, words};
use crate::door::nats;
use crate::spec::{Durability, Load};

/// Source of its settings.
pub(super) const SOURCE: &str = "\
Defaults but for limits that are raised so that no case meets them. `sync_interval: always` is what its documentation names for one
server whose acknowledged messages must outlive a power cut, and calls slow; the default, two minutes, is *system* and leaves the rest
to replicas. Streams have files and one replica; with `retention_s` they keep everything still: a limit by age deletes
what a consumer that falls behind has not had, and with retention by interest it took 576 synced messages a second. <https://docs.nats.io/running-a-nats-service/configuration#jetstream>";

pub(super) fn launch(dir: &Path, load: &Load, home: &Path, ports: Ports) -> Launch {
    let sync = match load.durability {
        Durability::Synced => "always",
        Durability::System => "2m",
    };
    let (main, data) = (ports.main, home.join("data"));
    let text = format!(
        "host: 127.0.0.1
port: {main}
max_connections: 200000
max_payload: 8MB
max_pending: 256MB
jetstream {{
  store_dir: \"{}\"
  max_mem: 2GB
  max_file: 200GB
  sync_interval: \"{sync}\"
}}
",
        data.display()
    );
    Launch {
        command: words(&[
            &dir.join("bin/nats-server").to_string_lossy(),
            "-c",
            &home.join("nats.conf").to_string_lossy(),
        ]),
        settings: Some(("nats.conf", text)),
        before: None,
    }
}

pub(super) fn is_ready(ports: Ports) -> bool {
    nats::is_ready(local(ports.main), true)
}
