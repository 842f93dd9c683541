//! Who a client is that says CONNECT: asked on the threads of the entry, and for other doors of this process on the shard.

use std::sync::Arc;

use pharos_auth::{Door, Principal};
use pharos_identity::{Credentials, Failure, Identity};
use pharos_transport::PeerCertificate;
use pharos_wire::Command;
use pharos_wire::answer::{self, Refusal};
use pharos_wire::proto::{AuthMethod, CommandConnect, ServerError};

use crate::connection::Connection;
use crate::credential::Credential;
use crate::limits::{LimitHold, network_of_client};
use crate::shared::Server;

/// A client that may come in.
pub(crate) struct Proved {
    pub(crate) principal: Principal,
    /// What it showed.
    pub(crate) credential: Credential,
    /// It counts for its role.
    pub(crate) counted: Option<LimitHold>,
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
    pub(crate) fn of(connection: &'a Connection) -> Self {
        Self {
            server: &connection.server,
            address: &connection.address,
            door: connection.door,
            certificate: connection.certificate.as_deref(),
        }
    }

    pub(crate) fn principal(self) -> Principal {
        Principal::anonymous(self.address.clone()).by(self.door)
    }

    /// The role that its certificate proves.
    pub(crate) fn certificate_role(self) -> Option<Arc<str>> {
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
