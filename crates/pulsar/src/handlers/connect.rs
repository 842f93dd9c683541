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

use pharos_auth::{Door, Principal};
use pharos_identity::{Credentials, Failure, Identity};
use pharos_runtime::spawn_local;
use pharos_transport::PeerCertificate;
use pharos_wire::answer::Refusal;
use pharos_wire::proto::{AuthMethod, CommandAuthResponse, CommandConnect, FeatureFlags, ServerError};
use pharos_wire::{Command, PROTOCOL_VERSION, answer};

use crate::connection::{Connection, Peer};
use crate::credential::Credential;
use crate::limits::LimitHold;
use crate::limits::network_of_client;
use crate::shared::Server;

/// A client that may come in.
pub(crate) struct Proved {
    principal: Principal,
    /// What it showed.
    credential: Credential,
    /// It counts for its role.
    counted: Option<LimitHold>,
}

/// A client of which nothing is known yet but its connection.
#[derive(Clone, Copy)]
pub(crate) struct Stranger<'a> {
    pub(crate) server: &'a Server,
    pub(crate) address: &'a Arc<str>,
    /// By which door it came.
    pub(crate) door: Door,
    pub(crate) certificate: Option<&'a PeerCertificate>,
}

impl<'a> Stranger<'a> {
    fn of(connection: &'a Connection) -> Self {
        Self {
            server: &connection.server,
            address: &connection.address,
            door: connection.door,
            certificate: connection.certificate.as_deref(),
        }
    }

    fn principal(self) -> Principal {
        Principal::anonymous(self.address.clone()).by(self.door)
    }

    /// The role that its certificate proves.
    fn certificate_role(self) -> Option<Arc<str>> {
        let trusted = self.certificate.filter(|shown| shown.is_trusted)?;
        trusted.common_name.as_deref().map(Arc::from)
    }
}

/// Why a client was not let in.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refused {
    #[error(transparent)]
    Failed(#[from] Failure),
    #[error("what it hands on of its client: {0}")]
    Original(Failure),
    #[error("the role {0} may not connect in this way")]
    Roles(Arc<str>),
    #[error("{}", .0.message)]
    Limited(Refusal),
}

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

/// Finds out who the client is, and for whom it asks, and counts it for its role.
///
/// # Errors
/// [`Refused`].
pub(crate) async fn prove(stranger: Stranger<'_>, connect: &CommandConnect) -> Result<Proved, Refused> {
    let server = stranger.server;
    let method = method_of(connect);
    let shown = Credentials {
        method: method.clone(),
        data: connect.auth_data.clone().unwrap_or_default().into(),
        certificate_role: stranger.certificate_role(),
        from: network_of_client(stranger.address),
    };
    let revision = server.authentication.revoked_revision();
    let identity = server.authentication.authenticate(shown).await?;
    let (original, proved_original) = original_of(stranger, connect).await?;
    let principal = stranger
        .principal()
        .with_role(identity.role.clone())
        .on_behalf_of(original);
    if !server.access.may_connect(&principal) {
        return Err(Refused::Roles(identity.role));
    }
    let flags = connect.feature_flags.as_ref();
    server.access.note_authentication(&principal, None);
    let proved = std::iter::once(identity.clone()).chain(proved_original).collect();
    let may_refresh = flags.is_some_and(|flags| flags.supports_auth_refresh.unwrap_or(false));
    let counted = server.limiter.connection(&principal).map_err(Refused::Limited)?;
    Ok(Proved {
        principal,
        credential: Credential::new(&method, identity.expires_at_ms, may_refresh).proving(proved, revision),
        counted,
    })
}

/// What Pulsar calls the kind of the client's credentials.
fn method_of(connect: &CommandConnect) -> String {
    let legacy = || match connect
        .auth_method
        .and_then(|method| AuthMethod::try_from(method).ok())
    {
        Some(AuthMethod::YcaV1) => "ycav1",
        Some(AuthMethod::Athens) => "athens",
        Some(AuthMethod::None) | None => "none",
    };
    let named = connect.auth_method_name.clone();
    named.unwrap_or_else(|| legacy().to_owned())
}

/// For whom a proxy asks: as it says, or as its client's own credentials say where those are checked, and then what they prove.
async fn original_of(
    stranger: Stranger<'_>,
    connect: &CommandConnect,
) -> Result<(Option<Arc<str>>, Option<Identity>), Refused> {
    let authentication = &stranger.server.authentication;
    let said = connect.original_principal.as_deref().map(Arc::from);
    let Some(data) = connect
        .original_auth_data
        .as_ref()
        .filter(|_| authentication.checks_original())
    else {
        return Ok((said, None));
    };
    let shown = Credentials {
        method: connect.original_auth_method.clone().unwrap_or_default(),
        data: data.clone().into_bytes(),
        certificate_role: None,
        // Guesses of the proxy's clients are the proxy's.
        from: network_of_client(stranger.address),
    };
    let identity: Identity = authentication
        .authenticate(shown)
        .await
        .map_err(Refused::Original)?;
    Ok((Some(identity.role.clone()), Some(identity)))
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

/// What a client hears that is not let in: that it failed, and no more. The reason is for the logs. `who`: as whom it was let in before.
pub(crate) fn refusal(stranger: Stranger<'_>, who: Option<Principal>, refused: &Refused) -> Command {
    let access = &stranger.server.access;
    let who = who.unwrap_or_else(|| stranger.principal());
    access.note_authentication(&who, Some(&refused.to_string()));
    if let Some(untold) = stranger.server.peer_log.enter() {
        tracing::info!(peer = %stranger.address, reason = %refused, untold, "a client was not let in");
    }
    let (code, text) = match refused {
        Refused::Failed(_) | Refused::Original(_) => {
            (ServerError::AuthenticationError, "Failed to authenticate")
        }
        Refused::Roles(_) => (ServerError::AuthorizationError, "Invalid roles."),
        Refused::Limited(refusal) => (refusal.code, refusal.message.as_str()),
    };
    answer::connection_error(code, text)
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
