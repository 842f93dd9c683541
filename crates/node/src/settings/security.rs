//! Settings of who may connect and who may do what, under Pulsar's names.

use std::path::PathBuf;
use std::time::Duration;

use super::{Names, Secret};

/// Who a client is.
#[derive(Clone, Debug, PartialEq)]
pub struct AuthenticationSettings {
    /// Whether clients are asked who they are.
    pub enabled: bool,
    /// What may say so.
    pub providers: Names,
    /// How often it is looked whether credentials have expired.
    pub refresh_check_interval: Duration,
    /// The role of those who show nothing.
    pub anonymous_user_role: String,
    /// Whether credentials of an unknown kind are refused.
    pub strict_auth_method: bool,
    /// Whether a proxy's client is checked here as well.
    pub authenticate_original_auth_data: bool,
    /// Whether the metrics page needs a role.
    pub metrics_endpoint: bool,
    /// Key of tokens that are signed with a secret.
    pub token_secret_key: Secret,
    /// Key of tokens that are signed with a private key.
    pub token_public_key: Secret,
    /// What kind of key that is.
    pub token_public_alg: String,
    /// The claim that holds the role.
    pub token_auth_claim: String,
    /// The claim that holds the audience.
    pub token_audience_claim: String,
    /// The audience.
    pub token_audience: String,
    /// By how much clocks may differ.
    pub token_allowed_clock_skew: Duration,
    /// The list of revoked tokens.
    pub revoked_tokens_file: Option<PathBuf>,
    /// The file of names and passwords.
    pub basic_auth_conf: Secret,
    /// Wrong passwords of one address in the time below.
    pub max_password_failures: u32,
    /// After it the address may be wrong as often again.
    pub password_failure_period: Duration,
}

/// Who may do what.
#[derive(Clone, Debug, PartialEq)]
pub struct AuthorizationSettings {
    /// Whether roles are told apart.
    pub enabled: bool,
    /// What decides.
    pub provider: String,
    /// Roles that may do everything.
    pub super_user_roles: Names,
    /// Roles that ask for others.
    pub proxy_roles: Names,
    /// Whether granted roles may be patterns.
    pub allow_wildcards_matching: bool,
}

impl Default for AuthenticationSettings {
    fn default() -> Self {
        Self {
            enabled: false,
            providers: Names::default(),
            refresh_check_interval: Duration::from_secs(60),
            anonymous_user_role: String::new(),
            strict_auth_method: false,
            authenticate_original_auth_data: false,
            metrics_endpoint: false,
            token_secret_key: Secret::default(),
            token_public_key: Secret::default(),
            token_public_alg: "RS256".to_owned(),
            token_auth_claim: "sub".to_owned(),
            token_audience_claim: String::new(),
            token_audience: String::new(),
            token_allowed_clock_skew: Duration::ZERO,
            revoked_tokens_file: None,
            basic_auth_conf: Secret::default(),
            max_password_failures: 30,
            password_failure_period: Duration::from_secs(60),
        }
    }
}

/// The one provider of authorization.
const AUTHORIZATION_PROVIDER: &str = "PulsarAuthorizationProvider";

impl Default for AuthorizationSettings {
    fn default() -> Self {
        Self {
            enabled: false,
            provider: AUTHORIZATION_PROVIDER.to_owned(),
            super_user_roles: Names::default(),
            proxy_roles: Names::default(),
            allow_wildcards_matching: false,
        }
    }
}

/// A kind of provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProviderKind {
    Token,
    OpenId,
    Basic,
    Tls,
}

impl ProviderKind {
    /// By its name here, or that of Pulsar's class with or without its package.
    fn of(name: &str) -> Option<Self> {
        match simple(name) {
            "token" | "AuthenticationProviderToken" => Some(Self::Token),
            "openid" | "AuthenticationProviderOpenID" => Some(Self::OpenId),
            "basic" | "AuthenticationProviderBasic" => Some(Self::Basic),
            "tls" | "AuthenticationProviderTls" => Some(Self::Tls),
            _ => None,
        }
    }
}

/// The name of a class without its package.
fn simple(name: &str) -> &str {
    name.rsplit_once('.').map_or(name, |(_, last)| last)
}

impl AuthenticationSettings {
    /// What is to be asked, in order.
    pub(crate) fn kinds(&self) -> Vec<ProviderKind> {
        let names = self.providers.0.iter();
        names.filter_map(|name| ProviderKind::of(name)).collect()
    }

    /// What does not go together.
    pub(super) fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let unknown = self
            .providers
            .0
            .iter()
            .filter(|name| ProviderKind::of(name).is_none());
        faults.extend(unknown.map(|name| {
            format!("authentication.providers: '{name}' is none of token, openid, basic, tls and Pulsar's classes for them")
        }));
        let mut expect = |holds: bool, sentence: &str| {
            if !holds {
                faults.push(sentence.to_owned());
            }
        };
        let has = |kind| self.kinds().contains(&kind);
        expect(
            !self.enabled || !self.providers.0.is_empty(),
            "authentication.enabled needs authentication.providers",
        );
        expect(
            self.enabled || self.providers.0.is_empty(),
            "authentication.providers does nothing without authentication.enabled",
        );
        let keys = [&self.token_secret_key, &self.token_public_key];
        expect(
            !has(ProviderKind::Token) || keys.iter().any(|key| !key.is_empty()),
            "the provider token needs authentication.token_secret_key or authentication.token_public_key",
        );
        expect(
            self.revoked_tokens_file.is_none() || has(ProviderKind::Token) || has(ProviderKind::OpenId),
            "authentication.revoked_tokens_file does nothing without the provider token or openid",
        );
        expect(
            !has(ProviderKind::Basic) || !self.basic_auth_conf.is_empty(),
            "the provider basic needs authentication.basic_auth_conf",
        );
        expect(
            self.token_audience_claim.is_empty() == self.token_audience.is_empty(),
            "authentication.token_audience_claim and authentication.token_audience go together",
        );
        expect(
            !self.password_failure_period.is_zero(),
            "authentication.password_failure_period must not be 0; authentication.max_password_failures 0 counts none",
        );
        expect(
            !self.refresh_check_interval.is_zero(),
            "authentication.refresh_check_interval must not be 0",
        );
        faults
    }
}

impl AuthorizationSettings {
    /// What does not go together.
    pub(super) fn faults(&self, authentication: &AuthenticationSettings) -> Vec<String> {
        let mut faults = Vec::new();
        let mut expect = |holds: bool, sentence: String| {
            if !holds {
                faults.push(sentence);
            }
        };
        expect(
            !self.enabled || authentication.enabled,
            "authorization.enabled needs authentication.enabled: without it no client has a role".to_owned(),
        );
        expect(
            simple(&self.provider) == AUTHORIZATION_PROVIDER,
            format!("authorization.provider: there is only {AUTHORIZATION_PROVIDER}"),
        );
        let anonymous = &authentication.anonymous_user_role;
        let roles = [&self.super_user_roles, &self.proxy_roles];
        expect(
            !self.enabled || !roles.iter().any(|roles| roles.0.contains(anonymous)),
            "authentication.anonymous_user_role is among the superusers or proxies: every client would be one"
                .to_owned(),
        );
        faults
    }
}
