//! CONNECT: the first command, and the only one that may be first; and AUTH_RESPONSE, by which a client shows new credentials
//! when the ones before have expired.
//!
//! ```text
//!   CONNECT ─► who is it? (may wait) ─► CONNECTED
//!                                  └──► ERROR -1, closed
//!   …  expired ─► AUTH_CHALLENGE ─► AUTH_RESPONSE ─► the same role? it goes on; else ERROR -1, closed
//!                 └ no answer till the next look, or a client that cannot answer: closed
//! ```

use std::rc::Rc;
use std::sync::Arc;

use pharos_identity::Credentials;
use pharos_runtime::spawn_local;
use pharos_wire::proto::{CommandAuthResponse, CommandConnect, FeatureFlags};
use pharos_wire::{Command, PROTOCOL_VERSION, answer};

use crate::connection::{Connection, Peer};
use crate::credential::Credential;
use crate::limits::network_of_client;
use crate::proving::{Proved, Refused, Stranger, prove, refusal};

/// Handles the first command of a connection. Returns false when the connection must be closed.
pub(super) fn handle_first(connection: &Rc<Connection>, command: Command) -> bool {
    let Command::Connect(connect) = command else {
        if let Some(untold) = connection.server.peer_log.enter() {
            tracing::warn!(peer = %connection.address, command = ?command.command_type(), untold, "closing a connection that did not say CONNECT first");
        }
        return false;
    };
    if connection.is_proving.replace(true) {
        if let Some(untold) = connection.server.peer_log.enter() {
            tracing::warn!(peer = %connection.address, untold, "closing a connection that said CONNECT twice");
        }
        return false;
    }
    if !connection.server.authentication.is_on() {
        let proved = Proved {
            principal: Stranger::of(connection).principal(),
            credential: Credential::lasting(),
            counted: None,
        };
        welcome(connection, &connect, proved);
        return true;
    }
    if let Some(proved) = connection.proved.take() {
        welcome(connection, &connect, *proved);
        return true;
    }
    let connection = connection.clone();
    spawn_local(async move {
        let proved = prove(Stranger::of(&connection), &connect).await;
        if connection.is_closed() {
            return;
        }
        match proved {
            Ok(proved) => welcome(&connection, &connect, proved),
            Err(refused) => refuse(&connection, &refused),
        }
    });
    true
}

fn welcome(connection: &Connection, connect: &CommandConnect, proved: Proved) {
    let Proved {
        principal,
        credential,
        counted,
    } = proved;
    let protocol_version = connect.protocol_version.unwrap_or(0).clamp(0, PROTOCOL_VERSION);
    *connection.peer.borrow_mut() = Some(Peer {
        principal,
        protocol_version,
        client_version: clip(&connect.client_version).into(),
        credential,
        _counted: counted.map(Arc::new),
    });
    connection.shard.tally().handshake(true);
    let flags = FeatureFlags {
        supports_auth_refresh: Some(connection.server.authentication.is_on()),
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
}

fn refuse(connection: &Connection, refused: &Refused) {
    let who = connection
        .peer
        .borrow()
        .as_ref()
        .map(|peer| peer.principal.clone());
    connection.send(&refusal(Stranger::of(connection), who, refused));
    connection.close_after_writing();
}

/// Handles the answer to a challenge. One that was not asked for is nothing.
pub(super) fn handle_auth_response(connection: &Rc<Connection>, response: CommandAuthResponse) {
    let is_asked = match connection.peer.borrow_mut().as_mut() {
        Some(peer) => peer.credential.begin_refresh(),
        None => false,
    };
    if !is_asked {
        return;
    }
    let shown = response.response.unwrap_or_default();
    let shown = Credentials {
        method: shown.auth_method_name.unwrap_or_default(),
        data: shown.auth_data.unwrap_or_default().into(),
        certificate_role: Stranger::of(connection).certificate_role(),
        from: network_of_client(&connection.address),
    };
    let connection = connection.clone();
    spawn_local(async move {
        let revision = connection.server.authentication.revoked_revision();
        let proved = connection.server.authentication.authenticate(shown).await;
        if connection.is_closed() {
            return;
        }
        let refused = match proved {
            Ok(identity) => {
                let mut peer = connection.peer.borrow_mut();
                match peer.as_mut() {
                    Some(peer) if peer.principal.role() == Some(&identity.role) => {
                        peer.credential.refreshed(identity, revision);
                        return;
                    }
                    _ => Refused::Roles(identity.role),
                }
            }
            Err(failure) => Refused::Failed(failure),
        };
        refuse(&connection, &refused);
    });
}

/// A client's name for itself ends up in stats and logs; it does not choose their length.
fn clip(text: &str) -> String {
    text.chars().take(128).collect()
}
