//! A token for a client's name and secret: OAuth2's client credentials (RFC 6749, section 4.4), with the parameters of Pulsar's
//! `AuthenticationOAuth2`. The issuer is found by OpenID discovery, as its clients do.

use std::time::Duration;

use pharos_client::TlsOptions;
use serde_json::{Map, Value};
use ureq::Agent;

use crate::credentials::key_file;
use crate::error::CliError;
use crate::https::agent;

/// Time limit for the issuer's answer.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The longest answer that is read.
const ANSWER_BYTES_MAX: u64 = 256 << 10;
const DISCOVERY: &str = "/.well-known/openid-configuration";

/// An issuer, and how a client shows itself to it.
#[derive(Clone)]
pub(crate) struct OAuth2 {
    issuer: String,
    /// Location of the file with the client's name and secret; read each time.
    private_key: String,
    audience: Option<String>,
    scope: Option<String>,
    trust_certs_file: Option<std::path::PathBuf>,
}

impl OAuth2 {
    /// From `{"issuerUrl":…,"privateKey":…,"audience":…,"scope":…,"trustCertsFilePath":…}`.
    ///
    /// # Errors
    /// Something is missing, or the secret would go to the issuer over a network without TLS.
    pub(crate) fn parse(members: &Map<String, Value>) -> Result<Self, CliError> {
        let text = |name: &str| {
            let text = members
                .get(name)
                .and_then(Value::as_str)
                .filter(|text| !text.is_empty());
            text.map(str::to_owned)
        };
        let usage = |wanted: &str| CliError::Usage(format!("--auth-params: oauth2: {wanted}"));
        let kind = text("type");
        if kind.is_some_and(|kind| kind != "client_credentials") {
            return Err(usage("the only type is client_credentials"));
        }
        let issuer = text("issuerUrl").ok_or_else(|| usage("issuerUrl is missing"))?;
        if !is_private(&issuer) {
            return Err(usage("issuerUrl must begin with https://, but on this machine"));
        }
        Ok(Self {
            issuer,
            private_key: text("privateKey").ok_or_else(|| usage("privateKey is missing"))?,
            audience: text("audience"),
            scope: text("scope"),
            trust_certs_file: text("trustCertsFilePath").map(Into::into),
        })
    }

    /// A fresh token.
    ///
    /// # Errors
    /// The issuer does not answer, or gives none.
    pub(crate) fn token(&self) -> Result<String, String> {
        let key = key_file(&self.private_key)?;
        let secret = |name: &str| {
            let found = key.get(name).and_then(Value::as_str);
            found.ok_or_else(|| format!("the file of the client's secret has no {name}"))
        };
        let (id, secret) = (secret("client_id")?, secret("client_secret")?);
        let agent = self.agent()?;
        let about = format!("{}{DISCOVERY}", self.issuer.trim_end_matches('/'));
        let answer = read(&about, agent.get(&about).call())?;
        let endpoint = answer.get("token_endpoint").and_then(Value::as_str);
        let endpoint = endpoint.ok_or_else(|| format!("{about} names no token_endpoint"))?;
        if !is_private(endpoint) {
            return Err(format!("{endpoint} is not https://"));
        }
        let mut form = vec![
            ("grant_type", "client_credentials"),
            ("client_id", id),
            ("client_secret", secret),
        ];
        form.extend(self.audience.as_deref().map(|audience| ("audience", audience)));
        form.extend(self.scope.as_deref().map(|scope| ("scope", scope)));
        let answer = read(endpoint, agent.post(endpoint).send_form(form))?;
        let token = answer.get("access_token").and_then(Value::as_str);
        token
            .map(str::to_owned)
            .ok_or_else(|| format!("{endpoint} gives no access_token"))
    }

    fn agent(&self) -> Result<Agent, String> {
        let tls = TlsOptions {
            trust_certs_file: self.trust_certs_file.clone(),
            ..TlsOptions::default()
        };
        let tls = self.issuer.starts_with("https://").then_some(&tls);
        // Where a redirect leads, the secret does not go.
        agent(tls, TIMEOUT, 0).map_err(|error| error.to_string())
    }
}

/// True if the connection there is encrypted, or stays on this machine.
fn is_private(url: &str) -> bool {
    if url.starts_with("https://") {
        return true;
    }
    let rest = url.strip_prefix("http://").unwrap_or_default();
    let authority = rest.split('/').next().unwrap_or_default();
    let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
    ["127.0.0.1", "localhost", "[::1]"].contains(&host)
}

/// The answer, if it is a good one. What the issuer says of a failure is not repeated: it may repeat what it was told.
fn read(url: &str, sent: Result<ureq::http::Response<ureq::Body>, ureq::Error>) -> Result<Value, String> {
    let mut answer = sent.map_err(|error| format!("{url}: {error}"))?;
    let status = answer.status().as_u16();
    if status != 200 {
        return Err(format!("{url} answers {status}"));
    }
    let body = answer
        .body_mut()
        .with_config()
        .limit(ANSWER_BYTES_MAX)
        .read_to_string();
    let body = body.map_err(|error| format!("{url}: {error}"))?;
    serde_json::from_str(&body).map_err(|_| format!("{url} answers no JSON"))
}
