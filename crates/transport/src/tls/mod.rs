//! TLS of a listener: its certificate and key, what it asks of clients, and reading all of it again while connections go on.
//!
//! ```text
//!   TlsOptions ──load──► Tls ──current──► the configuration of the next handshake
//!                         ▲
//!                         └─ reload: the files have changed, and go together
//! ```
//! Always true: a handshake sees one whole configuration; files that cannot be read, or do not go together, change nothing;
//! no session is resumed, so each connection proves anew who it is, against the certificates in force.

mod certificate;
mod files;
mod session;
mod verifier;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use rustls::server::{NoServerSessionStorage, ServerConfig, WebPkiClientVerifier};
use rustls::{RootCertStore, SupportedCipherSuite, SupportedProtocolVersion};

pub use certificate::PeerCertificate;
pub(crate) use session::{DetachedSession, Session};

use files::Files;
use verifier::{Clients, Lenient, Version3Only};

/// Client certificate policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientCertificates {
    /// No certificate is requested.
    #[default]
    NotAsked,
    /// Requested but optional. An untrusted certificate is refused.
    Asked,
    /// Required, and must be trusted.
    Required,
    /// Requested, and any is accepted: no authority confirms its contents.
    Untrusted,
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsVersion {
    /// TLS 1.2.
    V1_2,
    /// TLS 1.3.
    V1_3,
}

/// TLS options of a listener.
#[derive(Clone, Debug, Default)]
pub struct TlsOptions {
    /// PEM: the certificate, then those between it and the authority that clients trust.
    pub certificate_file: PathBuf,
    /// PEM: its private key.
    pub key_file: PathBuf,
    /// PEM: the authorities that vouch for clients. Needed for [`ClientCertificates::Asked`] and `Required`.
    pub trust_certs_file: Option<PathBuf>,
    /// Client certificate policy.
    pub clients: ClientCertificates,
    /// Versions that are spoken; empty: both.
    pub versions: Vec<TlsVersion>,
    /// Names of cipher suites, the preferred first; empty: all of [`cipher_suite_names`].
    pub cipher_suites: Vec<String>,
}

/// Error of the TLS configuration.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read, or has not in it what it should have.
    #[error("{}: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Description of the problem.
        reason: String,
    },
    /// The parts do not go together.
    #[error("{0}")]
    Unusable(String),
}

/// TLS of a listener. Shared by all threads.
#[derive(Debug)]
pub struct Tls {
    options: TlsOptions,
    current: RwLock<Current>,
    reloads: AtomicU64,
}

#[derive(Debug)]
struct Current {
    /// Fingerprint of the files that it was made from.
    fingerprint: u64,
    prepared: Arc<Prepared>,
    /// Expiry time of the certificate, in seconds since 1970.
    expires_at: i64,
}

/// All that a handshake needs.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) server: Arc<ServerConfig>,
    pub(crate) clients: Clients,
}

impl Tls {
    /// Reads the files and makes the first configuration of them.
    ///
    /// # Errors
    /// [`TlsError`]: there is none.
    pub fn load(options: TlsOptions) -> Result<Arc<Self>, TlsError> {
        let current = make(&options, Files::read(&options)?)?;
        Ok(Arc::new(Self {
            options,
            current: RwLock::new(current),
            reloads: AtomicU64::new(0),
        }))
    }

    /// Reads the files again. Returns whether they have changed; handshakes that begin from now on see what is new.
    ///
    /// # Errors
    /// [`TlsError`]: what was in force stays in force.
    pub fn reload(&self) -> Result<bool, TlsError> {
        let files = Files::read(&self.options)?;
        let known = self.read(|current| current.fingerprint);
        if files.fingerprint == known {
            return Ok(false);
        }
        let made = make(&self.options, files)?;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = made;
        self.reloads.fetch_add(1, Ordering::Relaxed);
        Ok(true)
    }

    /// Number of times that changed files were loaded.
    #[must_use]
    pub fn reload_count(&self) -> u64 {
        self.reloads.load(Ordering::Relaxed)
    }

    /// Expiry time of the certificate in use, in seconds since 1970.
    #[must_use]
    pub fn expires_at(&self) -> i64 {
        self.read(|current| current.expires_at)
    }

