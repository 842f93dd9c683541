//! Settings of access tokens that other issuers sign, under Pulsar's names.

use std::path::PathBuf;
use std::time::Duration;

use super::Names;

/// Whose access tokens are taken, and how their keys are asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenIdSettings {
    /// The issuers.
    pub allowed_token_issuers: Names,
    /// The audiences.
    pub allowed_audiences: Names,
    /// The claim that holds the role.
    pub role_claim: String,
    /// By how much clocks may differ.
    pub accepted_time_leeway: Duration,
    /// Of how many issuers the keys are kept.
    pub cache_size: u32,
    /// When kept keys are asked for again.
    pub cache_refresh_after_write: Duration,
    /// When kept keys are not used any more.
    pub cache_expiration: Duration,
    /// How long an issuer is not asked again for a key that it did not have.
    pub key_id_cache_miss_refresh: Duration,
    /// How long a connection to an issuer may take.
    pub http_connection_timeout: Duration,
    /// How long an issuer may take to answer.
    pub http_read_timeout: Duration,
    /// Authorities that vouch for issuers.
    pub token_issuer_trust_certs_file: Option<PathBuf>,
    /// Whether issuers are asked over TLS only.
    pub require_issuers_use_https: bool,
}

impl Default for OpenIdSettings {
    fn default() -> Self {
        Self {
            allowed_token_issuers: Names::default(),
            allowed_audiences: Names::default(),
            role_claim: "sub".to_owned(),
            accepted_time_leeway: Duration::ZERO,
            cache_size: 5,
            cache_refresh_after_write: Duration::from_secs(18 * 3600),
            cache_expiration: Duration::from_secs(24 * 3600),
            key_id_cache_miss_refresh: Duration::from_secs(300),
            http_connection_timeout: Duration::from_secs(10),
            http_read_timeout: Duration::from_secs(10),
            token_issuer_trust_certs_file: None,
            require_issuers_use_https: true,
        }
    }
}

impl OpenIdSettings {
    /// What does not go together; `is_asked`: whether the provider is among those that are asked.
    pub(super) fn faults(&self, is_asked: bool) -> Vec<String> {
        let mut faults = Vec::new();
        let mut expect = |holds: bool, sentence: &str| {
            if !holds {
                faults.push(sentence.to_owned());
            }
        };
        expect(
            !is_asked || !self.allowed_token_issuers.0.is_empty(),
            "the provider openid needs openid.allowed_token_issuers",
        );
        expect(
            !is_asked || !self.allowed_audiences.0.is_empty(),
            "the provider openid needs openid.allowed_audiences: without one a token for any other service would get in",
        );
        expect(
            is_asked || self.allowed_token_issuers.0.is_empty(),
            "openid.allowed_token_issuers does nothing unless openid is among authentication.providers",
        );
        let is_plain = |issuer: &String| !issuer.starts_with("https://");
        expect(
            !self.require_issuers_use_https || !self.allowed_token_issuers.0.iter().any(is_plain),
            "openid.allowed_token_issuers must begin with https://, unless openid.require_issuers_use_https is false",
        );
        expect(self.cache_size > 0, "openid.cache_size must not be 0");
        let times = [
            self.cache_refresh_after_write,
            self.cache_expiration,
            self.key_id_cache_miss_refresh,
            self.http_connection_timeout,
            self.http_read_timeout,
        ];
        expect(
            !times.iter().any(Duration::is_zero),
            "the times of openid must not be 0, but for openid.accepted_time_leeway",
        );
        faults
    }
}
