//! The providers of a node, one after the other.
//!
//! ```text
//!   method has providers ─► each in turn, the first that lets the peer in decides; else refused
//!   none for the method  ─► the anonymous role, where there is one; else refused
//! ```

use std::fmt;
use std::sync::Arc;

use crate::{Credentials, Identity, OpenIdVerifier, Passwords, RevokedTokens, TokenVerifier};

/// Authentication provider.
#[derive(Debug)]
pub enum Provider {
    /// Signed tokens.
    Token(Box<TokenVerifier>),
    /// Access tokens that other issuers signed (OAuth2, OpenID Connect). Clients call these tokens as well.
    OpenId(Box<OpenIdVerifier>),
    /// Names and passwords.
    Basic(Passwords),
    /// Client certificates, which the transport checks.
    Tls,
}

impl Provider {
    /// Returns the authentication method of its credentials, as Pulsar names it.
    #[must_use]
    pub fn method(&self) -> &'static str {
        match self {
            Self::Token(_) | Self::OpenId(_) => "token",
            Self::Basic(_) => "basic",
            Self::Tls => "tls",
        }
    }

    async fn authenticate(&self, shown: &Credentials) -> Result<Identity, String> {
        match self {
            Self::Token(tokens) => tokens.verify(&shown.data).map_err(|error| error.to_string()),
            Self::OpenId(issuers) => {
                let identity = issuers.verify(&shown.data).await;
                identity.map_err(|error| error.to_string())
            }
            Self::Basic(passwords) => passwords.verify(&shown.data, shown.from).await,
            Self::Tls => match &shown.certificate_role {
                Some(role) if !role.is_empty() => Ok(Identity::lasting(role)),
                _ => Err("there is no certificate with a name".to_owned()),
            },
        }
    }
}

/// The providers, and what holds for those whom none knows.
#[derive(Debug, Default)]
pub struct Chain {
    /// In the order in which they are asked.
    pub providers: Vec<Provider>,
    /// The role of who shows no credentials; `None`: they are refused.
    pub anonymous_role: Option<Arc<str>>,
    /// True if credentials of a kind that no provider accepts are refused, instead of being ignored.
    pub strict_method: bool,
    /// True if the original credentials that a proxy forwards are checked here as well.
    pub checks_original: bool,
    /// Tokens that are refused although their signature is right.
    pub revoked: Option<Arc<RevokedTokens>>,
}

/// Reason why authentication failed. For the log: the peer is told only that it failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The peer presented no credentials, and anonymous peers are not admitted.
    #[error("no credentials were shown")]
    Missing,
    /// Credentials of a kind that no provider takes.
    #[error("no provider takes credentials of the kind '{0}'")]
    NoProvider(String),
    /// A provider refused them.
    #[error("{method}: {reason}")]
    Refused {
        /// The kind of credentials.
        method: &'static str,
        /// Reason; without secrets.
        reason: String,
    },
}

/// The way to the providers: what every connection or request asks. Cheap to clone.
#[derive(Clone, Default)]
pub struct Authentication(Option<Arc<Chain>>);

impl Authentication {
    /// No peer is asked who it is.
    #[must_use]
    pub fn off() -> Self {
        Self(None)
    }

    /// By these providers.
    #[must_use]
    pub fn by(chain: Chain) -> Self {
        Self(Some(Arc::new(chain)))
    }

    /// True if peers must authenticate.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// True if the original credentials that a proxy forwards are checked as well.
    #[must_use]
    pub fn checks_original(&self) -> bool {
        self.0.as_ref().is_some_and(|chain| chain.checks_original)
    }

    /// The list of revoked tokens, where there is one.
    #[must_use]
    pub fn revoked(&self) -> Option<&Arc<RevokedTokens>> {
        self.0.as_ref().and_then(|chain| chain.revoked.as_ref())
    }

    /// Returns the revision of the list of revoked tokens in force: another number after each change.
    #[must_use]
    pub fn revoked_revision(&self) -> u64 {
        self.revoked().map_or(0, |revoked| revoked.revision())
    }

    /// True if the token of an authenticated peer has been revoked since.
    #[must_use]
    pub fn has_revoked(&self, identity: &Identity) -> bool {
        self.0.as_ref().is_some_and(|chain| chain.has_revoked(identity))
    }

    /// Authenticates a peer by its credentials. While authentication is off no peer has a role.
    ///
    /// Cancel safety: nothing is kept.
    ///
    /// # Errors
    /// [`Failure`]: the peer is not admitted.
    pub async fn authenticate(&self, shown: Credentials) -> Result<Identity, Failure> {
        match &self.0 {
            Some(chain) => chain.authenticate(shown).await,
            None => Err(Failure::Missing),
        }
    }
}

