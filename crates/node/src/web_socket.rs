//! The door for WebSockets: what settings say of it, and its way into the broker.

use std::sync::Arc;

use pharos_pulsar::InnerDoor;
use pharos_runtime::ShutdownToken;
use pharos_websocket::{DoorOptions, Sessions, WebSocketDoor};

use crate::broker::RunningBroker;
use crate::files::Files;
use crate::settings::Settings;

/// The door and its sessions, where settings want one.
pub(crate) fn open(
    settings: &Settings,
    broker: &RunningBroker,
    files: Files,
    stop: ShutdownToken,
) -> Option<(WebSocketDoor, Sessions)> {
    let wanted = &settings.web_socket;
    if !wanted.service_enabled {
        return None;
    }
    let options = DoorOptions {
        service_url: broker.pulsar.service_url.clone(),
        service_url_tls: broker.pulsar.service_url_tls.clone(),
        tls: settings.cluster.broker_tls.options(),
        enter: entrance(broker.inner_door()),
        unwritten: broker.unwritten(),
        sessions_max: files.web_sockets_max(settings),
        frame_bytes_max: usize::try_from(wanted.max_text_frame_size.0).unwrap_or(usize::MAX),
        // Clients look at the size of what they have compressed.
        payload_bytes_max: usize::try_from(4 * settings.protocol.max_message_size.0).unwrap_or(usize::MAX),
        idle_max: wanted.session_idle_timeout,
        ping_interval: wanted.ping_interval.as_option().copied(),
    };
    Some(WebSocketDoor::new(options, stop))
}

fn entrance(door: InnerDoor) -> pharos_websocket::EnterBroker {
    Arc::new(move |from, certificate| {
        let door = door.clone();
        Box::pin(async move { door.open(from, certificate).await })
    })
}
