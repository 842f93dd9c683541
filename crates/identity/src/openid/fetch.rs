//! Asking an issuer for its keys: what it says of itself, then the document of keys that this names. Each is bounded in time
//! and size, redirects are not followed, and the issuer must call itself what it is called in the settings.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use reqwest::{Client, redirect};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;

use super::keys::KeySet;
use super::{OpenIdError, OpenIdOptions};

/// Path of an issuer's metadata document (OpenID Connect Discovery 1.0, section 4).
const DISCOVERY: &str = "/.well-known/openid-configuration";
/// The longest document that is read, in bytes.
const DOCUMENT_BYTES_MAX: usize = 256 << 10;

/// Reason why an issuer's keys could not be fetched. For logs: contains nothing that the issuer chose but its URLs.
#[derive(Debug, thiserror::Error)]
pub(super) enum FetchError {
    #[error("{url} does not answer: {cause}")]
    Http { url: String, cause: String },
    #[error("{url} answers {status}")]
    Status { url: String, status: u16 },
    #[error("{0} answers more than {DOCUMENT_BYTES_MAX} bytes")]
    TooLong(String),
    #[error("{0} answers no JSON")]
    Json(String),
    #[error("{0} calls itself by another name")]
    OtherIssuer(String),
    #[error("{0} does not say where its keys are")]
    NoKeysUrl(String),
    #[error("{0} answers no key set")]
    KeySet(String),
}

/// Asks issuers.
pub(super) struct Fetcher {
    client: Client,
}

impl Fetcher {
    pub(super) fn new(options: &OpenIdOptions) -> Result<Self, OpenIdError> {
        let client = Client::builder()
            .tls_backend_preconfigured(tls(options.trust_certs_file.as_deref())?)
            .https_only(options.require_https)
            .redirect(redirect::Policy::none())
            .connect_timeout(options.connect_timeout)
            .read_timeout(options.read_timeout)
            // An issuer that sends a byte now and then comes to an end as well.
            .timeout(whole_timeout(options))
            .user_agent(concat!("pharos/", env!("CARGO_PKG_VERSION")))
            .build();
        let client = client.map_err(|error| OpenIdError::Client(said(&error)))?;
        Ok(Self { client })
    }

    /// The keys of the issuer at this URL.
    ///
    /// Cancel safety: nothing is kept.
    pub(super) async fn keys(&self, issuer: &str) -> Result<KeySet, FetchError> {
        let about = format!("{}{DISCOVERY}", issuer.trim_end_matches('/'));
        let document = self.document(&about).await?;
        let document: Value =
            serde_json::from_slice(&document).map_err(|_| FetchError::Json(about.clone()))?;
        let text = |name: &str| document.get(name).and_then(Value::as_str);
        if text("issuer") != Some(issuer) {
            return Err(FetchError::OtherIssuer(about));
        }
        let url = text("jwks_uri").ok_or(FetchError::NoKeysUrl(about))?;
        let keys = self.document(url).await?;
        KeySet::parse(&keys).ok_or_else(|| FetchError::KeySet(url.to_owned()))
    }

    async fn document(&self, url: &str) -> Result<Vec<u8>, FetchError> {
        let failed = |error: reqwest::Error| FetchError::Http {
            url: url.to_owned(),
            cause: said(&error.without_url()),
        };
        let mut answer = self.client.get(url).send().await.map_err(failed)?;
        let status = answer.status().as_u16();
        if status != 200 {
            let url = url.to_owned();
            return Err(FetchError::Status { url, status });
        }
        let mut document = Vec::new();
        while let Some(piece) = answer.chunk().await.map_err(failed)? {
            if document.len() + piece.len() > DOCUMENT_BYTES_MAX {
                return Err(FetchError::TooLong(url.to_owned()));
            }
            document.extend_from_slice(&piece);
        }
        Ok(document)
    }
}

/// Returns the total time limit of one document.
fn whole_timeout(options: &OpenIdOptions) -> Duration {
    options.connect_timeout.saturating_add(options.read_timeout)
}

/// Returns the total time limit of an issuer's keys: two documents.
pub(super) fn fetch_timeout(options: &OpenIdOptions) -> Duration {
    whole_timeout(options).saturating_mul(2)
}

/// An error with what caused it.
fn said(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    text
}

fn tls(trust_certs_file: Option<&Path>) -> Result<ClientConfig, OpenIdError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| OpenIdError::Client(error.to_string()))?;
    let roots = trusted(trust_certs_file)?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

fn trusted(file: Option<&Path>) -> Result<RootCertStore, OpenIdError> {
    let mut roots = RootCertStore::empty();
    let Some(file) = file else {
        // One that cannot be read is one less; without any no issuer is believed over TLS.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        return Ok(roots);
    };
    let fault = |reason: String| OpenIdError::Trust(format!("{}: {reason}", file.display()));
    let listed = CertificateDer::pem_file_iter(file).map_err(|error| fault(error.to_string()))?;
    for authority in listed {
        let authority = authority.map_err(|error| fault(error.to_string()))?;
        roots.add(authority).map_err(|error| fault(error.to_string()))?;
    }
    if roots.is_empty() {
        return Err(fault("no certificate in PEM".to_owned()));
    }
    Ok(roots)
}
