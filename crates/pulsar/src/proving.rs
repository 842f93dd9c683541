//! Authentication of a client that sends CONNECT.

use std::sync::Arc;

use pharos_auth::{Door, Principal};
use pharos_identity::{Credentials, Failure, Identity};
use pharos_runtime::clock;
use pharos_transport::{PeerCertificate, Stream};
use pharos_wire::answer::{self, Refusal};
use pharos_wire::proto::{AuthMethod, CommandConnect, ServerError};
use pharos_wire::{Command, PROTOCOL_VERSION};

use crate::connection::Peer;
use crate::credential::Credential;
use crate::limits::{LimitHold, network_of_client};
use crate::shared::Server;

/// A client of which nothing is known yet but its connection.
pub(crate) struct Stranger {
    pub(crate) server: Arc<Server>,
    pub(crate) address: Arc<str>,
    pub(crate) connected_since_ms: u64,
    /// The listener by whose door it came.
    pub(crate) listener: Option<Arc<str>>,
    /// By which door it came.
    door: Door,
    /// The certificate that it has shown.
    pub(crate) certificate: Option<Arc<PeerCertificate>>,
}

impl Stranger {
    /// The one at the other end of this stream.
    pub(crate) fn new(server: Arc<Server>, listener: Option<Arc<str>>, stream: &Stream) -> Self {
        Self {
            server,
            address: format!("/{}", stream.peer_address()).into(),
            connected_since_ms: clock::wall_ms(),
            listener,
            door: match stream.is_inside() {
                true => Door::WebSocket,
                false => Door::Pulsar,
            },
            certificate: stream.peer_certificate().cloned(),
        }
    }

    fn principal(&self) -> Principal {
        Principal::anonymous(self.address.clone()).by(self.door)
    }

    /// Finds out who the client is, and for whom it asks, and counts it for its role.
    ///
    /// # Errors
    /// [`Refused`].
    pub(crate) async fn prove(&self, connect: &CommandConnect) -> Result<Peer, Refused> {
        let (principal, credential, counted) = match self.server.authentication.is_on() {
            true => self.authenticate(connect).await?,
            false => (self.principal(), Credential::lasting(), None),
        };
        Ok(Peer {
            principal,
            protocol_version: connect.protocol_version.unwrap_or(0).clamp(0, PROTOCOL_VERSION),
            client_version: clip(&connect.client_version).into(),
            credential,
            _counted: counted.map(Arc::new),
        })
    }

    async fn authenticate(
        &self,
        connect: &CommandConnect,
    ) -> Result<(Principal, Credential, Option<LimitHold>), Refused> {
        let server = &self.server;
        let method = method_of(connect);
        let shown = Credentials {
            method: method.clone(),
            data: connect.auth_data.clone().unwrap_or_default().into(),
            certificate_role: certificate_role(self.certificate.as_deref()),
            from: network_of_client(&self.address),
        };
        let revision = server.authentication.revoked_revision();
        let identity = server.authentication.authenticate(shown).await?;
        let (original, proved_original) = self.original_of(connect).await?;
        let principal = self
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
        let credential = Credential::new(&method, identity.expires_at_ms, may_refresh);
        Ok((principal, credential.proving(proved, revision), counted))
    }

    /// Returns the original principal of a proxy: as the proxy states it, or as its client's own credentials prove it
    /// where those are checked.
    async fn original_of(
        &self,
        connect: &CommandConnect,
    ) -> Result<(Option<Arc<str>>, Option<Identity>), Refused> {
        let authentication = &self.server.authentication;
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
            from: network_of_client(&self.address),
        };
        let identity: Identity = authentication
            .authenticate(shown)
            .await
            .map_err(Refused::Original)?;
        Ok((Some(identity.role.clone()), Some(identity)))
    }

    /// Returns the answer to a client that is not admitted.
    pub(crate) fn refusal(&self, refused: &Refused) -> Command {
        refusal(&self.server, &self.principal(), &self.address, refused)
    }
}

/// The role that a certificate proves.
pub(crate) fn certificate_role(certificate: Option<&PeerCertificate>) -> Option<Arc<str>> {
    let trusted = certificate.filter(|shown| shown.is_trusted)?;
    trusted.common_name.as_deref().map(Arc::from)
}

/// Reason why a client was not admitted.
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

/// Returns Pulsar's name of the client's authentication method.
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

/// Returns the answer to a client that is not admitted: authentication failed, and no more. The reason is for the
/// logs.
pub(crate) fn refusal(server: &Server, who: &Principal, address: &str, refused: &Refused) -> Command {
    server.access.note_authentication(who, Some(&refused.to_string()));
    if let Some(untold) = server.peer_log.enter() {
        tracing::info!(peer = %address, reason = %refused, untold, "a client was not let in");
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

/// A client's name for itself ends up in stats and logs; it does not choose their length.
fn clip(text: &str) -> String {
    text.chars().take(128).collect()
}