impl fmt::Debug for Authentication {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Authentication({})", if self.is_on() { "on" } else { "off" })
    }
}

/// A method's name in a message; the peer does not choose its length.
const METHOD_CHARS_MAX: usize = 32;

impl Chain {
    fn has_revoked(&self, identity: &Identity) -> bool {
        self.revoked.as_ref().is_some_and(|revoked| revoked.has(identity))
    }

    async fn authenticate(&self, shown: Credentials) -> Result<Identity, Failure> {
        let mut refused: Option<Failure> = None;
        for provider in self.providers.iter().filter(|it| it.method() == shown.method) {
            match provider.authenticate(&shown).await {
                Ok(identity) if self.has_revoked(&identity) => {
                    let (method, reason) = (provider.method(), "the token is revoked".to_owned());
                    return Err(Failure::Refused { method, reason });
                }
                Ok(identity) => return Ok(identity),
                Err(reason) => {
                    let method = provider.method();
                    // Each of them says why.
                    let reason = match refused {
                        Some(Failure::Refused { reason: former, .. }) => format!("{former}; {reason}"),
                        _ => reason,
                    };
                    refused = Some(Failure::Refused { method, reason });
                }
            }
        }
        if let Some(refused) = refused {
            return Err(refused);
        }
        let shows_none = matches!(shown.method.as_str(), "" | "none");
        match &self.anonymous_role {
            Some(role) if shows_none || !self.strict_method => Ok(Identity::lasting(role)),
            _ if shows_none => Err(Failure::Missing),
            _ => Err(Failure::NoProvider(
                shown.method.chars().take(METHOD_CHARS_MAX).collect(),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{TokenOptions, sign};

    fn tokens(secret: &[u8]) -> Provider {
        let options = TokenOptions {
            secret_key: Some(secret.to_vec()),
            ..TokenOptions::default()
        };
        Provider::Token(Box::new(TokenVerifier::new(&options).unwrap()))
    }

    fn token(secret: &[u8]) -> Credentials {
        Credentials::token(sign::with_secret(secret, &sign::Claims::of("car")).unwrap())
    }

    #[tokio::test]
    async fn providers_of_a_method_are_asked_in_turn() {
        let (first, second, third) = ([1; 32], [2; 32], [3; 32]);
        let authentication = Authentication::by(Chain {
            providers: vec![tokens(&first), Provider::Tls, tokens(&second)],
            ..Chain::default()
        });
        for secret in [&first, &second] {
            let identity = authentication.authenticate(token(secret)).await.unwrap();
            assert_eq!(&*identity.role, "car");
        }
        let refused = authentication.authenticate(token(&third)).await.unwrap_err();
        assert!(
            matches!(refused, Failure::Refused { method: "token", .. }),
            "{refused}"
        );
        let certificate = Credentials {
            method: "tls".to_owned(),
            ..Credentials::default()
        };
        let known = certificate.clone().with_certificate(Some("cn".into()));
        assert_eq!(&*authentication.authenticate(known).await.unwrap().role, "cn");
        assert!(authentication.authenticate(certificate).await.is_err());
    }

    #[tokio::test]
    async fn the_anonymous_role_is_for_those_who_show_nothing() {
        let chain = |anonymous: Option<&str>, strict_method| {
            Authentication::by(Chain {
                providers: vec![tokens(&[1; 32])],
                anonymous_role: anonymous.map(Into::into),
                strict_method,
                checks_original: false,
                revoked: None,
            })
        };
        let none = Credentials::default;
        let athenz = || Credentials {
            method: "athenz".to_owned(),
            ..Credentials::default()
        };
        let closed = chain(None, false);
        assert_eq!(closed.authenticate(none()).await, Err(Failure::Missing));
        let refused = closed.authenticate(athenz()).await;
        assert_eq!(refused, Err(Failure::NoProvider("athenz".to_owned())));
        let open = chain(Some("guest"), false);
        for shown in [none(), athenz()] {
            assert_eq!(&*open.authenticate(shown).await.unwrap().role, "guest");
        }
        // Who shows a bad token is no guest.
        assert!(open.authenticate(Credentials::token("x")).await.is_err());
        assert!(chain(Some("guest"), true).authenticate(athenz()).await.is_err());
        assert!(chain(Some("guest"), true).authenticate(none()).await.is_ok());
        assert!(Authentication::off().authenticate(none()).await.is_err());
    }
}
