//! Credentials that a client presented when it connected, and the time when it must present them again.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use pharos_identity::Identity;
use pharos_runtime::{Nanos, clock};
use pharos_wire::answer;

use crate::connection::Connection;

/// Credentials that a client presented. They move with its connection.
#[derive(Clone, Debug)]
pub(crate) struct Credential {
    /// Its kind: what a challenge asks for.
    method: Arc<str>,
    /// In milliseconds since 1970; `None`: never.
    expires_at_ms: Option<u64>,
    /// The client knows challenges.
    may_refresh: bool,
    /// Time of the last check.
    looked_at: Nanos,
    asked: Asked,
    /// Identities that it proved with them; for a proxy also those that its client proved.
    proved: Vec<Identity>,
    /// Revision of the list of revoked tokens at admission.
    revision: u64,
}

/// Progress of a request for new credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    No,
    /// The challenge was sent.
    Challenged,
    /// Its answer is being checked.
    Answered,
}

/// Action that is due.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Due {
    Nothing,
    /// Ask for new credentials of this kind.
    Challenge(Arc<str>),
    Close,
}

impl Credential {
    /// None, which does not expire.
    pub(crate) fn lasting() -> Self {
        Self::new("none", None, false)
    }

    pub(crate) fn new(method: &str, expires_at_ms: Option<u64>, may_refresh: bool) -> Self {
        Self {
            method: method.into(),
            expires_at_ms,
            may_refresh,
            looked_at: clock::now(),
            asked: Asked::No,
            proved: Vec::new(),
            revision: 0,
        }
    }

    /// Returns the same credential with these proved identities, checked against the list of revoked tokens at
    /// `revision`.
    pub(crate) fn proving(self, proved: Vec<Identity>, revision: u64) -> Self {
        Self {
            proved,
            revision,
            ..self
        }
    }

    /// Returns the identities to look for in the list of revoked tokens, if it has changed since the last look.
    fn look_for_revoked(&mut self, revision: u64) -> &[Identity] {
        if std::mem::replace(&mut self.revision, revision) == revision {
            return &[];
        }
        &self.proved
    }

    /// Looks whether it has expired, once in each interval. Who cannot show new ones, or has not since the last look, is closed.
    pub(crate) fn look(&mut self, now: Nanos, wall_ms: u64, interval: Duration) -> Due {
        let Some(expires_at_ms) = self.expires_at_ms else {
            return Due::Nothing;
        };
        if u128::from(now.since(self.looked_at)) < interval.as_nanos() {
            return Due::Nothing;
        }
        self.looked_at = now;
        if wall_ms < expires_at_ms {
            return Due::Nothing;
        }
        if !self.may_refresh || self.asked != Asked::No {
            return Due::Close;
        }
        self.asked = Asked::Challenged;
        Due::Challenge(self.method.clone())
    }

    /// The answer to a challenge came. Returns false when there was none.
    pub(crate) fn begin_refresh(&mut self) -> bool {
        let is_asked = self.asked == Asked::Challenged;
        if is_asked {
            self.asked = Asked::Answered;
        }
        is_asked
    }

    /// New ones were shown, for the same role.
    pub(crate) fn refreshed(&mut self, identity: Identity, revision: u64) {
        self.expires_at_ms = identity.expires_at_ms;
        self.asked = Asked::No;
        self.revision = revision;
        match self.proved.first_mut() {
            Some(proved) => *proved = identity,
            None => self.proved.push(identity),
        }
    }
}

impl Connection {
    /// Looks whether what the client showed has expired, and asks for it again; or has been revoked.
    pub(crate) fn check_credential(&self) {
        let authentication = &self.server.authentication;
        let is_revoked = {
            let credential = &mut self.peer.borrow_mut().credential;
            let mut changed = credential
                .look_for_revoked(authentication.revoked_revision())
                .iter();
            changed.any(|identity| authentication.has_revoked(identity))
        };
        if is_revoked {
            tracing::info!(peer = %self.address, "closing a connection whose token was revoked");
            self.close_after_writing();
            return;
        }
        let due = {
            let interval = self.server.credential_check_interval;
            let credential = &mut self.peer.borrow_mut().credential;
            credential.look(clock::now(), clock::wall_ms(), interval)
        };
        match due {
            Due::Nothing => {}
            Due::Challenge(method) => {
                let data = Bytes::from_static(b"PulsarAuthRefresh");
                self.send(&answer::auth_challenge(&method, data, self.protocol_version()));
            }
            Due::Close => {
                tracing::info!(peer = %self.address, "closing a connection whose credentials have expired");
                self.close_after_writing();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn at(credential: &mut Credential, minutes: u64, wall_ms: u64) -> Due {
        let now = Nanos(credential.looked_at.0 + minutes * 60_000_000_000);
        credential.look(now, wall_ms, MINUTE)
    }

    #[test]
    fn an_expired_one_is_asked_for_once_and_then_closed() {
        let mut credential = Credential::new("token", Some(1000), true);
        assert_eq!(at(&mut credential, 0, 2000), Due::Nothing);
        assert_eq!(at(&mut credential, 1, 999), Due::Nothing);
        assert_eq!(at(&mut credential, 1, 1000), Due::Challenge("token".into()));
        assert_eq!(at(&mut credential, 0, 2000), Due::Nothing);
        let mut answered = credential.clone();
        assert_eq!(at(&mut credential, 1, 2000), Due::Close);
        assert!(answered.begin_refresh());
        assert!(!answered.begin_refresh(), "one answer for one challenge");
        let renewed = Identity {
            role: "car".into(),
            expires_at_ms: Some(9000),
            token: None,
        };
        answered.refreshed(renewed, 0);
        assert_eq!(at(&mut answered, 1, 8000), Due::Nothing);
        assert_eq!(at(&mut answered, 1, 9000), Due::Challenge("token".into()));
        assert!(!Credential::new("token", Some(1000), true).begin_refresh());
    }

    #[test]
    fn who_cannot_refresh_is_closed_and_who_never_expires_stays() {
        assert_eq!(
            at(&mut Credential::new("token", Some(1000), false), 1, 1000),
            Due::Close
        );
        assert_eq!(at(&mut Credential::lasting(), 9, u64::MAX), Due::Nothing);
    }
}
