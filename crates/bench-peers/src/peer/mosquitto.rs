//! Eclipse mosquitto, a broker of MQTT.

use std::path::Path;

use super::{Launch, Ports, local, words};
use crate::door::mqtt;

/// Source of its settings.
pub(super) const SOURCE: &str = "\
Defaults but for limits that are raised so that no case meets them. QoS 1: a message is acknowledged to its publisher when the broker has
it in memory, and sent again to a subscriber until that acknowledges it; sessions are clean, so nothing is kept for one that is away, and
nothing is written to the device. <https://mosquitto.org/man/mosquitto-conf-5.html>";

pub(super) fn launch(dir: &Path, home: &Path, ports: Ports) -> Launch {
    let port = ports.main;
    let text = format!(
        "listener {port} 127.0.0.1
allow_anonymous true
persistence false
max_connections -1
max_queued_messages 0
max_inflight_messages 0
log_type error
log_type warning
"
    );
    Launch {
        command: words(&[
            &dir.join("bin/mosquitto").to_string_lossy(),
            "-c",
            &home.join("mosquitto.conf").to_string_lossy(),
        ]),
        settings: Some(("mosquitto.conf", text)),
        before: None,
    }
}

pub(super) fn is_ready(ports: Ports) -> bool {
    mqtt::is_ready(local(ports.main))
}