    /// State for the next handshake.
    pub(crate) fn prepared(&self) -> Arc<Prepared> {
        self.read(|current| current.prepared.clone())
    }

    fn read<T>(&self, look: impl FnOnce(&Current) -> T) -> T {
        look(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The names of all cipher suites there are, as IANA has them, the preferred first.
#[must_use]
pub fn cipher_suite_names() -> Vec<String> {
    let provider = rustls::crypto::ring::default_provider();
    provider.cipher_suites.iter().map(name_of).collect()
}

fn name_of(suite: &SupportedCipherSuite) -> String {
    // Those of TLS 1.3 carry the version in rustls, and not in the registry.
    format!("{:?}", suite.suite()).replacen("TLS13_", "TLS_", 1)
}

fn make(options: &TlsOptions, files: Files) -> Result<Current, TlsError> {
    let unusable = |error: rustls::Error| TlsError::Unusable(error.to_string());
    let mut provider = rustls::crypto::ring::default_provider();
    if !options.cipher_suites.is_empty() {
        provider.cipher_suites = chosen(&provider.cipher_suites, &options.cipher_suites)?;
    }
    let provider = Arc::new(provider);
    let clients = match options.clients {
        ClientCertificates::NotAsked => Clients::NotAsked,
        how => {
            let trusted = verifier(&provider, files.authorities, how)?;
            match how {
                ClientCertificates::Untrusted => {
                    Clients::Lenient(Arc::new(Lenient::new(provider.clone(), trusted)))
                }
                _ => Clients::Strict(trusted.ok_or_else(no_authorities)?),
            }
        }
    };
    let builder = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&versions(options))
        .map_err(unusable)?
        .with_client_cert_verifier(clients.verifier());
    let expires_at = certificate::expires_at(files.chain.first());
    let mut server = builder
        .with_single_cert(files.chain, files.key)
        .map_err(|error| TlsError::File {
            path: options.certificate_file.clone(),
            reason: format!(
                "cannot be used with the key in {}: {error}",
                options.key_file.display()
            ),
        })?;
    server.session_storage = Arc::new(NoServerSessionStorage {});
    server.send_tls13_tickets = 0;
    Ok(Current {
        fingerprint: files.fingerprint,
        prepared: Arc::new(Prepared {
            server: Arc::new(server),
            clients,
        }),
        expires_at,
    })
}

fn no_authorities() -> TlsError {
    TlsError::Unusable(
        "client certificates are asked for, and no authorities are named that vouch for them".into(),
    )
}

/// Verifier of client certificates against the authorities, if there are any.
fn verifier(
    provider: &Arc<rustls::crypto::CryptoProvider>,
    authorities: RootCertStore,
    how: ClientCertificates,
) -> Result<Option<Arc<dyn rustls::server::danger::ClientCertVerifier>>, TlsError> {
    if authorities.is_empty() {
        return Ok(None);
    }
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(authorities), provider.clone());
    let builder = match how {
        ClientCertificates::Required => builder,
        _ => builder.allow_unauthenticated(),
    };
    let built = builder.build();
    built
        .map(|built| {
            Some(Arc::new(Version3Only(built)) as Arc<dyn rustls::server::danger::ClientCertVerifier>)
        })
        .map_err(|error| TlsError::Unusable(error.to_string()))
}

fn versions(options: &TlsOptions) -> Vec<&'static SupportedProtocolVersion> {
    let of = |version: &TlsVersion| match version {
        TlsVersion::V1_2 => &rustls::version::TLS12,
        TlsVersion::V1_3 => &rustls::version::TLS13,
    };
    match options.versions.as_slice() {
        [] => rustls::ALL_VERSIONS.to_vec(),
        some => some.iter().map(of).collect(),
    }
}

fn chosen(all: &[SupportedCipherSuite], names: &[String]) -> Result<Vec<SupportedCipherSuite>, TlsError> {
    let find = |name: &String| {
        let found = all.iter().find(|suite| name_of(suite) == *name);
        found
            .copied()
            .ok_or_else(|| TlsError::Unusable(format!("there is no cipher suite {name}")))
    };
    names.iter().map(find).collect()
}
