//! CONNECT: the first command, and the only one that may be first.

use pharos_auth::Principal;
use pharos_wire::proto::FeatureFlags;
use pharos_wire::{Command, PROTOCOL_VERSION, answer};

use crate::connection::{Connection, Peer};

/// Handles the first command of a connection.
pub(super) fn handle_first(connection: &Connection, command: Command) -> bool {
    let Command::Connect(connect) = command else {
        tracing::warn!(peer = %connection.address, command = ?command.command_type(), "closing a connection that did not say CONNECT first");
        return false;
    };
    let protocol_version = connect.protocol_version.unwrap_or(0).clamp(0, PROTOCOL_VERSION);
    *connection.peer.borrow_mut() = Some(Peer {
        principal: Principal::anonymous(connection.address.clone()),
        protocol_version,
        client_version: clip(&connect.client_version).into(),
    });
    connection.shard.tally().handshake(true);
    let flags = FeatureFlags {
        supports_auth_refresh: Some(false),
        supports_broker_entry_metadata: Some(false),
        supports_partial_producer: Some(false),
        supports_topic_watchers: Some(true),
        supports_get_partitioned_metadata_without_auto_creation: Some(true),
        supports_repl_dedup_by_lid_and_eid: Some(false),
        supports_topic_watcher_reconcile: Some(true),
    };
    let bytes_max = i32::try_from(connection.shard.shared.options.max_message_size).unwrap_or(i32::MAX);
    connection.send(&answer::connected(
        &connection.server.server_version,
        protocol_version,
        bytes_max,
        flags,
    ));
    true
}

/// A client's name for itself ends up in stats and logs; it does not choose their length.
fn clip(text: &str) -> String {
    text.chars().take(128).collect()
}
