//! AUTH_RESPONSE, by which a client shows new credentials when the ones before have expired.
//!
//! ```text
//!   expired ─► AUTH_CHALLENGE ─► AUTH_RESPONSE ─► the same role? it goes on; else ERROR -1, closed
//!              └ no answer till the next look, or a client that cannot answer: closed
//! ```

use std::rc::Rc;

use pharos_identity::Credentials;
use pharos_runtime::spawn_local;
use pharos_wire::proto::CommandAuthResponse;

use crate::connection::Connection;
use crate::limits::network_of_client;
use crate::proving::{Refused, certificate_role, refusal};

/// Handles the answer to a challenge. One that was not asked for is nothing.
pub(super) fn handle(connection: &Rc<Connection>, response: CommandAuthResponse) {
    if !connection.peer.borrow_mut().credential.begin_refresh() {
        return;
    }
    let shown = response.response.unwrap_or_default();
    let shown = Credentials {
        method: shown.auth_method_name.unwrap_or_default(),
        data: shown.auth_data.unwrap_or_default().into(),
        certificate_role: certificate_role(connection.certificate.as_deref()),
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
                if peer.principal.role() == Some(&identity.role) {
                    return peer.credential.refreshed(identity, revision);
                }
                Refused::Roles(identity.role)
            }
            Err(failure) => Refused::Failed(failure),
        };
        let who = connection.principal();
        connection.send(&refusal(&connection.server, &who, &connection.address, &refused));
        connection.close_after_writing();
    });
}
