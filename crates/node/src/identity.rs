//! From settings to who is let in and who may do what.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use pharos_auth::{Access, Facts, RuleOptions, Rules, StoredPolicies};
use pharos_catalog::Catalog;
use pharos_identity::{
    Authentication, Chain, GuessLimits, OpenIdOptions, OpenIdVerifier, Passwords, Provider, RevokedTokens,
    TokenOptions, TokenVerifier, read_key,
};
use pharos_types::NamespaceName;

use crate::settings::{AuthenticationSettings, OpenIdSettings, ProviderKind, Secret, Settings};

/// Interval between reads of the list of revoked tokens.
const REVOKED_READ_INTERVAL: Duration = Duration::from_secs(2);

/// Reads keys, passwords and revoked tokens; no client is let in when one of them cannot be read.
pub(crate) fn authentication(settings: &Settings) -> anyhow::Result<Authentication> {
    let (all, settings) = (settings, &settings.authentication);
    if !settings.enabled {
        return Ok(Authentication::off());
    }
    let providers = settings.kinds().into_iter().map(|kind| provider(kind, all));
    let anonymous = &settings.anonymous_user_role;
    let revoked = settings
        .revoked_tokens_file
        .as_deref()
        .map(RevokedTokens::load)
        .transpose()
        .context("authentication.revoked_tokens_file")?;
    Ok(Authentication::by(Chain {
        revoked,
        providers: providers.collect::<anyhow::Result<_>>()?,
        anonymous_role: (!anonymous.is_empty()).then(|| anonymous.as_str().into()),
        strict_method: settings.strict_auth_method,
        checks_original: settings.authenticate_original_auth_data,
    }))
}

/// Reads the list of revoked tokens again from time to time, for ever.
///
/// Cancel safety: what is in force stays in force.
pub(crate) async fn keep_revoked_fresh(authentication: Authentication) {
    let Some(revoked) = authentication.revoked().cloned() else {
        return std::future::pending().await;
    };
    let mut told = None;
    loop {
        tokio::time::sleep(REVOKED_READ_INTERVAL).await;
        let reading = revoked.clone();
        let read =
            tokio::task::spawn_blocking(move || reading.reload().map_err(|error| error.to_string())).await;
        match read.unwrap_or_else(|error| Err(error.to_string())) {
            Ok(None) => told = None,
            Ok(Some(lines)) => tracing::info!(lines, "a changed list of revoked tokens is in force"),
            // Once, until it is right again.
            Err(error) if told.as_ref() != Some(&error) => {
                tracing::warn!(
                    error,
                    "the list of revoked tokens cannot be used; the former one stays in force"
                );
                told = Some(error);
            }
            Err(_) => {}
        }
    }
}

fn provider(kind: ProviderKind, settings: &Settings) -> anyhow::Result<Provider> {
    let authentication = &settings.authentication;
    Ok(match kind {
        ProviderKind::Token => Provider::Token(Box::new(tokens(authentication)?)),
        ProviderKind::OpenId => Provider::OpenId(Box::new(access_tokens(&settings.openid)?)),
        ProviderKind::Basic => Provider::Basic(passwords(authentication)?),
        ProviderKind::Tls => Provider::Tls,
    })
}

fn tokens(settings: &AuthenticationSettings) -> anyhow::Result<TokenVerifier> {
    let options = TokenOptions {
        secret_key: key(&settings.token_secret_key).context("authentication.token_secret_key")?,
        public_key: key(&settings.token_public_key).context("authentication.token_public_key")?,
        public_algorithm: settings.token_public_alg.clone(),
        role_claim: settings.token_auth_claim.clone(),
        audience_claim: settings.token_audience_claim.clone(),
        audience: settings.token_audience.clone(),
        clock_skew_s: settings.token_allowed_clock_skew.as_secs(),
    };
    TokenVerifier::new(&options).context("authentication: the keys of tokens")
}

fn access_tokens(settings: &OpenIdSettings) -> anyhow::Result<OpenIdVerifier> {
    let options = OpenIdOptions {
        issuers: settings.allowed_token_issuers.0.clone(),
        audiences: settings.allowed_audiences.0.clone(),
        role_claim: settings.role_claim.clone(),
        clock_skew_s: settings.accepted_time_leeway.as_secs(),
        cache_size: settings.cache_size as usize,
        refresh_after: settings.cache_refresh_after_write,
        expire_after: settings.cache_expiration,
        miss_refresh: settings.key_id_cache_miss_refresh,
        connect_timeout: settings.http_connection_timeout,
        read_timeout: settings.http_read_timeout,
        trust_certs_file: settings.token_issuer_trust_certs_file.clone(),
        require_https: settings.require_issuers_use_https,
    };
    OpenIdVerifier::new(&options).context("openid")
}

fn key(setting: &Secret) -> anyhow::Result<Option<Vec<u8>>> {
    if setting.is_empty() {
        return Ok(None);
    }
    Ok(Some(read_key(setting.reveal())?))
}

fn passwords(settings: &AuthenticationSettings) -> anyhow::Result<Passwords> {
    let read = || {
        let text = read_key(settings.basic_auth_conf.reveal())?;
        let text = String::from_utf8(text).map_err(|_| anyhow::anyhow!("it is no text"))?;
        let limits = GuessLimits {
            failures_max: settings.max_password_failures,
            period: settings.password_failure_period,
        };
        anyhow::Ok(Passwords::parse(&text)?.guarded(limits))
    };
    read().context("authentication.basic_auth_conf")
}

/// Authorization, for every listener.
pub(crate) fn access(settings: &Settings, catalog: &Catalog) -> Access {
    if !settings.authentication.enabled {
        return Access::everyone();
    }
    let authorization = &settings.authorization;
    let options = RuleOptions {
        authorization: authorization.enabled,
        super_users: authorization.super_user_roles.0.iter().cloned().collect(),
        proxies: authorization.proxy_roles.0.iter().cloned().collect(),
        wildcards: authorization.allow_wildcards_matching,
        metrics_need_role: settings.authentication.metrics_endpoint,
    };
    Access::by(Arc::new(Rules::new(options, Arc::new(Stored(catalog.clone())))))
}

/// Interval between checks for expired client credentials.
pub(crate) fn check_interval(settings: &Settings) -> Duration {
    settings.authentication.refresh_check_interval
}

/// The catalog, as the rules ask it.
struct Stored(Catalog);

impl Facts for Stored {
    fn has_tenant(&self, tenant: &str) -> bool {
        self.0.tenants().get(tenant).is_some()
    }

    fn is_tenant_admin(&self, tenant: &str, role: &str) -> bool {
        self.0.tenants().is_admin(tenant, role)
    }

    fn policies(&self, namespace: &NamespaceName) -> Option<StoredPolicies> {
        self.0
            .policies(namespace)
            .map(|policies| policies as StoredPolicies)
    }
}
